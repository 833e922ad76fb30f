// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/call_ref.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <exception>
#include <string>

namespace conformance {

// A suite of laws is a number of trials. `trial(number)`, counted from 1, makes one attempt, most of them with random
// calls, and returns the broken law, or an empty text. No trial contains an assertion, so that a program may also run a
// suite on a policy that is known to be wrong.

using law_trial = chunkmem::call_ref<std::string(std::uint64_t number)>;

/// The law that one trial found broken. A call that throws an error that no law allows has broken a law.
[[nodiscard]] inline std::string mistake_of(law_trial trial, std::uint64_t number)
{
  try {
    return trial(number);
  } catch (const std::exception& error) {
    return std::string{"a call threw what no law lets it throw: "} + error.what();
  }
}

/// The first broken law of all trials, with the trial's number; empty: none.
[[nodiscard]] inline std::string first_mistake(std::uint64_t trials, law_trial trial)
{
  for (std::uint64_t number = 1; number <= trials; ++number)
    if (const std::string mistake = mistake_of(trial, number); !mistake.empty())
      return "trial " + std::to_string(number) + ": " + mistake;
  return {};
}

/// Each trial is one assertion of the running test case, which ends with the first that fails.
inline void require_trials(std::uint64_t trials, law_trial trial)
{
  for (std::uint64_t number = 1; number <= trials; ++number) {
    INFO("trial " << number);
    REQUIRE(mistake_of(trial, number) == "");
  }
}

/// True where `call()` throws this class of error.
template <class Error, class Call>
[[nodiscard]] bool is_refused_as(Call&& call)
{
  try {
    call();
  } catch (const Error&) {
    return true;
  } catch (const std::exception&) {
  }
  return false;
}

/// Counts the allocations of the program so far. A program that replaces operator new can pass the count to a suite,
/// which then also checks for allocations where a law forbids them; without it they cannot be checked.
using allocation_counter = std::uint64_t (*)();

/// Detects whether calls allocate.
class allocation_watch {
 public:
  explicit allocation_watch(allocation_counter counter) noexcept : counter_{counter} {}

  /// Makes the call `call()` and returns its result.
  template <class Call>
  decltype(auto) operator()(Call&& call)
  {
    const reading now{*this};
    return call();
  }
  [[nodiscard]] bool has_seen_one() const noexcept { return seen_; }

 private:
  struct reading {
    explicit reading(allocation_watch& to) noexcept : watch{to}, before{watch.so_far()} {}
    reading(const reading&) = delete;
    reading& operator=(const reading&) = delete;
    ~reading() { watch.seen_ = watch.seen_ || watch.so_far() != before; }
    allocation_watch& watch;
    std::uint64_t before;
  };
  [[nodiscard]] std::uint64_t so_far() const { return counter_ == nullptr ? 0 : counter_(); }

  allocation_counter counter_;
  bool seen_ = false;
};

}  // namespace conformance
