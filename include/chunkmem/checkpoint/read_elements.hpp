// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/half.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Elements of one type can be read as another: real numbers of any precision.
[[nodiscard]] inline bool is_convertible(dtype from, dtype to) noexcept
{
  const auto is_real = [](dtype type) { return type == dtype::float32 || is_16_bit(type); };
  return from == to || (is_real(from) && is_real(to));
}

/// Counts of the numbers that rounding has lost.
///
///     const rounded_numbers found = read_elements(from, value, 0, elements, to, dtype::float16);
struct rounded_numbers {
  std::uint64_t overflows = 0;   ///< finite numbers that became infinite
  std::uint64_t underflows = 0;  ///< other numbers than zero that became zero

  constexpr rounded_numbers& operator+=(const rounded_numbers& more) noexcept
  {
    overflows += more.overflows;
    underflows += more.underflows;
    return *this;
  }
  [[nodiscard]] constexpr bool operator==(const rounded_numbers&) const noexcept = default;
};

namespace detail {

/// The magnitude as bits, which are in its order. In integers: no environment of a caller has a say.
[[nodiscard]] inline std::uint32_t magnitude_bits(float value) noexcept
{
  return bits_as<std::uint32_t>(value) & ~chunkmem::detail::sign_bit;
}

template <class From, class To>
rounded_numbers convert(std::span<const std::byte> from, std::byte* to) noexcept
{
  rounded_numbers lost;
  for (std::size_t index = 0; index < from.size() / sizeof(From); ++index) {
    From value;
    std::memcpy(&value, from.data() + index * sizeof(From), sizeof value);
    const To made = round_to<To>(to_float(value));
    std::memcpy(to + index * sizeof(To), &made, sizeof made);
    const std::uint32_t before = magnitude_bits(to_float(value)), after = magnitude_bits(to_float(made));
    constexpr std::uint32_t infinite = chunkmem::detail::infinity_bits;
    lost.overflows += before < infinite && after >= infinite ? 1 : 0;
    lost.underflows += before != 0 && after == 0 ? 1 : 0;
  }
  return lost;
}
template <class From>
rounded_numbers convert(std::span<const std::byte> from, std::byte* to, dtype type) noexcept
{
  if (type == dtype::float32) return convert<From, float>(from, to);
  return type == dtype::bfloat16 ? convert<From, bf16>(from, to) : convert<From, fp16>(from, to);
}

}  // namespace detail

/// Elements of one real type become those of another, rounded to nearest. @return   what this has lost
/// @pre is_convertible, and not equal
inline rounded_numbers convert(std::span<const std::byte> from, dtype from_type, std::byte* to, dtype to_type) noexcept
{
  if (from_type == dtype::float32) return detail::convert<float>(from, to, to_type);
  if (from_type == dtype::bfloat16) return detail::convert<bf16>(from, to, to_type);
  return detail::convert<fp16>(from, to, to_type);
}

/// Something that gives bytes of files: a generation, or a plain file.
template <class Reader>
concept element_reader = requires(Reader& from, std::uint32_t file, std::uint64_t begin, std::span<std::byte> to) {
  from.read(file, begin, to);
};

/// Elements [first, first + elements) of a stored tensor, as elements of `type`.
/// @param to   room for them @return   what rounding has lost
/// @pre   they are in the tensor, and is_convertible @throws as `from`
template <element_reader Reader>
rounded_numbers read_elements(Reader& from, const stored_value& it, std::uint64_t first, std::uint64_t elements,
                              std::byte* to, dtype type)
{
  rounded_numbers lost;
  if (elements == 0) return lost;
  const std::size_t width = size_of(it.type);
  std::array<std::byte, 16384> part;
  auto run = std::ranges::upper_bound(it.runs, first, {}, &stored_run::first) - 1;
  while (elements > 0) {
    const std::uint64_t left = run->first + run->elements - first;
    const std::uint64_t count = std::min({elements, left, it.type == type ? left : part.size() / width});
    const std::uint64_t begin = run->begin + (first - run->first) * width;
    const auto size = static_cast<std::size_t>(count * width);
    if (it.type == type) {
      from.read(run->file, begin, {to, size});
    } else {
      from.read(run->file, begin, std::span{part}.first(size));
      lost += convert(std::span{part}.first(size), it.type, to, type);
    }
    to += count * size_of(type);
    elements -= count;
    first += count;
    if (first == run->first + run->elements) ++run;
  }
  return lost;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
