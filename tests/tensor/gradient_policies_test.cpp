// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/gradient_policies.hpp>

#include <conformance/gradient_policy.hpp>
#include <support/catch.hpp>

#include <string_view>
#include <type_traits>

namespace gradient_policy_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else: bf16 gradients are wide, fp16 ones are not.
struct wide_brains {
  using policy_kind = gradient_kind;
  static constexpr std::string_view name = "wide_brains";
  dtype type_for(dtype parameter) const { return parameter == dtype::bfloat16 ? dtype::float32 : parameter; }
  bool takes_slot() const { return false; }
};
static_assert(gradient_policy<wide_brains>);

struct without_type : wide_brains {
  dtype type_for(dtype) const = delete;
};
struct without_answer : wide_brains {
  bool takes_slot() const = delete;
};
struct that_changes : wide_brains {
  dtype type_for(dtype parameter) { return parameter; }
};
struct of_another_kind : wide_brains {
  using policy_kind = layout_kind;
};
struct with_a_number : wide_brains {
  int takes_slot() const { return 0; }
};
static_assert(!gradient_policy<without_type> && !gradient_policy<without_answer> && !gradient_policy<that_changes>);
static_assert(!gradient_policy<of_another_kind> && !gradient_policy<with_a_number> && !gradient_policy<int>);

}  // namespace

TEST_CASE("a gradient policy of one's own may choose by the type", "[tensor]")
{
  conformance::gradient_policy_laws<wide_brains>();
}

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

using gradient::in_place;

TEST_CASE("gradients in place keep the laws: they have the type of the bytes that they take", "[tensor]")
{
  static_assert(in_place::name == "in_place" && in_place{}.takes_slot() && std::is_empty_v<in_place>);
  conformance::gradient_policy_laws<in_place>();
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16}) CHECK(in_place{}.type_for(type) == type);
}

}  // namespace gradient_policy_test
