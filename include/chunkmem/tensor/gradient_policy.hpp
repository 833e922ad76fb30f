// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// Decides what a gradient is made of and where it lies.
///
/// Laws: `type_for(parameter)` is `parameter` or `float32`; where `takes_slot()`, it is `parameter`. Answers depend on
/// the arguments alone.
template <class Gradient>
concept gradient_policy = names_itself<Gradient> && std::same_as<typename Gradient::policy_kind, gradient_kind> &&
                          requires(const Gradient gradient, dtype parameter) {
                            {
                              gradient.type_for(parameter)
                            } -> std::same_as<dtype>;
                            {
                              gradient.takes_slot()
                            } -> std::same_as<bool>;
                          };

}  // namespace chunkmem::inline v0
