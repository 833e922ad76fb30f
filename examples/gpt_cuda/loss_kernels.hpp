// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "token_kernels.hpp"

#include <cmath>
#include <cstdint>

namespace gpt::cuda {

/// losses[row] = -log softmax(logits)[target], and the logits' gradient times `scale`, rounded once.
struct cross_entropy_kernel {
  token_windows text;
  const float* logits;  ///< [rows, vocabulary]
  bf16* d_logits;       ///< [rows, vocabulary]; null: not wanted
  float* losses;        ///< [rows]
  float scale;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return text.rows(); }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t row) const
  {
    static_assert(vocabulary == lanes * pack, "a lane has one load of logits");
    const float* const from = logits + row * vocabulary;
    const float highest = team.highest([&](std::uint32_t lane) {
      const eight values = load(from + lane * pack);
      float most = values.at[0];
      for (const float each : values.at) most = most < each ? each : most;
      return most;
    });
    const float sum = team.sum([&](std::uint32_t lane) {
      const eight values = load(from + lane * pack);
      float all = 0.0F;
      for (const float each : values.at) all += expf(each - highest);
      return all;
    });
    const std::uint32_t target = text.target(row);
    team.each([&](std::uint32_t lane) {
      if (lane == 0) losses[row] = logf(sum) + highest - from[target];
      if (d_logits == nullptr) return;
      eight values = load(from + lane * pack);
      for (std::uint32_t i = 0; i < pack; ++i) {
        const float probability = expf(values.at[i] - highest) / sum;
        values.at[i] = scale * (probability - (lane * pack + i == target ? 1.0F : 0.0F));
      }
      store(d_logits + row * vocabulary + lane * pack, values);
    });
  }
};

/// total = the sum of the losses, in float64 and a fixed order.
struct loss_total_kernel {
  const float* losses;
  double* total;
  std::uint32_t rows;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t) const
  {
    const double sum = team.sum([&](std::uint32_t lane) {
      double all = 0.0;
      for (std::uint32_t row = lane; row < rows; row += lanes) all += static_cast<double>(losses[row]);
      return all;
    });
    team.each([&](std::uint32_t lane) {
      if (lane == 0) *total = sum;
    });
  }
};

}  // namespace gpt::cuda
