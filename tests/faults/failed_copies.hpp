// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

/// Trainings in which one copy fails, once or until it is repaired: a typed error, and after the retry the same bits.
namespace failed_copies {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::any_backend;
using support::chosen_gradient;

inline constexpr cm::manager_options chunks{.chunk_bytes = 4_KiB};

/// Where and how a training runs.
struct setting {
  mixed::recipe how{};
  bool in_place = false;
  bool rehearses = true;          ///< on the manager that trains
  bool launched = false;          ///< kernels on streams of their own
  std::uint32_t more_frames = 1;  ///< of the device, above the need
  support::adversarial_options options{
      .device_capacity = 2_MiB, .host_capacity = 2_MiB, .when = support::schedule::latest};
};

/// A trainer that follows the documentation after an error.
template <class Manager, class Element>
class patient {
 public:
  using trainer = mixed::trainer<Manager, any_backend, Element>;

  patient(const support::failure_plan& plan, const setting& how, bool same_scope)
      : memory{how.options, plan},
        persistent_{plan.persistent},
        same_scope_{same_scope},
        steps_{how.how.steps},
        m{memory, chunks, chosen_gradient{how.in_place}},
        run{m, memory, how.how, how.launched ? mixed::crew{cm::agent::compute, memory.adopt()} : mixed::crew{}}
  {
    if (how.rehearses) need = run.rehearse();
  }

  /// @param census   gets the number of copies after the filling and after each step, where it is not null
  mixed::outcome train(std::vector<std::uint64_t>* census)
  {
    until_done([this] { run.initialise(); });
    if (census != nullptr) census->push_back(memory.copies());
    for (std::uint32_t now = 0; now < steps_; ++now) {
      step(now);
      if (now % 2 == 1) until_done([this, now] { run.evaluate(now); }, [this] { run.forget_step(); });
      if (census != nullptr) census->push_back(memory.copies());
    }
    memory.set_plan({});
    return run.collect();
  }

  any_backend memory;
  int errors = 0;
  cm::memory_requirement need;

 private:
  template <class Work>
  void until_done(Work work)
  {
    for (bool done = false; !done;) {
      try {
        work();
        done = true;
      } catch (const cm::error& refused) {
        count(refused);
      }
    }
  }
  template <class Work, class Repair>
  void until_done(Work work, Repair repair)
  {
    until_done([&] {
      try {
        work();
      } catch (const cm::error&) {
        until_done(repair);  // it copies, too
        throw;
      }
    });
  }
  /// A failed pass is dropped and run again; a failed update is called again, here or in a new iteration.
  void step(std::uint32_t now)
  {
    bool updating = false;
    until_done(
        [&] {
          auto scope = m.iteration();
          if (!updating) run.forward_and_backward(scope, now, 0);
          updating = true;
          if (same_scope_)
            until_done([this] { run.update(); });
          else
            run.update();
        },
        [&] {
          if (!updating) run.forget_step();
        });
  }
  void count(const cm::error& refused)
  {
    ++errors;
    INFO(refused.what());
    REQUIRE(errors <= (persistent_ ? 5 : 1));
    REQUIRE((refused.code() == cm::error_code::device || refused.code() == cm::error_code::out_of_memory));
    if (persistent_ && errors == 3) memory.set_plan({});  // the first retries still fail
  }

  bool persistent_;
  bool same_scope_;
  std::uint32_t steps_;

 public:
  Manager m;
  trainer run;
};

/// Trains once with one failure. @param expected   the outcome of an undisturbed training
template <class Manager, class Element>
void fail_once(const support::failure_plan& plan, const setting& how, bool same_scope, const mixed::outcome& expected)
{
  patient<Manager, Element> it{plan, how, same_scope};
  REQUIRE(expected.difference(it.train(nullptr)) == "");
  REQUIRE(it.memory.failures() > 0);
  REQUIRE(it.errors > 0);
  const cm::report seen = it.m.report();
  for (const cm::tier where : cm::all_tiers) REQUIRE(seen.peak[where] <= seen.capacity[where]);
  it.memory.drain();
  REQUIRE(it.memory.faults().empty());
}

/// Copies fail in turn, one in each run, on the smallest device of the training and `more_frames`.
/// @param stride   1: every copy fails in some run; n: every n-th one
/// @param both   two runs for each copy: it fails once, or until it is repaired. Else the runs take turns
/// @return   the number of copies that failed
template <class Manager, class Element>
std::uint64_t fail_copies(setting how, std::uint64_t stride, bool both = false)
{
  const mixed::outcome expected = mixed::reference{how.how}.train();
  const bool rehearses = std::exchange(how.rehearses, true);
  how.options.device_capacity =
      patient<Manager, Element>{{}, how, false}.need.smallest_device + how.more_frames * chunks.chunk_bytes;
  how.rehearses = rehearses;
  std::vector<std::uint64_t> ends;
  patient<Manager, Element> quiet{{}, how, false};
  REQUIRE(expected.difference(quiet.train(&ends)) == "");
  REQUIRE(quiet.errors == 0);
  REQUIRE(ends.back() > ends.front());
  std::uint64_t failed = 0;
  for (std::uint64_t k = 0; k < ends.back(); k += stride, ++failed)
    for (const bool persistent : {false, true}) {
      const std::uint64_t turn = k / stride;
      if (!both && persistent != (turn % 2 == 1)) continue;
      INFO((how.in_place ? "in place" : "separate")
           << ", copy " << k << " of " << ends.back() << (persistent ? ", until it is repaired" : ", once"));
      fail_once<Manager, Element>({.copy = k, .persistent = persistent}, how,
                                  both ? (turn % 2 == 0) != persistent : turn % 4 < 2, expected);
    }
  std::cout << (how.in_place ? "in place" : "separate") << ": " << ends.back() << " copies, " << failed
            << " of them failed, and each run had the bits of an undisturbed one\n";
  return failed;
}

}  // namespace failed_copies
