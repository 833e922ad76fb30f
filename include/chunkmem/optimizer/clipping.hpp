// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/strict_fp_compare.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/half.hpp>

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

/// The norm of what was measured; infinite where a value is infinite, NaN where one is no number.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline double norm_of(const gradient_measure& all, norm_order order) noexcept
{
  if (bits_as<std::uint32_t>(all.largest) > chunkmem::detail::infinity_bits)
    return bits_as<double>(std::uint64_t{0x7ff8000000000000U});
  if (order == norm_order::l1) return all.magnitudes;
  if (order == norm_order::linf) return strict_fp::to_double(all.largest);
  return strict_fp::root(all.squares);
}

/// What gradients are multiplied with so that their norm is at most `limit`: min(1, limit / (norm + 10^-6)).
///
/// The small number keeps a norm of zero from a division by zero, and the clipped norm a little below the limit. An
/// infinite norm gives 0, and one that is NaN gives NaN.
/// Source: `clip_grad_norm_` of PyTorch, whose formula this is, for all norms.
/// @pre   the limit is positive
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr float clip_factor(double norm, float limit) noexcept
{
  const double factor = strict_fp::constant_quotient(strict_fp::to_double(limit), strict_fp::constant_sum(norm, 1e-6));
  if (factor >= 1.0) return 1.0F;
  return factor < 1.0 ? strict_fp::constant_single(factor) : bits_as<float>(std::uint32_t{chunkmem::detail::nan_bits});
}

namespace detail {

/// What follows from the measure of all gradients.
struct judged_gradients {
  double norm = 0.0;      ///< unscaled, before clipping
  float factor = 1.0F;    ///< multiplies each gradient: the clipping by norm, divided by the loss scale
  bool is_finite = true;  ///< all gradients are, before and after
};

/// @param scale   of the loss
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline judged_gradients judge(const gradient_measure& all, const clipping& clip,
                                                                 float scale) noexcept
{
  const double divisor = strict_fp::to_double(scale);
  judged_gradients it;
  it.norm = norm_of(all, clip.order);
  if (it.norm == it.norm) it.norm = strict_fp::quotient(it.norm, divisor);  // NaN keeps its bits everywhere
  const float clipped = strict_fp::is_less(0.0F, clip.norm) ? clip_factor(it.norm, clip.norm) : 1.0F;
  it.factor = clipped;
  if (!(bits_as<std::uint32_t>(clipped) > chunkmem::detail::infinity_bits))
    it.factor = strict_fp::to_single(strict_fp::quotient(strict_fp::to_double(clipped), divisor));
  const float most = strict_fp::product(all.largest, it.factor);
  it.is_finite = all.finite && bits_as<std::uint32_t>(most) < chunkmem::detail::infinity_bits;
  return it;
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
