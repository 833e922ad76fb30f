#pragma once

#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace detail {

inline constexpr std::uint32_t philox_rounds = 10;
inline constexpr std::uint64_t philox_multipliers[] = {0xd2511f53U, 0xcd9e8d57U};
inline constexpr std::uint32_t philox_increments[] = {0x9e3779b9U, 0xbb67ae85U};

/// One round, on one counter; `key` is that of the round.
[[gnu::always_inline]] constexpr void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2,
                                                   std::uint32_t& c3, std::uint32_t key0, std::uint32_t key1) noexcept
{
  const std::uint64_t product0 = philox_multipliers[0] * c0;
  const std::uint64_t product1 = philox_multipliers[1] * c2;
  c0 = static_cast<std::uint32_t>(product1 >> 32U) ^ c1 ^ key0;
  c1 = static_cast<std::uint32_t>(product1);
  c2 = static_cast<std::uint32_t>(product0 >> 32U) ^ c3 ^ key1;
  c3 = static_cast<std::uint32_t>(product0);
}

}  // namespace detail

/// Philox4x32-10: 128 random bits that depend on the counter and the key alone. Different counters give different bits.
///
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC11). Cost: about 20 multiplications.
[[nodiscard, gnu::always_inline]] constexpr std::array<std::uint32_t, 4> philox(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept
{
  for (std::uint32_t round = 0; round < detail::philox_rounds; ++round)
    detail::philox_round(counter[0], counter[1], counter[2], counter[3], key[0] + round * detail::philox_increments[0],
                         key[1] + round * detail::philox_increments[1]);
  return counter;
}

/// What the random bits of stochastic rounding depend on, beside the number of the element.
struct rounding_key {
  std::uint64_t seed = 0;    ///< of the training run
  std::uint64_t step = 0;    ///< number of the optimizer's step
  std::uint32_t tensor = 0;  ///< in the order of declaration
  std::uint32_t list = 0;    ///< that is rounded
};

namespace detail {

/// 128 elements share 16 counters: element e has counter e mod 16 of its group, and half e / 16 mod 8 of its four
/// words. So a run of sixteen is one vector of one half of one word, and nothing is shuffled.
inline constexpr std::size_t philox_lanes = 16;
inline constexpr std::size_t philox_group = 8 * philox_lanes;

/// One stream for each rounding_key: for one seed, two keys never share a counter and a key of philox.
struct rounding_stream {
  [[gnu::always_inline]] constexpr explicit rounding_stream(const rounding_key& key) noexcept
      : words{philox(
            {static_cast<std::uint32_t>(key.step), static_cast<std::uint32_t>(key.step >> 32U), key.tensor, key.list},
            {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32U)})}
  {
  }

  /// The four words of one counter.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> draw(std::uint64_t counter) const noexcept
  {
    const auto low = static_cast<std::uint32_t>(counter);
    return philox({low, static_cast<std::uint32_t>(counter >> 32U), words[2], words[3]}, {words[0], words[1]});
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
      c2[lane] = words[2];
      c3[lane] = words[3];
    }
    for (std::uint32_t round = 0; round < philox_rounds; ++round) {
      const std::uint32_t key0 = words[0] + round * philox_increments[0];
      const std::uint32_t key1 = words[1] + round * philox_increments[1];
      for (std::size_t lane = 0; lane < philox_lanes; ++lane)
        philox_round(c0[lane], c1[lane], c2[lane], c3[lane], key0, key1);
    }
    store(c0, out);
    store(c1, out + 2 * philox_lanes);
    store(c2, out + 4 * philox_lanes);
    store(c3, out + 6 * philox_lanes);
  }

  std::array<std::uint32_t, 4> words;

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
/// runs, chunks and ranks do not matter. Cost: two calls of philox; the form below shares them.
[[nodiscard]] constexpr std::uint16_t random_bits(const rounding_key& key, std::uint64_t element) noexcept
{
  const detail::rounding_stream stream{key};
  const std::uint64_t counter = element / detail::philox_group * detail::philox_lanes + element % detail::philox_lanes;
  const auto words = stream.draw(counter);
  const auto half = static_cast<std::uint32_t>(element / detail::philox_lanes % 8);
  return static_cast<std::uint16_t>(words[half / 2] >> 16U * (half % 2));
}

/// The same for a run of elements from `first` on. Fastest where runs begin and end at multiples of 128 elements: then
/// one call of philox serves eight elements, in vector code of whatever the calling function is compiled for.
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
