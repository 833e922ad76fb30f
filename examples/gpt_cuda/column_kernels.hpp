// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "team.hpp"

#include <cstdint>

namespace gpt::cuda {

/// Rows that one thread sums before a second kernel adds up all slabs: a tree that depends only on the extents.
inline constexpr std::uint32_t slab_rows = 32;

[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint32_t slabs_of(std::uint32_t rows) noexcept
{
  return (rows + slab_rows - 1) / slab_rows;
}

/// sums[slab] = the sum of the slab's rows of dy: a partial sum of the gradient of a bias.
struct slab_sums_kernel {
  const bf16* dy;  ///< [rows, columns]
  float* sums;     ///< [slabs, columns]
  std::uint32_t rows, columns;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return std::uint64_t{slabs_of(rows)} * (columns / pack);
  }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    const std::uint64_t slab = index / (columns / pack);
    const std::uint64_t column = index % (columns / pack) * pack;
    const std::uint64_t end = (slab + 1) * slab_rows < rows ? (slab + 1) * slab_rows : rows;
    eight sum{};
    for (std::uint64_t row = slab * slab_rows; row < end; ++row) sum = sum + load(dy + row * columns + column);
    store(sums + slab * columns + column, sum);
  }
};

/// The same for {gain, bias} of a norm: sums[slab] = {sum of dy * normed x, sum of dy}.
struct norm_slab_sums_kernel {
  const bf16* dy;  ///< [rows, width]
  const bf16* x;   ///< [rows, width]
  const float* statistics;
  float* sums;  ///< [slabs, 2, width]
  std::uint32_t rows, width;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return std::uint64_t{slabs_of(rows)} * (width / pack);
  }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    const std::uint64_t slab = index / (width / pack);
    const std::uint64_t column = index % (width / pack) * pack;
    const std::uint64_t end = (slab + 1) * slab_rows < rows ? (slab + 1) * slab_rows : rows;
    eight gain{};
    eight bias{};
    for (std::uint64_t row = slab * slab_rows; row < end; ++row) {
      const eight slope = load(dy + row * width + column);
      const eight values = load(x + row * width + column);
      const float mean = statistics[2 * row];
      const float rstd = statistics[2 * row + 1];
      for (std::uint32_t i = 0; i < pack; ++i) {
        gain.at[i] += slope.at[i] * ((values.at[i] - mean) * rstd);
        bias.at[i] += slope.at[i];
      }
    }
    store(sums + slab * 2 * width + column, gain);
    store(sums + slab * 2 * width + width + column, bias);
  }
};

/// gradient = beta * gradient + the sum over the slabs, rounded once. beta is 0 or 1, and 0 reads nothing.
struct slab_total_kernel {
  const float* sums;  ///< [slabs, columns]
  bf16* gradient;     ///< [columns]
  std::uint32_t slabs, columns;
  float beta;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return columns / pack; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t index) const
  {
    const eight total = team.sum([&](std::uint32_t lane) {
      eight sum{};
      for (std::uint64_t slab = lane; slab < slabs; slab += lanes)
        sum = sum + load(sums + slab * columns + index * pack);
      return sum;
    });
    team.each([&](std::uint32_t lane) {
      bf16* const to = gradient + index * pack;
      if (lane == 0) store(to, beta != 0.0F ? load(to) + total : total);
    });
  }
};

}  // namespace gpt::cuda
