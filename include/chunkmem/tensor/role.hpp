// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// What a tensor is for. Placement looks at it, and an optimizer updates parameters only.
enum class role : std::uint8_t {
  parameter,        ///< trained: has a gradient and the lists of the optimizer
  gradient,         ///< made by the manager, one for each parameter
  optimizer_state,  ///< made by the manager, one for each parameter and list
  buffer,           ///< saved, never optimised: running statistics, tables
  activation,       ///< lives from a forward pass to its backward pass
  frozen,           ///< a weight that is not trained: no gradient, no states
  /// made whole on the device from the shares of all ranks; on the host there is a share alone, elsewhere
  gathered,
};

inline constexpr std::size_t role_count = 7;

[[nodiscard]] constexpr std::string_view name_of(role part) noexcept
{
  constexpr std::string_view names[role_count] = {"parameter",  "gradient", "optimizer_state", "buffer",
                                                  "activation", "frozen",   "gathered"};
  return names[static_cast<std::size_t>(part)];
}

}  // namespace chunkmem::inline v0
