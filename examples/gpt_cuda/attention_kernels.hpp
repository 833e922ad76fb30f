// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "team.hpp"

#include <cmath>
#include <cstdint>

namespace gpt::cuda {

/// The stride between two rows of scores: rows begin at multiples of 16 bytes, whatever the context is.
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint32_t score_stride(std::uint32_t context) noexcept
{
  return (context + pack - 1) / pack * pack;
}

/// Causal softmax of rows of scores: query q sees keys 0 to q; weights of later keys and of padding become 0. Scores
/// past the query are not used.
struct softmax_forward_kernel {
  const float* scores;  ///< [heads, context, stride], scaled
  bf16* weights;        ///< [heads, context, stride]
  std::uint32_t heads, context;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return std::uint64_t{heads} * context; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t row) const
  {
    const std::uint32_t stride = score_stride(context);
    const auto seen = static_cast<std::uint32_t>(row % context) + 1;
    const float* const from = scores + row * stride;
    const float highest = team.highest([&](std::uint32_t lane) {
      float most = -INFINITY;
      for (std::uint32_t index = lane * pack; index < seen; index += lanes * pack) {
        const eight values = load(from + index);
        for (std::uint32_t i = 0; i < pack; ++i)
          if (index + i < seen && most < values.at[i]) most = values.at[i];
      }
      return most;
    });
    const float sum = team.sum([&](std::uint32_t lane) {
      float all = 0.0F;
      for (std::uint32_t index = lane * pack; index < seen; index += lanes * pack) {
        const eight values = load(from + index);
        for (std::uint32_t i = 0; i < pack; ++i)
          if (index + i < seen) all += expf(values.at[i] - highest);
      }
      return all;
    });
    const float share = 1.0F / sum;
    team.each([&](std::uint32_t lane) {
      for (std::uint32_t index = lane * pack; index < stride; index += lanes * pack) {
        eight values{};
        if (index < seen) values = load(from + index);
        for (std::uint32_t i = 0; i < pack; ++i)
          values.at[i] = index + i < seen ? expf(values.at[i] - highest) * share : 0.0F;
        store(weights + row * stride + index, values);
      }
    });
  }
};

/// The gradient of scaled scores, times the scale: d_scores = weights * (d_weights - sum of d_weights * weights) *
/// scale.
struct softmax_backward_kernel {
  const bf16* weights;     ///< [heads, context, stride]
  const float* d_weights;  ///< [heads, context, stride]; past the query not used
  bf16* d_scores;          ///< [heads, context, stride]; 0 past the query
  std::uint32_t heads, context;
  float scale;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return std::uint64_t{heads} * context; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t row) const
  {
    const std::uint32_t stride = score_stride(context);
    const auto seen = static_cast<std::uint32_t>(row % context) + 1;
    const std::uint64_t begin = row * stride;
    const float mean = team.sum([&](std::uint32_t lane) {
      float all = 0.0F;
      for (std::uint32_t index = lane * pack; index < seen; index += lanes * pack) {
        const eight weight = load(weights + begin + index);
        const eight slope = load(d_weights + begin + index);
        for (std::uint32_t i = 0; i < pack; ++i)
          if (index + i < seen) all = fmaf(weight.at[i], slope.at[i], all);
      }
      return all;
    });
    team.each([&](std::uint32_t lane) {
      for (std::uint32_t index = lane * pack; index < stride; index += lanes * pack) {
        eight result{};
        if (index < seen) {
          const eight weight = load(weights + begin + index);
          const eight slope = load(d_weights + begin + index);
          for (std::uint32_t i = 0; i < pack; ++i)
            result.at[i] = index + i < seen ? weight.at[i] * (slope.at[i] - mean) * scale : 0.0F;
        }
        store(d_scores + begin + index, result);
      }
    });
  }
};

}  // namespace gpt::cuda
