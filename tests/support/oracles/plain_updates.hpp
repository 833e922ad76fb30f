// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// The updates of docs/numerics.md, versions 2 and 3, element by element in plain code. Written from the page: no
/// header of the library is included. Volatile prevents contraction by any compiler.
namespace support::oracle {

/// `value`, or +0 if its magnitude is below `least`.
[[nodiscard]] inline float cut(float value, float least) noexcept
{
  return std::fabs(value) < least ? 0.0F : value;
}
[[nodiscard]] inline float with_one_nan(float value) noexcept
{
  return std::isnan(value) ? std::bit_cast<float>(0x7fc00000U) : value;
}
[[nodiscard]] inline float without_denormals(float value) noexcept
{
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}
[[nodiscard]] inline float product(float left, float right) noexcept
{
  const volatile float result = left * right;
  return result;
}
[[nodiscard]] inline float quotient(float over, float under) noexcept
{
  const volatile float result = over / under;
  return result;
}
[[nodiscard]] inline float sum(float left, float right) noexcept
{
  const volatile float result = left + right;
  return result;
}
/// By squaring, from the lowest bit of the exponent up.
[[nodiscard]] inline double power(double base, std::uint64_t exponent) noexcept
{
  volatile double result = 1, square = base;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = result * square;
    square = square * square;
  }
  return result;
}
[[nodiscard]] inline float rest_of_power(float beta, std::uint64_t exponent) noexcept
{
  return static_cast<float>(1.0 - power(static_cast<double>(beta), exponent));
}
/// A gradient in the form that a kernel gets. @param limit   0: none
[[nodiscard]] inline float transformed(float stored, float factor, float limit) noexcept
{
  const float scaled = without_denormals(product(without_denormals(stored), factor));
  if (!(limit > 0.0F) || std::isnan(scaled)) return scaled;
  return std::clamp(scaled, -limit, limit);
}

struct adam_settings {
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F, weight_decay = 0.0F;
  bool decoupled = true;
  float rate_factor = 1.0F;
};

/// Adam and AdamW in one step.
class adam_step {
 public:
  adam_step(const adam_settings& it, float learning_rate, std::uint64_t count) noexcept
      : beta1{without_denormals(it.beta1)},
        beta2{without_denormals(it.beta2)},
        rest1{1.0F - it.beta1},
        rest2{1.0F - it.beta2},
        epsilon{it.epsilon},
        decay{it.decoupled ? 0.0F : without_denormals(it.weight_decay)}
  {
    const float scaled = product(learning_rate, it.rate_factor);
    rate = without_denormals(quotient(scaled, rest_of_power(it.beta1, count)));
    scale = 1.0F / std::sqrt(rest_of_power(it.beta2, count));
    keep = it.decoupled ? std::fma(-scaled, it.weight_decay, 1.0F) : 1.0F;
    const auto smallest = static_cast<float>(std::sqrt(0x1p-125 / static_cast<double>(rest2)));
    least_slope = std::max(smallest, product(decay, 0x1p-100F));
    least_variance = quotient(0x1p-125F, beta2);
    least_parameter = std::max({1.0F, rate, std::fabs(keep)}) * 0x1p-100F;
  }

  void update(float& parameter, float gradient, float& momentum, float& variance) const noexcept
  {
    float slope = gradient;
    if (decay > 0.0F) slope = std::fma(decay, parameter, cut(gradient, 0x1p-100F));
    slope = cut(slope, least_slope);
    momentum = with_one_nan(cut(std::fma(beta1, momentum, product(rest1, slope)), 0x1p-100F));
    const float added = product(rest2, product(slope, slope));
    variance = with_one_nan(std::fma(beta2, variance < least_variance ? 0.0F : variance, added));
    const float direction = quotient(momentum, std::fma(std::sqrt(variance), scale, epsilon));
    const float moved = sum(product(keep, parameter), product(-rate, direction));
    parameter = with_one_nan(cut(moved, least_parameter));
  }

  float beta1, beta2, rest1, rest2, epsilon, decay, rate, scale, keep, least_slope, least_variance, least_parameter;
};

struct sgd_settings {
  float momentum = 0.9F, weight_decay = 0.0F, dampening = 0.0F;
  bool nesterov = false;
  float rate_factor = 1.0F;
};

/// SGD in one step, with and without momentum.
class sgd_step {
 public:
  sgd_step(const sgd_settings& it, float learning_rate) noexcept
      : momentum{without_denormals(it.momentum)},
        decay{without_denormals(it.weight_decay)},
        rest{1.0F - it.dampening},
        rate{without_denormals(product(learning_rate, it.rate_factor))},
        nesterov{it.nesterov}
  {
    least_slope = std::max(1.0F, decay) * 0x1p-100F;
    least_parameter = std::max(1.0F, rate) * 0x1p-100F;
  }

  void update(float& parameter, float gradient, float& velocity) const noexcept
  {
    const float slope = slope_of(parameter, gradient);
    velocity = with_one_nan(cut(std::fma(momentum, velocity, product(rest, slope)), 0x1p-100F));
    move(parameter, nesterov ? std::fma(momentum, velocity, slope) : velocity);
  }
  void update(float& parameter, float gradient) const noexcept { move(parameter, slope_of(parameter, gradient)); }

  float momentum, decay, rest, rate, least_slope, least_parameter;
  bool nesterov;

 private:
  [[nodiscard]] float slope_of(float parameter, float gradient) const noexcept
  {
    const float decayed = decay > 0.0F ? std::fma(decay, parameter, cut(gradient, 0x1p-100F)) : gradient;
    return cut(decayed, least_slope);
  }
  void move(float& parameter, float direction) const noexcept
  {
    parameter = with_one_nan(cut(sum(parameter, product(-rate, direction)), least_parameter));
  }
};

}  // namespace support::oracle
