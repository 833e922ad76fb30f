// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator.hpp"
#include "machine.hpp"

#include <support/sanitized.hpp>

#include <cstdint>
#include <string>

namespace differential {

/// The number of operations that a build has time for.
inline constexpr std::uint64_t operations_in_ci = support::sanitized ? 20'000 : 1'000'000;

inline constexpr std::size_t program_length = 1'000;

/// A program that differs from the model, reduced to the calls that are needed.
struct finding {
  std::string difference;
  std::uint64_t operations = 0;  ///< made until it was met
  setting where;
  program calls;
};

/// A difference without its call and its numbers: the part that stays the same while a program is reduced.
[[nodiscard]] inline std::string kind_of(const std::string& difference)
{
  const std::size_t begin = difference.find(": ");
  return begin == std::string::npos ? difference
                                    : difference.substr(begin, difference.find_first_of("0123456789;(", begin) - begin);
}

[[nodiscard]] inline program cut_down(const setting& wanted, const program& calls, const std::string& difference)
{
  return shrunk(calls, [&](const program& fewer) {
    tally ignored;
    return kind_of(run_program(wanted, fewer, ignored)) == kind_of(difference);
  });
}

/// Runs programs with the settings that `setting_of(seed)` gives until one differs, or `operations` were made.
/// @return   the first that differs; without a difference where none does
template <class SettingOf>
[[nodiscard]] finding hunt(SettingOf setting_of, std::uint64_t first, std::uint64_t operations, tally& sum)
{
  finding result;
  const std::uint64_t end = sum.operations + operations;
  const std::uint64_t before = sum.operations;
  for (std::uint64_t seed = first; sum.operations < end; ++seed) {
    const setting wanted = setting_of(seed);
    const program calls = random_program(seed, program_length);
    const std::string difference = run_program(wanted, calls, sum);
    if (difference.empty()) continue;
    result = {difference, sum.operations - before, wanted, cut_down(wanted, calls, difference)};
    break;
  }
  return result;
}

/// A finding as the text of a test, for whoever fixes it.
[[nodiscard]] inline std::string text_of(const finding& it)
{
  return "seed " + std::to_string(it.where.seed) + ": " + it.difference + "\n" +
         as_test(it.where, it.calls, it.difference);
}

}  // namespace differential
