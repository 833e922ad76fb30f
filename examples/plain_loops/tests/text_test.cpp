// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <support/catch.hpp>

namespace text_test {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a text that cannot be read is named, and is not taken for an empty one", "[plain_loops]")
{
  CHECK_THROWS_WITH(plain_loops::read_text("/nowhere/at/all.txt", 10),
                    ContainsSubstring("/nowhere/at/all.txt cannot be read") && ContainsSubstring("--text"));
}

}  // namespace text_test
