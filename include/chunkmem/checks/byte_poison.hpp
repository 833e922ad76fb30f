// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/dtype.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace checks {

/// The content of bytes that were never written: NaN as float32, bfloat16 and float16.
inline constexpr std::byte poison{0xFF};

/// A signalling NaN with a payload of its own, which no arithmetic makes: the content of elements of a gradient until
/// they are written.
/// @return   its bits, in the lowest bytes   @pre   the type has 2 or 4 bytes
[[nodiscard]] constexpr std::uint32_t unwritten_element(dtype type) noexcept
{
  if (type == dtype::bfloat16) return 0x7FA5U;
  return type == dtype::float16 ? 0x7D5AU : 0x7FA5C3E1U;
}

/// Elements of a gradient that were not written.
///
///     const unwritten_count left = count_unwritten(gradient, dtype::float32);
///     if (left.elements > 0) std::cerr << "element " << left.first << " was not written\n";
struct unwritten_count {
  std::uint64_t elements = 0;
  std::uint64_t first = 0;  ///< of them
};

// These functions access bytes that the address sanitizer may guard. The sanitizer does not see the accesses: the
// functions are compiled without it, and call no memset or memcpy, which it intercepts (hence volatile).

/// Fills bytes with poison. @complexity   O(bytes)
[[gnu::noinline, gnu::no_sanitize_address]] inline void fill_with_poison(std::span<std::byte> content) noexcept
{
  volatile std::byte* const to = content.data();
  for (std::size_t index = 0; index < content.size(); ++index) to[index] = poison;
}

/// A checksum that changes with every single word of these bytes. @complexity   O(bytes)
[[nodiscard, gnu::noinline, gnu::no_sanitize_address]] inline std::uint64_t sum_of_bytes(
    std::span<const std::byte> content) noexcept
{
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  const volatile std::byte* const from = content.data();
  std::uint64_t sum = content.size();
  std::size_t index = 0;
  if (reinterpret_cast<std::uintptr_t>(content.data()) % alignof(std::uint64_t) == 0) {
    const auto* const words = reinterpret_cast<const volatile std::uint64_t*>(content.data());
    for (; index + sizeof(std::uint64_t) <= content.size(); index += sizeof(std::uint64_t))
      sum = std::rotl((sum ^ words[index / sizeof(std::uint64_t)]) * odd, 29);
  }
  for (; index < content.size(); ++index) sum = std::rotl((sum ^ static_cast<std::uint64_t>(from[index])) * odd, 29);
  return sum;
}

/// Marks every element of a gradient as unwritten. @complexity   O(bytes)
[[gnu::noinline, gnu::no_sanitize_address]] inline void fill_as_unwritten(std::span<std::byte> content,
                                                                          dtype type) noexcept
{
  const std::uint32_t bits = unwritten_element(type);
  const std::size_t size = size_of(type);
  volatile std::byte* const to = content.data();
  for (std::size_t index = 0; index < content.size(); ++index)
    to[index] = static_cast<std::byte>(bits >> 8 * (index % size));
}

/// Counts the elements of a gradient that still have this mark. @complexity   O(bytes)
[[nodiscard, gnu::noinline, gnu::no_sanitize_address]] inline unwritten_count count_unwritten(
    std::span<const std::byte> content, dtype type) noexcept
{
  const std::uint32_t bits = unwritten_element(type);
  const std::size_t size = size_of(type);
  const volatile std::byte* const from = content.data();
  unwritten_count found;
  for (std::size_t element = 0; element < content.size() / size; ++element) {
    bool same = true;
    for (std::size_t index = 0; index < size; ++index)
      same = same && from[element * size + index] == static_cast<std::byte>(bits >> 8 * index);
    if (same && found.elements++ == 0) found.first = element;
  }
  return found;
}

}  // namespace checks

}  // namespace chunkmem::inline v0
