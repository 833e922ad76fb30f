// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/strict_fp_compare.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Which norm of all gradients together: the sum of magnitudes, the root of the sum of squares, the largest magnitude.
enum class norm_order : std::uint8_t { l1, l2, linf };

/// How large gradients may be. First all are made smaller by one factor, then each value is brought between its limits.
///
///     step(m, adam, {.clip = {.norm = 1.0F}});
struct clipping {
  float norm = 0.0F;  ///< the most that the norm may be; 0: any
  norm_order order = norm_order::l2;
  float value = 0.0F;  ///< the most that a magnitude may be; 0: any

  [[nodiscard]] constexpr bool operator==(const clipping&) const noexcept = default;
};

/// @throws usage_error   a limit is negative or no number
constexpr void check(const clipping& clip)
{
  expects(clip.norm >= 0.0F, "a norm to clip gradients to that is negative or no number (0 switches it off)");
  expects(clip.value >= 0.0F, "a value to clip gradients to that is negative or no number (0 switches it off)");
}

/// The norm of what was measured; infinite where a value is infinite or no number.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline double norm_of(const gradient_measure& all, norm_order order) noexcept
{
  if (order == norm_order::l1) return all.magnitudes;
  if (order == norm_order::linf) return strict_fp::to_double(all.largest);
  return strict_fp::root(all.squares);
}

/// What gradients are multiplied with so that their norm is at most `limit`: min(1, limit / (norm + 10^-6)).
///
/// The small number keeps a norm of zero from a division by zero, and the clipped norm a little below the limit.
/// Source: `clip_grad_norm_` of PyTorch, whose formula this is.
/// @pre   the norm is finite and the limit positive
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr float clip_factor(double norm, float limit) noexcept
{
  const double factor = strict_fp::constant_quotient(strict_fp::to_double(limit), strict_fp::constant_sum(norm, 1e-6));
  return factor < 1.0 ? strict_fp::constant_single(factor) : 1.0F;
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
