// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "words.hpp"

#include <cstdint>

namespace differential {

/// The setting and the program of a seed: random, and the same on every machine.
[[nodiscard]] setting random_setting(std::uint64_t seed, world where);
[[nodiscard]] program random_program(std::uint64_t seed, std::size_t length);

/// The shortest list of calls, among those with some calls left out, for which `fails` is still true. Delta debugging
/// (Zeller and Hildebrandt 2002): first halves are left out, at last single calls.
/// @param tries   limit of runs
template <class Fails>
[[nodiscard]] program shrunk(program calls, Fails fails, std::size_t tries = 2'000)
{
  for (std::size_t part = calls.size() / 2; part > 0;) {
    bool is_shorter = false;
    for (std::size_t begin = 0; begin < calls.size() && tries > 0;) {
      program fewer{calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(begin)};
      const std::size_t end = begin + part < calls.size() ? begin + part : calls.size();
      fewer.insert(fewer.end(), calls.begin() + static_cast<std::ptrdiff_t>(end), calls.end());
      --tries;
      if (fails(fewer)) {
        calls = fewer;
        is_shorter = true;
      } else {
        begin += part;
      }
    }
    if (tries == 0) break;
    if (!is_shorter || part > 1) part = part > 1 ? part / 2 : is_shorter ? 1 : 0;
  }
  return calls;
}

/// A test case that runs exactly this program, as C++ text for a test file.
[[nodiscard]] std::string as_test(const setting& wanted, const program& calls, const std::string& difference);

}  // namespace differential
