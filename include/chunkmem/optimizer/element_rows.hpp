// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/tensor/half.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Which elements one call of a kernel takes.
enum class row_order : std::uint8_t {
  neighbours,  ///< four, one after another: 16 bytes of float32 at a time, and the threads of a warp side by side
  by_counter,  ///< eight, 16 apart: those that share one draw of stochastic rounding
};

namespace detail {

template <row_order Order>
inline constexpr std::uint32_t row_length = Order == row_order::neighbours ? 4 : 8;

/// The elements of one call, fewer at the end of a tensor.
template <row_order Order>
struct row_place {
  static constexpr std::uint64_t stride = Order == row_order::neighbours ? 1 : chunkmem::detail::philox_lanes;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE static constexpr std::uint64_t rows_of(std::uint64_t elements) noexcept
  {
    constexpr std::uint64_t whole = stride * row_length<Order>;
    return (elements + whole - 1) / whole * stride;
  }

  CHUNKMEM_HOST_DEVICE constexpr row_place(std::uint64_t index, std::uint64_t elements) noexcept
      : counter{index}, first{index / stride * stride * row_length<Order> + index % stride}
  {
    const std::uint64_t left = first < elements ? (elements - first + stride - 1) / stride : 0;
    count = left < row_length<Order> ? static_cast<std::uint32_t>(left) : row_length<Order>;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint64_t element(std::uint32_t index) const noexcept
  {
    return first + index * stride;
  }

  std::uint64_t counter;  ///< of the draw that they share, where they are 16 apart
  std::uint64_t first;
  std::uint32_t count;
};

/// Bits of elements as they are stored: a word for each, or two of 16 bits in a word where they are packed. What they
/// mean is looked at later, so that no load waits for another.
template <row_order Order>
struct raw_row {
  std::uint32_t word[row_length<Order>];
};

template <row_order Order>
struct row_floats {
  float at[row_length<Order>];
};

/// `Size` bytes from or to an address that is a multiple of it.
template <std::size_t Size>
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline void copy_aligned(void* to, const void* from) noexcept
{
  __builtin_memcpy(__builtin_assume_aligned(to, Size), __builtin_assume_aligned(from, Size), Size);
}

/// @pre float32, bfloat16 or float16
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint64_t size_of_real(dtype type) noexcept
{
  return is_16_bit(type) ? 2 : 4;
}

/// Words that are loaded and stored at once.
template <std::size_t Count>
struct alignas(4 * Count) word_group {
  std::uint32_t word[Count];
};

template <std::size_t Count>
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline void load_words(std::uint32_t* words, const std::byte* from) noexcept
{
  word_group<Count> all;
  copy_aligned<4 * Count>(&all, from);
  for (std::size_t index = 0; index < Count; ++index) words[index] = all.word[index];
}
template <std::size_t Count>
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline void store_words(std::byte* to, const std::uint32_t* words) noexcept
{
  word_group<Count> all;
  for (std::size_t index = 0; index < Count; ++index) all.word[index] = words[index];
  copy_aligned<4 * Count>(to, &all);
}

/// @param is_wide   four neighbours that are all there, at a multiple of 16 bytes from an address that is one
template <row_order Order>
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline raw_row<Order> load_row(const std::byte* data, dtype type,
                                                                  row_place<Order> place, bool is_wide) noexcept
{
  raw_row<Order> raw{};
  if (is_wide) {
    const std::byte* const from = data + place.first * size_of_real(type);
    if (is_16_bit(type))
      load_words<2>(raw.word, from);
    else
      load_words<4>(raw.word, from);
  } else if (is_16_bit(type)) {
    for (std::uint32_t index = 0; index < row_length<Order>; ++index) {
      std::uint16_t half = 0;
      if (index < place.count) copy_aligned<2>(&half, data + 2 * place.element(index));
      raw.word[index] = half;
    }
  } else {
    for (std::uint32_t index = 0; index < row_length<Order>; ++index)
      if (index < place.count) copy_aligned<4>(&raw.word[index], data + 4 * place.element(index));
  }
  return raw;
}

/// The same numbers in single precision.
/// @param is_packed   the row was loaded wide
template <row_order Order>
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline row_floats<Order> widened(const raw_row<Order>& raw, dtype type,
                                                                    bool is_packed) noexcept
{
  row_floats<Order> wide;
  for (std::uint32_t index = 0; index < row_length<Order>; ++index) {
    const std::uint32_t packed = raw.word[index / 2] >> (index % 2 * 16);
    const auto half = static_cast<std::uint16_t>(is_packed ? packed : raw.word[index]);
    if (type == dtype::bfloat16)
      wide.at[index] = to_float(bf16::from_bits(half));
    else if (type == dtype::float16)
      wide.at[index] = to_float(fp16::from_bits(half));
    else
      wide.at[index] = bits_as<float>(raw.word[index]);
  }
  return wide;
}

/// To nearest.
struct nearest_rounding {
  template <class Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE Element rounded(float value, std::uint32_t) const noexcept
  {
    return round_to<Element>(value);
  }
};

/// By the bits of one draw, or of a draw for each.
template <row_order Order>
struct stochastic_rounding {
  CHUNKMEM_HOST_DEVICE stochastic_rounding(const chunkmem::detail::rounding_stream& stream,
                                           row_place<Order> place) noexcept
  {
    if constexpr (Order == row_order::by_counter) {
      const auto drawn = stream.draw(place.counter);
      for (std::uint32_t index = 0; index < row_length<Order>; ++index) random[index] = stream.half_of(drawn, index);
    } else {
      for (std::uint32_t index = 0; index < row_length<Order>; ++index)
        random[index] = stream.bits_of(place.element(index));
    }
  }

