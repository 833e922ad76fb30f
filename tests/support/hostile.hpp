// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/splitmix64.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace support {

/// The same 64 bits on every machine.
[[nodiscard]] inline std::uint64_t scrambled(std::uint64_t key) noexcept
{
  return chunkmem::mixed_bits((key + 1) * chunkmem::splitmix64::step);
}

/// A tame number in (-1, 1), never rounded.
[[nodiscard]] inline float tame(std::uint64_t key) noexcept
{
  return static_cast<float>(static_cast<std::int64_t>(scrambled(key) >> 40U) - (1 << 23)) / 8388608.0F;
}

/// Bits of numbers that break careless arithmetic: zeros, denormals, the ends of the range, infinities, NaNs of every
/// kind, numbers whose square is a denormal or too large.
inline constexpr std::uint32_t hostile_bits[] = {
    0x00000000U, 0x80000000U, 0x00000001U, 0x80000001U, 0x007fffffU, 0x807fffffU, 0x00800000U, 0x80800000U, 0x00ffffffU,
    0x7f7fffffU, 0xff7fffffU, 0x7f800000U, 0xff800000U, 0x7fc00000U, 0xffc00001U, 0x7fa00000U, 0xff812345U, 0x7fffffffU,
    0x20000000U, 0x1f800000U, 0xa1000000U, 0x5f800000U, 0x60000000U, 0xdf7fffffU, 0x33800000U, 0x3f7fffffU, 0x3f800001U,
};
inline constexpr std::size_t hostile_count = sizeof hostile_bits / sizeof hostile_bits[0];

/// Mostly tame, hostile at every 11th place.
[[nodiscard]] inline float hostile(std::uint64_t key) noexcept
{
  if (key % 11 != 0) return tame(key);
  return std::bit_cast<float>(hostile_bits[scrambled(key) % hostile_count]);
}

/// The same in 16 bits: every pattern at every 11th place.
[[nodiscard]] inline std::uint16_t hostile_16_bits(std::uint64_t key, std::uint16_t otherwise) noexcept
{
  return key % 11 == 0 ? static_cast<std::uint16_t>(scrambled(key)) : otherwise;
}

[[nodiscard]] inline std::vector<float> hostile_numbers(std::size_t count, std::uint64_t key)
{
  std::vector<float> all(count);
  for (std::size_t index = 0; index < count; ++index) all[index] = hostile(key * 1'000'003 + index);
  return all;
}
[[nodiscard]] inline std::vector<float> tame_numbers(std::size_t count, std::uint64_t key)
{
  std::vector<float> all(count);
  for (std::size_t index = 0; index < count; ++index) all[index] = tame(key * 1'000'003 + index);
  return all;
}

/// NaNs and zeros of either sign by their bits.
template <class Element>
[[nodiscard]] bool same_bits(const std::vector<Element>& left, const std::vector<Element>& right)
{
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(Element)) == 0);
}

}  // namespace support
