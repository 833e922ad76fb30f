// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/gradient_policies.hpp>
#include <conformance/trials.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace conformance {

/// One trial of the laws of gradient_policy, for one type of parameter: a gradient is of the parameter's type or
/// float32, and of the parameter's where it takes its slot. Answers depend on the arguments alone, whatever was asked
/// in between.
template <chunkmem::gradient_policy Gradient>
[[nodiscard]] std::string mistake_in_gradients(const Gradient& gradient, std::uint64_t number)
{
  using chunkmem::dtype;
  if (std::string_view{Gradient::name}.empty()) return "a policy without a name";
  constexpr dtype parameters[] = {dtype::float32, dtype::bfloat16, dtype::float16};
  const dtype parameter = parameters[(number - 1) % 3];
  const auto said = [&](const char* law) { return std::string{law} + ": " + std::string{name_of(parameter)}; };
  const Gradient one = gradient;
  const Gradient other = gradient;
  const bool takes_slot = one.takes_slot();
  const dtype type = one.type_for(parameter);
  if (type != parameter && type != dtype::float32)
    return said("a gradient is neither of the parameter's type nor float32");
  if (takes_slot && type != parameter)
    return said("a gradient that takes a slot is of another type than its parameter");
  for (const dtype first : {dtype::float16, dtype::bfloat16, dtype::float32}) (void)other.type_for(first);
  if (one.type_for(parameter) != type || other.type_for(parameter) != type)
    return said("the same parameter got two types");
  if (one.takes_slot() != takes_slot || other.takes_slot() != takes_slot)
    return said("the policy takes slots and does not");
  if (gradient.type_for(parameter) != type || gradient.takes_slot() != takes_slot)
    return said("a copy gives another answer");
  return {};
}

inline constexpr std::uint64_t gradient_trials = 6;  // every type twice

/// The broken law of gradient_policy; empty: none.
template <chunkmem::gradient_policy Gradient>
[[nodiscard]] std::string mistake_in_gradient_policy(const Gradient& gradient = {})
{
  return first_mistake(gradient_trials, [&](std::uint64_t number) { return mistake_in_gradients(gradient, number); });
}

/// The laws of gradient_policy.
template <chunkmem::gradient_policy Gradient>
void gradient_policy_laws(const Gradient& gradient = {})
{
  require_trials(gradient_trials, [&](std::uint64_t number) { return mistake_in_gradients(gradient, number); });
}

}  // namespace conformance
