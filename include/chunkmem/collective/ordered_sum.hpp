// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace collective {

namespace detail {

inline constexpr std::size_t sum_block = 512;  ///< elements added at a time: their sums stay in the first cache

/// The canonical NaN. Of two NaNs, an instruction propagates one: which one depends on the order of operands that a
/// compiler chose.
[[nodiscard, gnu::always_inline]] constexpr float one_nan(float value) noexcept
{
  const auto bits = bits_as<std::uint32_t>(value);
  const bool is_nan = (bits & ~chunkmem::detail::sign_bit) > chunkmem::detail::infinity_bits;
  return bits_as<float>(chunkmem::detail::choose(is_nan, 0x7fc00000U, bits));
}

template <real_element Element>
void add_block(Element* to, std::span<const std::byte* const> ranks, std::size_t first, std::size_t count,
               float scale) noexcept
{
  float sums[sum_block];
  for (std::size_t index = 0; index < count; ++index)
    sums[index] = to_float(reinterpret_cast<const Element*>(ranks[0])[first + index]);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const Element* from = reinterpret_cast<const Element*>(ranks[rank]) + first;
    for (std::size_t index = 0; index < count; ++index)
      sums[index] = strict_fp::sum(sums[index], to_float(from[index]));
  }
  for (std::size_t index = 0; index < count; ++index)
    to[first + index] = round_to<Element>(one_nan(strict_fp::product(sums[index], scale)));
}

template <real_element Element>
void add_all(std::byte* to, std::span<const std::byte* const> ranks, std::size_t count, float scale) noexcept
{
  for (std::size_t first = 0; first < count; first += sum_block) {
    const std::size_t length = count - first < sum_block ? count - first : sum_block;
    add_block(reinterpret_cast<Element*>(to), ranks, first, length, scale);
  }
}

}  // namespace detail

/// @throws usage_error   such elements cannot be summed, or the bytes are no whole elements
inline void require_summable(sum how, std::uint64_t size)
{
  if (how.type != dtype::float32 && !is_16_bit(how.type))
    throw usage_error{error_text{} << "chunkmem: ranks cannot add elements of " << name_of(how.type)
                                   << " (use float32, bfloat16 or float16)"};
  if (size % size_of(how.type) != 0)
    throw usage_error{error_text{} << "chunkmem: a sum over ranks of " << size << " B is not of whole elements of "
                                   << size_of(how.type) << " B (shares end at whole elements)"};
}

/// Adds the elements of all ranks, in order of ranks, in single precision, then times the scale, then rounded to the
/// element type.
///
/// `to` may be one of `ranks`. Denormals are kept; NaN becomes the canonical quiet NaN. The same bits on every machine,
/// by the rules of exact. Cost: each byte is read once and written once; no allocation.
///
/// @pre   `require_summable(how, size)` holds, there is a rank, and all are aligned to elements
inline void add_in_order(std::byte* to, std::span<const std::byte* const> ranks, bytes size, sum how) noexcept
{
  const float_environment standard;
  const std::size_t count = size.count() / size_of(how.type);
  if (how.type == dtype::float32)
    detail::add_all<float>(to, ranks, count, how.scale);
  else if (how.type == dtype::bfloat16)
    detail::add_all<bf16>(to, ranks, count, how.scale);
  else
    detail::add_all<fp16>(to, ranks, count, how.scale);
}

}  // namespace collective

}  // namespace chunkmem::inline v0
