// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/mixed_model.hpp>
#include <support/oracles/plain_updates.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

/// Rounding, clipping, loss scale and optimizers once more, in plain scalar code: the oracle of mixed-precision tests.
///
/// Written from the formulas and not from the library's code; slow on purpose.
namespace support::mixed {

/// The nearest number of that precision, as a float; ties to even, overflow to infinity.
[[nodiscard]] inline float rounded_to(precision kind, float value) noexcept
{
  if (kind == precision::fp32 || !std::isfinite(value) || value == 0.0F) return value;
  const int digits = kind == precision::bf16 ? 8 : 11;
  const int least = kind == precision::bf16 ? -126 : -14;
  const int most = kind == precision::bf16 ? 127 : 15;
  const int unit = std::max(std::ilogb(value), least) - (digits - 1);
  const double nearest = std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(value), -unit)), unit);
  if (std::fabs(nearest) >= std::ldexp(1.0, most + 1)) return std::copysign(INFINITY, value);
  return static_cast<float>(nearest);
}

/// The bits of a number that has that precision.
[[nodiscard]] inline std::uint16_t bits_of(precision kind, float value) noexcept
{
  if (kind == precision::bf16) return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
  const double size = std::fabs(static_cast<double>(value));
  if (std::isinf(size)) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (size < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(size * 0x1p24));
  const int exponent = std::ilogb(size);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(size, 10 - exponent) - 1024.0);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>((exponent + 15) << 10) | fraction);
}

/// Floats stored in a precision: a view for the kernels of mixed_model.
struct rounded {
  float* data;
  precision kind;
  [[nodiscard]] float get(std::uint64_t index) const noexcept { return data[index]; }
  void set(std::uint64_t index, float value) const noexcept { data[index] = rounded_to(kind, value); }
};

using oracle::without_denormals;

enum class norm_kind : std::uint8_t { l1, l2, linf };

/// Limits on gradients; 0 is none.
struct limits {
  float norm = 0;
  norm_kind kind = norm_kind::l2;
  float value = 0;
};

/// Sums over gradients in the order that the library's numerics promise.
struct plain_measure {
  double squares = 0;
  double magnitudes = 0;
  double largest = 0;
  bool finite = true;

  /// Blocks of 4096 in order; in a block 32 lanes, folded in halves; blocks are added up for each tensor by itself.
  void add_tensor(std::span<const float> values)
  {
    double squares_here = 0;
    double magnitudes_here = 0;
    for (std::size_t begin = 0; begin < values.size(); begin += 4096) {
      const auto block = values.subspan(begin, std::min<std::size_t>(4096, values.size() - begin));
      squares_here += sum_in_lanes(block, true);
      magnitudes_here += sum_in_lanes(block, false);
    }
    squares += squares_here;
    magnitudes += magnitudes_here;
    for (const float value : values) {
      finite = finite && std::isfinite(value);
      largest = std::max(largest, std::fabs(static_cast<double>(without_denormals(value))));
    }
  }
  [[nodiscard]] double norm(norm_kind kind) const noexcept
  {
    if (kind == norm_kind::l1) return magnitudes;
    return kind == norm_kind::l2 ? std::sqrt(squares) : largest;
  }

 private:
  [[nodiscard]] static double sum_in_lanes(std::span<const float> block, bool squared)
  {
    double lanes[32] = {};
    for (std::size_t index = 0; index < block.size(); ++index) {
      const double value = std::fabs(static_cast<double>(without_denormals(block[index])));
      lanes[index % 32] += squared ? value * value : value;  // the product is exact: nothing to contract
    }
    for (std::size_t half = 16; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
  }
};

/// A loss scale that halves on overflow and doubles after some good steps in a row. 1 for ever where window is 0.
struct plain_scale {
  float scale = 1;
  std::uint32_t window = 0;
  std::uint32_t good = 0;

  void after(bool updated) noexcept
  {
    if (window == 0) return;
    if (!updated) {
      good = 0;
      scale = std::max(scale * 0.5F, 1.0F);
    } else if (++good == window) {
      good = 0;
      scale = std::min(scale * 2.0F, 16777216.0F);
    }
  }
};

enum class rule : std::uint8_t { adam, sgd };

/// Settings of one group of parameters.
struct plain_settings {
  float rate_factor = 1;
  float weight_decay = 0;
  float momentum = 0.9F;  ///< of SGD
};

/// One update of one parameter in single precision.
inline void plain_update(rule which, const plain_settings& with, float learning_rate, std::uint64_t number,
                         std::span<float> parameter, std::span<const float> gradient, std::span<float> first,
                         std::span<float> second)
{
  if (which == rule::sgd) {
    const oracle::sgd_step step{{with.momentum, with.weight_decay, 0.0F, false, with.rate_factor}, learning_rate};
    for (std::size_t index = 0; index < parameter.size(); ++index)
      step.update(parameter[index], gradient[index], first[index]);
    return;
  }
  const oracle::adam_step step{
      {.weight_decay = with.weight_decay, .rate_factor = with.rate_factor}, learning_rate, number};
  for (std::size_t index = 0; index < parameter.size(); ++index)
    step.update(parameter[index], gradient[index], first[index], second[index]);
}

}  // namespace support::mixed
