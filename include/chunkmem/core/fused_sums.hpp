// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace chunkmem::inline v0 {

namespace detail {

[[gnu::always_inline]] inline double sum_of_products(std::span<const double> left,
                                                     std::span<const double> right) noexcept
{
  std::array<double, 4> sums{};  // so that one sum does not wait for the other
  const std::size_t whole = left.size() / 4 * 4;
  for (std::size_t index = 0; index < whole; index += 4)
    for (std::size_t lane = 0; lane < 4; ++lane)
      sums[lane] = __builtin_fma(left[index + lane], right[index + lane], sums[lane]);
  for (std::size_t index = whole; index < left.size(); ++index)
    sums[0] = __builtin_fma(left[index], right[index], sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

[[gnu::always_inline]] inline void add_products(std::span<double> to, double factor,
                                                std::span<const double> from) noexcept
{
  for (std::size_t index = 0; index < to.size(); ++index) to[index] = __builtin_fma(factor, from[index], to[index]);
}

#if defined(__x86_64__)

[[nodiscard]] inline bool has_fma() noexcept
{
  __builtin_cpu_init();
  return __builtin_cpu_supports("fma") != 0;
}
[[gnu::target("fma")]] inline double sum_of_products_by_instructions(std::span<const double> left,
                                                                     std::span<const double> right) noexcept
{
  return sum_of_products(left, right);
}
[[gnu::target("fma")]] inline void add_products_by_instructions(std::span<double> to, double factor,
                                                                std::span<const double> from) noexcept
{
  add_products(to, factor, from);
}

#endif

}  // namespace detail

/// The sum of `left[i] * right[i]`, each product added with one rounding.
///
///     const double length = fused_product(way, way);
///
/// The bits are those of std::fma on each processor and with all flags: programs that sum alike decide alike. A
/// processor of x86-64 that has the instruction takes it, also in programs that are compiled for older ones: there a
/// call of the mathematical library stands for each number otherwise.
/// @pre `left` and `right` have the same size. Cost: O(numbers)
[[nodiscard]] inline double fused_product(std::span<const double> left, std::span<const double> right) noexcept
{
#if defined(__x86_64__)
  if (detail::has_fma()) [[likely]]
    return detail::sum_of_products_by_instructions(left, right);
#endif
  return detail::sum_of_products(left, right);
}

/// Adds `factor * from[i]` to `to[i]`, each with one rounding, as fused_product does.
///
///     fused_add(way, -0.5, bend);
///
/// @pre `to` and `from` have the same size and do not overlap. Cost: O(numbers)
inline void fused_add(std::span<double> to, double factor, std::span<const double> from) noexcept
{
#if defined(__x86_64__)
  if (detail::has_fma()) [[likely]]
    return detail::add_products_by_instructions(to, factor, from);
#endif
  detail::add_products(to, factor, from);
}

}  // namespace chunkmem::inline v0
