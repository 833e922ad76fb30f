// SPDX-License-Identifier: Apache-2.0
#pragma once

// Catch2 version 3 where it is installed, else Debian 12's 2.13. Tests use the names of version 3.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#else
#include <catch2/catch.hpp>

#include <iostream>
#include <sstream>

namespace Catch {
using Detail::Approx;
}
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& text)
{
  return Contains(text);
}
}  // namespace Catch::Matchers

namespace support {
/// Cases that called SKIP so far; the main program compares it with the cases that ran.
inline int& skipped_cases()
{
  static int count = 0;
  return count;
}

inline void note_skipped(const std::string& reason)
{
  ++skipped_cases();
  std::cout << "SKIPPED: " << reason << '\n';
}
}  // namespace support

/// Ends the case as skipped, with a reason that may be streamed: `SKIP("no GPU: " << text)`.
#define SKIP(...)                                                                         \
  do {                                                                                    \
    support::note_skipped((std::ostringstream{} << "" __VA_OPT__(<<) __VA_ARGS__).str()); \
    return;                                                                               \
  } while (false)
#endif
