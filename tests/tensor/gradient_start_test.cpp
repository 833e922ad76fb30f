// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/gradient_start.hpp>

#include <support/catch.hpp>

namespace gradient_start_test {

using namespace chunkmem;

TEST_CASE("a gradient starts undefined unless zeros are asked for", "[tensor]")
{
  STATIC_REQUIRE(gradient_start{} == gradient_start::undefined);
  STATIC_REQUIRE(gradient_start{} != gradient_start::zeros);
}

}  // namespace gradient_start_test
