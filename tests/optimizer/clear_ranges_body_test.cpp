// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/clear_ranges_body.hpp>

#include <chunkmem/optimizer/loop_launcher.hpp>
#include <support/catch.hpp>

namespace clear_ranges_body_test {

using namespace chunkmem::optimizer;

TEST_CASE("ranges are cleared, as many as there are tensors", "[optimizer]")
{
  block_range ranges[3] = {{1, 2}, {3, 4}, {5, 6}};
  loop_launcher::run(clear_ranges_body{ranges, 2});
  CHECK((ranges[0].count == 0 && ranges[1].count == 0 && ranges[2].count == 6));
}

}  // namespace clear_ranges_body_test
