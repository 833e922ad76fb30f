// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random.hpp"

#include <support/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gpt::test {

/// Aligned as the kernels require.
class numbers {
 public:
  explicit numbers(std::size_t count, float value = 0.0f) : storage_(count + 4, value), count_{count}
  {
    while (reinterpret_cast<std::uintptr_t>(storage_.data() + begin_) % 16 != 0) ++begin_;
  }
  numbers(const numbers&) = delete;
  numbers& operator=(const numbers&) = delete;

  [[nodiscard]] float* data() noexcept { return storage_.data() + begin_; }
  [[nodiscard]] std::span<float> span() noexcept { return {data(), count_}; }
  [[nodiscard]] float& operator[](std::size_t i) noexcept { return data()[i]; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  /// Uniform in [-size / 2, size / 2).
  void draw(std::uint64_t stream, float size = 1.0f)
  {
    const counter_random random{7, stream};
    for (std::size_t i = 0; i < count_; ++i) data()[i] = (random.uniform(i) - 0.5f) * size;
  }

 private:
  std::vector<float> storage_;
  std::size_t count_;
  std::size_t begin_ = 0;
};

/// A scalar made of many numbers: their sum, each weighed by a fixed random number.
[[nodiscard]] inline double weighed(numbers& values, numbers& weights)
{
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
  return sum;
}

/// Compares `gradient` with central differences of `loss` in every number of `at`.
///
/// A step of 1e-2 in float32: truncation and rounding are both near 1e-4 of values near 1, the tolerance is ten times
/// that, plus 1 % of the value.
template <class Loss>
void expects_gradient(const Loss& loss, std::span<float> at, std::span<const float> gradient, double tolerance = 2e-3)
{
  REQUIRE(at.size() == gradient.size());
  const float step = 1e-2f;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const float before = at[i];
    at[i] = before + step;
    const double above = loss();
    const double width = static_cast<double>(at[i]);
    at[i] = before - step;
    const double below = loss();
    const double slope = (above - below) / (width - static_cast<double>(at[i]));
    at[i] = before;
    INFO("number " << i);
    CHECK(std::abs(slope - static_cast<double>(gradient[i])) <= tolerance + 1e-2 * std::abs(slope));
  }
}

}  // namespace gpt::test