  template <class Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE Element rounded(float value, std::uint32_t index) const noexcept
  {
    return round_stochastic<Element>(value, random[index]);
  }

  std::uint16_t random[row_length<Order>];
};

template <class Element, row_order Order, class Rounding>
CHUNKMEM_HOST_DEVICE inline void store_halves(std::byte* data, row_place<Order> place, bool is_wide,
                                              const row_floats<Order>& values, const Rounding& how) noexcept
{
  if (is_wide) {
    std::uint32_t words[2];
    for (std::uint32_t index = 0; index < 2; ++index) {
      const std::uint32_t high = how.template rounded<Element>(values.at[2 * index + 1], 2 * index + 1).bits();
      words[index] = how.template rounded<Element>(values.at[2 * index], 2 * index).bits() | high << 16U;
    }
    return store_words<2>(data + 2 * place.first, words);
  }
  for (std::uint32_t index = 0; index < row_length<Order>; ++index) {
    const Element half = how.template rounded<Element>(values.at[index], index);
    if (index < place.count) copy_aligned<2>(data + 2 * place.element(index), &half);
  }
}

/// Stores a row; `how` rounds what has 16 bits.
template <row_order Order, class Rounding>
CHUNKMEM_HOST_DEVICE inline void store_row(std::byte* data, dtype type, row_place<Order> place, bool is_wide,
                                           const row_floats<Order>& values, const Rounding& how) noexcept
{
  if (type == dtype::bfloat16) return store_halves<bf16>(data, place, is_wide, values, how);
  if (type == dtype::float16) return store_halves<fp16>(data, place, is_wide, values, how);
  if (is_wide) {
    std::uint32_t words[4];
    for (std::uint32_t index = 0; index < 4; ++index) words[index] = bits_as<std::uint32_t>(values.at[index]);
    return store_words<4>(data + 4 * place.first, words);
  }
  for (std::uint32_t index = 0; index < row_length<Order>; ++index)
    if (index < place.count) copy_aligned<4>(data + 4 * place.element(index), &values.at[index]);
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
