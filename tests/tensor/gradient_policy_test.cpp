// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/gradient_policy.hpp>

#include <conformance/gradient_policy.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace gradient_policy_test {

using namespace chunkmem;

namespace {

/// No more than the concept asks for: bf16 gradients are wide, fp16 ones are not.
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

}  // namespace gradient_policy_test
