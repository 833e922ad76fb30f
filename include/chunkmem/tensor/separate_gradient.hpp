// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/gradient_policy.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

namespace gradient {

/// A gradient has bytes of its own, beside its weight: weights can be read between backward and step, and gradients of
/// several micro-batches add up. 16 B for each 16-bit parameter with Adam and a master.
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

}  // namespace gradient

}  // namespace chunkmem::inline v0
