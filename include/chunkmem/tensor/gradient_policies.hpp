// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Decides the element type of gradients and their place.
///
/// Laws: `type_for(parameter)` is `parameter` or `float32`; where `takes_slot()`, it is `parameter`. Results depend on
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

/// The bytes of a gradient at its first write of a step.
enum class gradient_start : std::uint8_t {
  undefined,  ///< undefined: beta() is 0, and every element has to be overwritten. Costs nothing
  /// zeros, filled by the agent that writes it: beta() is 1, and elements without a contribution count as 0. For
  /// embeddings
  zeros,
};

namespace gradient {

/// A gradient has bytes of its own: weights can be read between backward and step, and gradients of several
/// micro-batches add up. 16 B for each 16-bit parameter with Adam and a master.
///
///     manager<backend::host_arena, gradient::separate> m{memory, {}, gradient::separate{.wide = true}};
struct separate {
  using policy_kind = gradient_kind;
  static constexpr std::string_view name = "separate";

  /// gradients of 16-bit parameters are float32: sums over many micro-batches lose nothing; 2 B more
  bool wide = false;

  [[nodiscard]] constexpr dtype type_for(dtype parameter) const noexcept
  {
    return wide && (parameter == dtype::bfloat16 || parameter == dtype::float16) ? dtype::float32 : parameter;
  }
  [[nodiscard]] constexpr bool takes_slot() const noexcept { return false; }
};

static_assert(gradient_policy<separate>);

/// The gradient of a 16-bit parameter with a master takes the weight's bytes: 14 B for each parameter with Adam.
///
///     manager<backend::host_arena, gradient::in_place> m{memory};
///
/// Only for weights whose last read came before their gradient in a rehearsal or a recorded iteration; tied weights and
/// all others keep a gradient of their own, as do 32-bit parameters. Between backward and step such a weight cannot be
/// read; a skipped step makes it again from its master, with the same bits. One micro-batch only, on one rank. Over
/// ranks (sharded_model) the sum of a unit takes the bytes of this rank's share; micro-batches add up, except with
/// `zero_3`. Source: PatrickStar (Fang et al. 2021, arXiv 2108.05818).
struct in_place {
  using policy_kind = gradient_kind;
  static constexpr std::string_view name = "in_place";

  [[nodiscard]] constexpr dtype type_for(dtype parameter) const noexcept { return parameter; }
  [[nodiscard]] constexpr bool takes_slot() const noexcept { return true; }
};

static_assert(gradient_policy<in_place>);

/// One gradient policy out of a list, chosen at run time: `any_gradient<separate, in_place>{"in_place"}`.
///
/// One type of manager then serves all of the list. Good and poor as policy_choice. Cost: one indirect call for each
/// question of a manager.
template <gradient_policy... Policies>
class any_gradient : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_gradient";
  using policy_choice<Policies...>::policy_choice;

  [[nodiscard]] dtype type_for(dtype parameter) const
  {
    return this->ask([&](const auto& chosen) { return chosen.type_for(parameter); });
  }
  [[nodiscard]] bool takes_slot() const
  {
    return this->ask([](const auto& chosen) { return chosen.takes_slot(); });
  }
};

}  // namespace gradient

}  // namespace chunkmem::inline v0
