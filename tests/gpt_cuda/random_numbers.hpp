// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/dtype.hpp>
#include <random.hpp>
#include <support/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace gpt_cuda_test {

using chunkmem::bf16;

/// Another one for each run of the tests; printed where a check fails.
inline std::uint64_t fresh_seed()
{
  static const std::uint64_t seed = std::random_device{}();
  return seed;
}

/// Numbers on 16 bytes, with a guard behind them: all NaN until they are written or drawn.
template <class Element>
class numbers {
 public:
  explicit numbers(std::size_t count) : count_{count}, storage_((count + guard) * sizeof(Element) / sizeof(room) + 1)
  {
    std::memset(storage_.data(), 0xff, storage_.size() * sizeof(room));
  }
  [[nodiscard]] Element* data() noexcept { return reinterpret_cast<Element*>(storage_.data()); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  /// Uniform in [-size / 2, size / 2), as the element stores it.
  numbers& draw(std::uint64_t stream, float size = 1.0F)
  {
    const gpt::counter_random random{fresh_seed(), stream};
    for (std::size_t i = 0; i < count_; ++i) set(i, (random.uniform(i) - 0.5F) * size);
    return *this;
  }
  void set(std::size_t i, float value) { data()[i] = chunkmem::round_to<Element>(value); }
  [[nodiscard]] double operator[](std::size_t i) { return static_cast<double>(chunkmem::to_float(data()[i])); }

  /// Nothing was written behind the end.
  [[nodiscard]] bool is_guarded()
  {
    const auto* const end = reinterpret_cast<const unsigned char*>(data() + count_);
    for (std::size_t i = 0; i < guard * sizeof(Element); ++i)
      if (end[i] != 0xff) return false;
    return true;
  }

 private:
  static constexpr std::size_t guard = 16;
  struct alignas(16) room {
    unsigned char bytes[16];
  };
  std::size_t count_;
  std::vector<room> storage_;
};

/// ||found - expected|| / ||expected|| is at most `bound`, and every number was written, and none behind them.
template <class Element>
void check_near(numbers<Element>& found, const std::vector<double>& expected, double bound)
{
  INFO("seed " << fresh_seed());
  REQUIRE(found.size() == expected.size());
  double apart = 0.0;
  double whole = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart += (found[i] - expected[i]) * (found[i] - expected[i]);
    whole += expected[i] * expected[i];
  }
  CHECK(std::sqrt(apart / whole) <= bound);  // false for NaN
  CHECK(found.is_guarded());
}

/// bf16 has 8 bits: rounding to it is apart by 2^-9 at most, 2^-10 on average.
inline constexpr double bf16_bound = 4e-3;
inline constexpr double float_bound = 1e-5;

}  // namespace gpt_cuda_test
