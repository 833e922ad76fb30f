// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/in_place_gradient.hpp>

#include <conformance/gradient_policy.hpp>
#include <support/catch.hpp>

#include <type_traits>

namespace in_place_gradient_test {

using namespace chunkmem;
using gradient::in_place;

TEST_CASE("gradients in place keep the laws: they have the type of the bytes that they take", "[tensor]")
{
  static_assert(in_place::name == "in_place" && in_place{}.takes_slot() && std::is_empty_v<in_place>);
  conformance::gradient_policy_laws<in_place>();
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16}) CHECK(in_place{}.type_for(type) == type);
}

}  // namespace in_place_gradient_test
