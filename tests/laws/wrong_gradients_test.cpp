// SPDX-License-Identifier: Apache-2.0
#include <conformance/gradient_policy.hpp>

#include "verdict.hpp"

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace wrong_gradients_test {

using namespace chunkmem;

namespace {

/// Right: a gradient is of its parameter's type, in bytes of its own. Each policy below has one mistake.
struct alike {
  using policy_kind = gradient_kind;
  static constexpr std::string_view name = "alike";
  dtype type_for(dtype parameter) const { return parameter; }
  bool takes_slot() const { return false; }
};

/// Takes all types of 16 bits for one.
struct takes_16_bits_for_fp16 : alike {
  dtype type_for(dtype parameter) const { return size_of(parameter) == 2 ? dtype::float16 : parameter; }
};
/// Saves half of the bytes of a gradient whose parameter is wide.
struct narrows_float32 : alike {
  dtype type_for(dtype parameter) const { return parameter == dtype::float32 ? dtype::bfloat16 : parameter; }
};
/// Compresses gradients to bytes.
struct quantizes : alike {
  dtype type_for(dtype) const { return dtype::uint8; }
};
/// Wants the precision of float32 and the memory of the slot.
struct is_wide_in_place : alike {
  dtype type_for(dtype) const { return dtype::float32; }
  bool takes_slot() const { return true; }
};
/// Asks for fp16 alone whether the slot is wide enough.
struct is_wide_in_place_for_bf16 : alike {
  dtype type_for(dtype parameter) const { return parameter == dtype::bfloat16 ? dtype::float32 : parameter; }
  bool takes_slot() const { return true; }
};
/// Decides by the first parameter for all.
struct remembers_the_first_type : alike {
  dtype type_for(dtype parameter) const
  {
    if (!is_known_) first_ = parameter;
    is_known_ = true;
    return first_;
  }
  mutable bool is_known_ = false;
  mutable dtype first_ = dtype::float32;
};
/// Widens what is asked for again, as if it were another micro-batch.
struct widens_later : alike {
  dtype type_for(dtype parameter) const { return ++asked_ > 3 ? dtype::float32 : parameter; }
  mutable int asked_ = 0;
};
/// Takes every second slot.
struct takes_turns : alike {
  bool takes_slot() const { return takes_next_ = !takes_next_; }
  mutable bool takes_next_ = false;
};
/// A copy begins with the default setting.
struct copies_no_setting : alike {
  copies_no_setting() = default;
  explicit copies_no_setting(bool of_user) : is_wide{of_user} {}
  copies_no_setting(const copies_no_setting&) : copies_no_setting{} {}
  dtype type_for(dtype parameter) const { return is_wide ? dtype::float32 : parameter; }
  bool is_wide = false;
};
/// Refuses parameters that it was not written for.
struct refuses_float32 : alike {
  dtype type_for(dtype parameter) const
  {
    if (parameter == dtype::float32) throw usage_error{"gradients of 16 bits only"};
    return parameter;
  }
};

template <class Policy>
laws::verdict judge(std::string_view law, const Policy& policy = {})
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_gradient_policy(policy)};
}

}  // namespace

TEST_CASE("the laws of gradients hold for gradients like their parameters", "[laws][gradient]")
{
  conformance::gradient_policy_laws<alike>();
}

}  // namespace wrong_gradients_test

const laws::verdicts& laws::wrong_gradients()
{
  using namespace wrong_gradients_test;
  static const verdicts all{
      judge<takes_16_bits_for_fp16>("a gradient is neither of the parameter's type nor float32"),
      judge<narrows_float32>("a gradient is neither of the parameter's type nor float32"),
      judge<quantizes>("a gradient is neither of the parameter's type nor float32"),
      judge<is_wide_in_place>("a gradient that takes a slot is of another type than its parameter"),
      judge<is_wide_in_place_for_bf16>("a gradient that takes a slot is of another type than its parameter"),
      judge<remembers_the_first_type>("the same parameter got two types"),
      judge<widens_later>("the same parameter got two types"),
      judge<takes_turns>("the policy takes slots and does not"),
      judge("a copy gives another answer", copies_no_setting{true}),
      judge<refuses_float32>("a call threw what no law lets it throw"),
  };
  return all;
}
