// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace detail {

inline constexpr std::uint32_t philox_rounds = 10;
inline constexpr std::uint64_t philox_multiplier0 = 0xd2511f53U;
inline constexpr std::uint64_t philox_multiplier1 = 0xcd9e8d57U;
inline constexpr std::uint32_t philox_increment0 = 0x9e3779b9U;
inline constexpr std::uint32_t philox_increment1 = 0xbb67ae85U;

/// Four words, as a plain array: device code calls no member of `std::array`.
struct philox_words {
  std::uint32_t word[4];
};

/// One round, on one counter; `key` is that of the round.
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr void philox_round(std::uint32_t& c0, std::uint32_t& c1,
                                                                        std::uint32_t& c2, std::uint32_t& c3,
                                                                        std::uint32_t key0, std::uint32_t key1) noexcept
{
  const std::uint64_t product0 = philox_multiplier0 * c0;
  const std::uint64_t product1 = philox_multiplier1 * c2;
  c0 = static_cast<std::uint32_t>(product1 >> 32U) ^ c1 ^ key0;
  c1 = static_cast<std::uint32_t>(product1);
  c2 = static_cast<std::uint32_t>(product0 >> 32U) ^ c3 ^ key1;
  c3 = static_cast<std::uint32_t>(product0);
}

/// All rounds, on one counter.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr philox_words philox_of(philox_words counter,
                                                                                        std::uint32_t key0,
                                                                                        std::uint32_t key1) noexcept
{
  for (std::uint32_t round = 0; round < philox_rounds; ++round)
    philox_round(counter.word[0], counter.word[1], counter.word[2], counter.word[3], key0 + round * philox_increment0,
                 key1 + round * philox_increment1);
  return counter;
}

}  // namespace detail

/// Philox4x32-10: 128 random bits that depend on the counter and the key alone. Different counters give different bits.
///
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC11). Cost: about 20 multiplications.
[[nodiscard, gnu::always_inline]] constexpr std::array<std::uint32_t, 4> philox(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept
{
  const auto drawn = detail::philox_of({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {drawn.word[0], drawn.word[1], drawn.word[2], drawn.word[3]};
}

/// The inputs of the random bits of stochastic rounding, in addition to the number of the element.
///
///     const rounding_key key{.seed = 42, .step = 7, .tensor = 3, .list = 1};
struct rounding_key {
  std::uint64_t seed = 0;    ///< of the training run
  std::uint64_t step = 0;    ///< number of the optimizer's step
  std::uint32_t tensor = 0;  ///< in the order of declaration
  std::uint32_t list = 0;    ///< the list that is rounded
};

namespace detail {

/// 128 elements share 16 counters: element e has counter e mod 16 of its group, and half e / 16 mod 8 of its four
/// words. So a run of sixteen is one vector of one half of one word, and nothing is shuffled.
inline constexpr std::size_t philox_lanes = 16;
inline constexpr std::size_t philox_group = 8 * philox_lanes;

/// One stream for each rounding_key: for one seed, two keys never share a counter and a key of philox.
struct rounding_stream {
  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr explicit rounding_stream(const rounding_key& key) noexcept
      : words{philox_of(
            {{static_cast<std::uint32_t>(key.step), static_cast<std::uint32_t>(key.step >> 32U), key.tensor, key.list}},
            static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32U))}
  {
  }

  /// The four words of one counter.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr philox_words draw(std::uint64_t counter) const noexcept
  {
    const auto low = static_cast<std::uint32_t>(counter);
    const auto high = static_cast<std::uint32_t>(counter >> 32U);
    return philox_of({{low, high, words.word[2], words.word[3]}}, words.word[0], words.word[1]);
  }

  /// The 16 bits of one of the eight elements that share a counter.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static constexpr std::uint16_t half_of(const philox_words& drawn,
                                                                            std::uint32_t half) noexcept
  {
    return static_cast<std::uint16_t>(drawn.word[half / 2] >> 16U * (half % 2));
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t bits_of(std::uint64_t element) const noexcept
  {
    const philox_words drawn = draw(element / philox_group * philox_lanes + element % philox_lanes);
    return half_of(drawn, static_cast<std::uint32_t>(element / philox_lanes % 8));
  }

  /// All bits of one group, in the order of its elements.
  [[gnu::always_inline]] constexpr void fill_group(std::uint64_t group, std::uint16_t* out) const noexcept
  {
    std::uint32_t c0[philox_lanes] = {};
    std::uint32_t c1[philox_lanes] = {};
    std::uint32_t c2[philox_lanes] = {};
    std::uint32_t c3[philox_lanes] = {};
    const std::uint64_t first = group * philox_lanes;  // a multiple of 16: no carry between the words of the sixteen
    for (std::size_t lane = 0; lane < philox_lanes; ++lane) {
      c0[lane] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(lane);
      c1[lane] = static_cast<std::uint32_t>(first >> 32U);
      c2[lane] = words.word[2];
      c3[lane] = words.word[3];
    }
    for (std::uint32_t round = 0; round < philox_rounds; ++round) {
      const std::uint32_t key0 = words.word[0] + round * philox_increment0;
      const std::uint32_t key1 = words.word[1] + round * philox_increment1;
      for (std::size_t lane = 0; lane < philox_lanes; ++lane)
        philox_round(c0[lane], c1[lane], c2[lane], c3[lane], key0, key1);
    }
    store(c0, out);
    store(c1, out + 2 * philox_lanes);
    store(c2, out + 4 * philox_lanes);
    store(c3, out + 6 * philox_lanes);
  }

  philox_words words;

 private:
  [[gnu::always_inline]] static constexpr void store(const std::uint32_t (&from)[philox_lanes],
                                                     std::uint16_t* out) noexcept
  {
    for (std::size_t lane = 0; lane < philox_lanes; ++lane) out[lane] = static_cast<std::uint16_t>(from[lane]);
    for (std::size_t lane = 0; lane < philox_lanes; ++lane)
      out[philox_lanes + lane] = static_cast<std::uint16_t>(from[lane] >> 16U);
  }
};

}  // namespace detail

/// The 16 random bits of one element: a function of the key and of the element's number in its tensor, so that threads,
/// runs, chunks and ranks do not matter. Cost: two calls of philox; the overload below shares them.
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t random_bits(const rounding_key& key,
                                                                       std::uint64_t element) noexcept
{
  return detail::rounding_stream{key}.bits_of(element);
}

/// As above, for a run of elements from `first` on. Fastest where runs begin and end at multiples of 128 elements: then
/// one call of philox serves eight elements, in vector code for the target of the calling function.
[[gnu::always_inline]] constexpr void random_bits(const rounding_key& key, std::uint64_t first,
                                                  std::span<std::uint16_t> out) noexcept
{
  const detail::rounding_stream stream{key};
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t element = first + done;
    const std::uint64_t group = element / detail::philox_group;
    const auto skipped = static_cast<std::size_t>(element % detail::philox_group);
    if (skipped == 0 && out.size() - done >= detail::philox_group) {
      stream.fill_group(group, out.data() + done);
      done += detail::philox_group;
      continue;
    }
    std::uint16_t whole[detail::philox_group] = {};
    stream.fill_group(group, whole);
    const std::size_t count = std::min(detail::philox_group - skipped, out.size() - done);
    std::copy_n(whole + skipped, count, out.data() + done);
    done += count;
  }
}

}  // namespace chunkmem::inline v0
