// SPDX-License-Identifier: Apache-2.0
#include <support/catch.hpp>

namespace main_program_test {

// Hidden: tests/parts/status.sh runs each alone and looks at the status of the program.

TEST_CASE("four checks fail", "[core][.four_failures]")
{
  for (int number = 0; number < 4; ++number) CHECK(number < 0);
}

TEST_CASE("every case that runs is skipped", "[core][.skipped]")
{
  SKIP("it is meant to be");
}

}  // namespace main_program_test
