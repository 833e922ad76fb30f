// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace workload {

/// The number of rows that a ratio keeps: the nearest number, at least 1. Trainers and planners use it.
///
///     const std::uint64_t kept = kept_rows(batch * context, 0.3);
/// @pre ratio is in (0, 1]
[[nodiscard]] constexpr std::uint64_t kept_rows(std::uint64_t all, double ratio) noexcept
{
  const auto nearest = static_cast<std::uint64_t>(static_cast<double>(all) * ratio + 0.5);
  return std::clamp<std::uint64_t>(nearest, 1, all);
}

/// By input of the products of a layer: the ratio of the rows that are kept for the gradient of the weight, in all
/// layers alike. 1: all rows are kept, without sampling. A setting of a training: no planner changes it, so no capacity
/// changes a bit.
///
///     const training_setup setup{.micro_batch = 4, .sampled = {.projection = 0.3, .mlp_down = 0.3}};
struct layer_sampling {
  double qkv = 1;         ///< the input of queries, keys and values
  double projection = 1;  ///< results of the heads
  double mlp_up = 1;      ///< the input of the first product of the MLP, and of its gate
  double mlp_down = 1;    ///< the input of the last product of the MLP

  [[nodiscard]] constexpr bool operator==(const layer_sampling&) const noexcept = default;

  [[nodiscard]] constexpr double least() const noexcept { return std::min({qkv, projection, mlp_up, mlp_down}); }
  /// @throws config_error   a ratio is not in (0, 1]
  constexpr void check() const
  {
    for (const auto& [name, ratio] : {std::pair<std::string_view, double>{"qkv", qkv},
                                      {"projection", projection},
                                      {"mlp_up", mlp_up},
                                      {"mlp_down", mlp_down}})
      if (!(ratio > 0) || !(ratio <= 1))
        throw config_error{error_text{} << "chunkmem: the input of " << name << " is sampled at a ratio of " << ratio
                                        << " (give one above 0, and 1 at most)"};
  }
};

}  // namespace workload

}  // namespace chunkmem::inline v0
