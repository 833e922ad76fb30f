// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "team.hpp"

#include <cmath>
#include <cstdint>

namespace gpt::cuda {

/// Every body has `count()` indices. Each index writes bytes of its own. A body with a team takes one row at a time.
inline constexpr float norm_epsilon = 1e-5F;

/// y = (x - mean) * rstd * gain + bias for each row (Ba et al. 2016, arXiv 1607.06450); `norm` is {gain, bias}.
///
/// A row is read three times, twice of them from the caches. Statistics are float32, of x as it is stored.
struct norm_forward_kernel {
  const bf16* x;      ///< [rows, width]
  const bf16* norm;   ///< [2, width]
  bf16* y;            ///< [rows, width]
  float* statistics;  ///< [rows, 2]: mean, rstd; null: not wanted
  std::uint32_t rows, width;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t row) const
  {
    const bf16* const from = x + row * width;
    const float share = 1.0F / static_cast<float>(width);
    const float mean = share * team.sum([&](std::uint32_t lane) {
      float sum = 0.0F;
      for (std::uint32_t index = lane * pack; index < width; index += lanes * pack) {
        const eight values = load(from + index);
        for (const float each : values.at) sum += each;
      }
      return sum;
    });
    const float variance = share * team.sum([&](std::uint32_t lane) {
      float sum = 0.0F;
      for (std::uint32_t index = lane * pack; index < width; index += lanes * pack) {
        const eight values = load(from + index);
        for (const float each : values.at) sum = fmaf(each - mean, each - mean, sum);
      }
      return sum;
    });
    const float rstd = 1.0F / sqrtf(variance + norm_epsilon);
    team.each([&](std::uint32_t lane) {
      for (std::uint32_t index = lane * pack; index < width; index += lanes * pack) {
        eight values = load(from + index);
        const eight gain = load(norm + index);
        const eight bias = load(norm + width + index);
        for (std::uint32_t i = 0; i < pack; ++i)
          values.at[i] = fmaf((values.at[i] - mean) * rstd, gain.at[i], bias.at[i]);
        store(y + row * width + index, values);
      }
      if (lane != 0 || statistics == nullptr) return;
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = rstd;
    });
  }
};

/// dx = added + the gradient with respect to x, rounded once. `dx` may be `added`.
struct norm_backward_kernel {
  const bf16* dy;    ///< [rows, width]
  const bf16* x;     ///< [rows, width]
  const bf16* norm;  ///< [2, width]
  const float* statistics;
  const bf16* added;  ///< [rows, width]; null: nothing
  bf16* dx;
  std::uint32_t rows, width;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t row) const
  {
    const std::uint64_t begin = row * width;
    const float mean = statistics[2 * row];
    const float rstd = statistics[2 * row + 1];
    const float share = 1.0F / static_cast<float>(width);
    const float along_one = share * team.sum([&](std::uint32_t lane) {
      float sum = 0.0F;
      for (std::uint32_t index = lane * pack; index < width; index += lanes * pack) {
        const eight slope = load(dy + begin + index);
        const eight gain = load(norm + index);
        for (std::uint32_t i = 0; i < pack; ++i) sum = fmaf(slope.at[i], gain.at[i], sum);
      }
      return sum;
    });
    const float along_x = share * team.sum([&](std::uint32_t lane) {
      float sum = 0.0F;
      for (std::uint32_t index = lane * pack; index < width; index += lanes * pack) {
        const eight slope = load(dy + begin + index);
        const eight gain = load(norm + index);
        const eight values = load(x + begin + index);
        for (std::uint32_t i = 0; i < pack; ++i)
          sum = fmaf(slope.at[i] * gain.at[i], (values.at[i] - mean) * rstd, sum);
      }
      return sum;
    });
    team.each([&](std::uint32_t lane) {
      for (std::uint32_t index = lane * pack; index < width; index += lanes * pack) {
        const eight slope = load(dy + begin + index);
        const eight gain = load(norm + index);
        const eight values = load(x + begin + index);
        eight result = added == nullptr ? eight{} : load(added + begin + index);
        for (std::uint32_t i = 0; i < pack; ++i) {
          const float normed = (values.at[i] - mean) * rstd;
          result.at[i] += rstd * (slope.at[i] * gain.at[i] - along_one - normed * along_x);
        }
        store(dx + begin + index, result);
      }
    });
  }
};

}  // namespace gpt::cuda
