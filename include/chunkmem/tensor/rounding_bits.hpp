// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace detail {

inline constexpr std::uint32_t rounding_multiplier0 = 0xed5ad4bbU;
inline constexpr std::uint32_t rounding_multiplier1 = 0xac4c1b51U;
inline constexpr std::uint32_t rounding_multiplier2 = 0x31848babU;

/// Lists of a tensor that share a word: in an update, all of them. The last one takes the word as it is.
inline constexpr std::uint32_t rounding_lists = 5;
/// The factor of the word for a list. Found by a search: the products of each two lists are spread evenly over all
/// words, by the spectral test in two dimensions (at least 0.8) and in the lowest used bits. Products of three lists
/// are not: docs/numerics.md has their deviation.
/// @return   0: the last list
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint32_t list_multiplier(std::uint32_t list) noexcept
{
  switch (list) {
    case 0: return 0x896d3737U;
    case 1: return 0xf8629523U;
    case 2: return 0xe14cd8dfU;
    case 3: return 0x86eef98dU;
    default: return 0;
  }
}

/// One stream for each rounding_key: a hash of the element's number, with two keys of 32 bits, gives a word. Each list
/// takes 16 bits of another product of the word.
///
/// The keys come from Philox, so streams of neighbouring steps and tensors have nothing in common. The hash has 32
/// bits: elements 2^32 apart in one tensor have other second keys.
struct rounding_hash {
  rounding_hash() = default;  ///< without keys: for lists without random bits
  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr explicit rounding_hash(const rounding_key& key) noexcept
  {
    const philox_words words = rounding_stream{{key.seed, key.step, key.tensor, key.list / rounding_lists}}.words;
    first = words.word[0];
    second = words.word[1];
    step = words.word[2] | 1U;
    multiplier = list_multiplier(key.list % rounding_lists);
  }

  /// The stream of one block of 2^32 elements, that of this element.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr rounding_hash in_block_of(std::uint64_t element) const noexcept
  {
    rounding_hash block = *this;
    block.second += static_cast<std::uint32_t>(element >> 32U) * step;
    return block;
  }

  /// The 16 bits of the element at a place in its block. @pre the stream is that of the block
  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t bits_at(
      std::uint32_t place) const noexcept
  {
    std::uint32_t mixed = place + first;
    mixed = (mixed ^ mixed >> 17U) * rounding_multiplier0 + second;
    mixed = (mixed ^ mixed >> 11U) * rounding_multiplier1;
    mixed = (mixed ^ mixed >> 15U) * rounding_multiplier2;
    if (multiplier != 0) mixed = (mixed ^ mixed >> 14U) * multiplier;
    return static_cast<std::uint16_t>(mixed >> 16U);
  }
  [[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t bits_of(
      std::uint64_t element) const noexcept
  {
    return in_block_of(element).bits_at(static_cast<std::uint32_t>(element));
  }

  std::uint32_t first = 0, second = 0, step = 0, multiplier = 0;
};

}  // namespace detail

/// The 16 bits that round one element: a function of the key and of the element's number in its tensor, so that
/// threads, runs, chunks and ranks do not matter.
///
///     const bf16 stored = round_stochastic<bf16>(value, rounding_bits({.seed = 42, .step = 7, .tensor = 3}, element));
///
/// For rounding alone: streams of equal quality and any length come from `random_bits`.
/// Source: triple32 of Wellons' hash-prospector (2018); keys by Philox.
/// Cost: a call of Philox, and three or four multiplications. A part of an update by `adam` or `sgd` calls it once for
/// all lists. An element takes three multiplications, and one more for each list of a state.
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint16_t rounding_bits(const rounding_key& key,
                                                                         std::uint64_t element) noexcept
{
  return detail::rounding_hash{key}.bits_of(element);
}

}  // namespace chunkmem::inline v0
