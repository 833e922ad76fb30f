// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "packs.hpp"

#include <chunkmem/core/host_device.hpp>

#include <cstdint>

/// The vocabulary of the GPT's kernels. g++ compiles them too, so tests on the host run the source that nvcc compiles.
namespace gpt::cuda {

/// Lanes that work on one row together: a warp.
inline constexpr std::uint32_t lanes = 32;

/// A loop that stands in for a warp: each lane does its part before the next one begins.
///
/// A team offers the operations of a warp: `each` runs a part for every lane, `sum` and `highest` give all lanes the
/// sum and the largest of the lanes' values, added in a fixed tree, and `after_lower` gives each lane the sum of the
/// lanes below it. A law for kernels: no lane reads the writes of another lane.
struct looped_team {
  template <class Work>
  void each(Work work) const
  {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) work(lane);
  }
  template <class Value>
  [[nodiscard]] auto sum(Value value) const
  {
    return combined(value, [](auto left, auto right) { return left + right; });
  }
  template <class Value>
  [[nodiscard]] auto highest(Value value) const
  {
    return combined(value, [](auto left, auto right) { return left < right ? right : left; });
  }
  template <class Value, class Work>
  void after_lower(Value value, Work work) const
  {
    std::uint32_t below = 0;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const std::uint32_t mine = value(lane);
      work(lane, below);
      below += mine;
    }
  }

 private:
  template <class Value, class Combine>
  [[nodiscard]] static auto combined(Value value, Combine combine)
  {
    decltype(value(0U)) parts[lanes];
    for (std::uint32_t lane = 0; lane < lanes; ++lane) parts[lane] = value(lane);
    for (std::uint32_t half = lanes / 2; half > 0; half /= 2)
      for (std::uint32_t lane = 0; lane < half; ++lane) parts[lane] = combine(parts[lane], parts[lane + half]);
    return parts[0];
  }
};

#if defined(__CUDACC__)
/// A warp. All lanes make each call together. The sums have the bits of looped_team: both trees add the same pairs.
struct warp_team {
  std::uint32_t lane;

  template <class Work>
  __device__ void each(Work work) const
  {
    work(lane);
  }
  template <class Value>
  [[nodiscard]] __device__ auto sum(Value value) const
  {
    auto mine = value(lane);
    for (int half = lanes / 2; half > 0; half /= 2) mine = mine + opposite(mine, half);
    return mine;
  }
  template <class Value>
  [[nodiscard]] __device__ auto highest(Value value) const
  {
    auto mine = value(lane);
    for (int half = lanes / 2; half > 0; half /= 2) {
      const auto other = opposite(mine, half);
      mine = mine < other ? other : mine;
    }
    return mine;
  }
  template <class Value, class Work>
  __device__ void after_lower(Value value, Work work) const
  {
    const std::uint32_t mine = value(lane);
    std::uint32_t all = mine;
    for (std::uint32_t apart = 1; apart < lanes; apart *= 2) {
      const std::uint32_t lower = __shfl_up_sync(0xffffffffU, all, apart);
      if (lane >= apart) all += lower;
    }
    work(lane, all - mine);
  }

 private:
  template <class Number>
  [[nodiscard]] __device__ static Number opposite(Number mine, int half)
  {
    return __shfl_xor_sync(0xffffffffU, mine, half);
  }
  [[nodiscard]] __device__ static eight opposite(const eight& mine, int half)
  {
    eight result;
    for (std::uint32_t i = 0; i < pack; ++i) result.at[i] = opposite(mine.at[i], half);
    return result;
  }
};
#endif

}  // namespace gpt::cuda
