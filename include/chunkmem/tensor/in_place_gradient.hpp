// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/gradient_policy.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

namespace gradient {

/// The gradient of a 16-bit parameter with a master takes the weight's bytes: 14 B for each parameter with Adam.
///
///     manager<backend::host_arena, gradient::in_place> m{memory};
///
/// Only for weights that a rehearsal or a recorded iteration saw read for the last time before their gradient came;
/// tied weights and all others keep a gradient of their own, as do 32-bit parameters. Between backward and step such a
/// weight cannot be read; a step that is skipped makes it again from its master, with the same bits. One micro-batch
/// only. Source: PatrickStar (Fang et al. 2021, arXiv 2108.05818).
struct in_place {
  using policy_kind = gradient_kind;
  static constexpr std::string_view name = "in_place";

  [[nodiscard]] constexpr dtype type_for(dtype parameter) const noexcept { return parameter; }
  [[nodiscard]] constexpr bool takes_slot() const noexcept { return true; }
};

static_assert(gradient_policy<in_place>);

}  // namespace gradient

}  // namespace chunkmem::inline v0
