// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/instruction_set.hpp>
#include <chunkmem/tensor/half.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// Elements of one turn of a loop: a constant, so that compilers at -O2 make vector code of it.
inline constexpr std::size_t elements_per_block = 128;

/// What is stored: denormals as zero of the same sign, and one NaN for all, since which of two NaNs an instruction
/// passes on depends on the order in which a compiler gave it its operands.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float settled(float value) noexcept
{
  using chunkmem::detail::choose;
  const auto bits = bits_as<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & ~chunkmem::detail::sign_bit);
  const std::uint32_t flushed = choose(magnitude < 0x00800000, bits & chunkmem::detail::sign_bit, bits);
  return bits_as<float>(choose(magnitude > 0x7f800000, 0x7fc00000U, flushed));
}

/// Work on elements of streams, at equal indices. `run<Count>(first, streams...)` does that many elements and is always
/// inlined.
template <class Work, class... Elements>
[[gnu::always_inline]] inline void run_blocks(const Work& work, std::size_t count,
                                              Elements* __restrict... streams) noexcept
{
  const std::size_t whole = count - count % elements_per_block;
  for (std::size_t index = 0; index < whole; index += elements_per_block)
    work.template run<elements_per_block>(index, streams...);
  for (std::size_t index = whole; index < count; ++index) work.template run<1>(index, streams...);
}

// `__restrict` on these parameters is what spares the loops a check for overlaps.

template <class Work, class... Elements>
void run_baseline(const Work& work, std::size_t count, Elements* __restrict... streams) noexcept
{
  run_blocks(work, count, streams...);
}

#if defined(__x86_64__)

template <class Work, class... Elements>
[[gnu::target("avx2,fma")]] void run_avx2(const Work& work, std::size_t count, Elements* __restrict... streams) noexcept
{
  run_blocks(work, count, streams...);
}

template <class Work, class... Elements>
[[gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]] void run_avx512(const Work& work, std::size_t count,
                                                                               Elements* __restrict... streams) noexcept
{
  run_blocks(work, count, streams...);
}

#endif

/// Does `work` on `count` elements of streams that do not overlap, compiled for `set`.
///
/// The arithmetic of `work` is one text for all sets: fused multiply-adds are explicit, no product feeds a sum
/// otherwise, quotients are the correctly rounded ones. So every set gives the same bits.
/// @pre is_available(set)
template <class Work, class... Elements>
void for_elements(instruction_set set, const Work& work, std::size_t count, Elements*... streams) noexcept
{
#if defined(__x86_64__)
  if (set >= instruction_set::avx512) return run_avx512(work, count, streams...);
  if (set == instruction_set::avx2) return run_avx2(work, count, streams...);
#endif
  static_cast<void>(set);
  run_baseline(work, count, streams...);
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
