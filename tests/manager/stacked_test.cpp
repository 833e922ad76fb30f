// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/registry.hpp>

#include <support/catch.hpp>

namespace stacked_test {

using namespace chunkmem;

TEST_CASE("a slice of a stack is the tensor of that layer", "[manager]")
{
  constexpr stacked<bf16> layers{{{tensor_id{5}, 77}}, 3};
  static_assert(layers.slice(0) == layers.first);
  CHECK(layers.slice(2) == tensor<bf16>{{tensor_id{7}, 77}});
  CHECK_THROWS_AS(layers.slice(3), usage_error);
  CHECK_THROWS_AS(layers.slice(UINT32_MAX), usage_error);
  CHECK_THROWS_AS(stacked<float>{}.slice(0), usage_error);
}

}  // namespace stacked_test
