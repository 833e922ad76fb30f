// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/separate_gradient.hpp>

#include <conformance/gradient_policy.hpp>
#include <support/catch.hpp>

namespace separate_gradient_test {

using namespace chunkmem;
using gradient::separate;

TEST_CASE("separate gradients keep the laws, wide or not", "[tensor]")
{
  conformance::gradient_policy_laws<separate>();
  conformance::gradient_policy_laws(separate{.wide = true});
}

TEST_CASE("separate gradients have the parameter's type and never its bytes", "[tensor]")
{
  static_assert(separate::name == "separate" && !separate{}.takes_slot() && !separate{.wide = true}.takes_slot());
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16}) CHECK(separate{}.type_for(type) == type);
}

TEST_CASE("wide gradients of 16-bit parameters are singles, and no other type changes", "[tensor]")
{
  constexpr separate wide{.wide = true};
  static_assert(wide.type_for(dtype::bfloat16) == dtype::float32 && wide.type_for(dtype::float16) == dtype::float32);
  for (const dtype type : {dtype::float32, dtype::int32, dtype::int64, dtype::uint8})
    CHECK(wide.type_for(type) == type);
}

}  // namespace separate_gradient_test
