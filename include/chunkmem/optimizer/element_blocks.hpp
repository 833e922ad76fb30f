// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/instruction_set.hpp>
#include <chunkmem/tensor/half.hpp>

#include <cmath>
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
/// inlined. Work that needs square roots has `before<Count>(first, values, streams...)`, which leaves their radicands
/// in `values`, and `after<Count>(first, roots, streams...)` instead: compilers make no vector code of `std::sqrt`,
/// since it may set errno.
template <class Work>
inline constexpr bool needs_roots = requires { Work::needs_roots; };

/// One block, compiled as the caller is, with plain square roots.
template <std::size_t Count, class Work, class... Elements>
[[gnu::always_inline]] inline void scalar_block(const Work& work, std::size_t first, Elements*... streams) noexcept
{
  if constexpr (needs_roots<Work>) {
    float values[Count] = {};
    work.template before<Count>(first, values, streams...);
    for (float& value : values) value = std::sqrt(value);
    work.template after<Count>(first, values, streams...);
  } else {
    work.template run<Count>(first, streams...);
  }
}

template <class Work, class... Elements>
void run_baseline(const Work& work, std::size_t count, Elements* __restrict... streams) noexcept
{
  const std::size_t whole = count - count % elements_per_block;
  for (std::size_t index = 0; index < whole; index += elements_per_block)
    scalar_block<elements_per_block>(work, index, streams...);
  for (std::size_t index = whole; index < count; ++index) scalar_block<1>(work, index, streams...);
}

#if defined(__x86_64__)

[[gnu::always_inline, gnu::target("avx2")]] inline void take_roots_avx2(float* values) noexcept
{
  using lanes [[gnu::vector_size(32), gnu::may_alias]] = float;
  for (std::size_t index = 0; index < elements_per_block; index += 8) {
    lanes& now = *reinterpret_cast<lanes*>(values + index);
    asm("vsqrtps %1, %0" : "=x"(now) : "x"(now));
  }
}

[[gnu::always_inline, gnu::target("avx512f")]] inline void take_roots_avx512(float* values) noexcept
{
  using lanes [[gnu::vector_size(64), gnu::may_alias]] = float;
  for (std::size_t index = 0; index < elements_per_block; index += 16) {
    lanes& now = *reinterpret_cast<lanes*>(values + index);
    asm("vsqrtps %1, %0" : "=v"(now) : "v"(now));
  }
}

// The same text twice: what takes the roots is compiled for a set, and must not be inlined into a template that is not.
// `__restrict` on these parameters is what spares the loops a check for overlaps.
template <class Work, class... Elements>
[[gnu::target("avx2,fma")]] void run_avx2(const Work& work, std::size_t count, Elements* __restrict... streams) noexcept
{
  alignas(64) float values[elements_per_block] = {};
  const std::size_t whole = count - count % elements_per_block;
  for (std::size_t index = 0; index < whole; index += elements_per_block) {
    if constexpr (needs_roots<Work>) {
      work.template before<elements_per_block>(index, values, streams...);
      take_roots_avx2(values);
      work.template after<elements_per_block>(index, values, streams...);
    } else {
      work.template run<elements_per_block>(index, streams...);
    }
  }
  for (std::size_t index = whole; index < count; ++index) scalar_block<1>(work, index, streams...);
}

template <class Work, class... Elements>
[[gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]] void run_avx512(const Work& work, std::size_t count,
                                                                               Elements* __restrict... streams) noexcept
{
  alignas(64) float values[elements_per_block] = {};
  const std::size_t whole = count - count % elements_per_block;
  for (std::size_t index = 0; index < whole; index += elements_per_block) {
    if constexpr (needs_roots<Work>) {
      work.template before<elements_per_block>(index, values, streams...);
      take_roots_avx512(values);
      work.template after<elements_per_block>(index, values, streams...);
    } else {
      work.template run<elements_per_block>(index, streams...);
    }
  }
  for (std::size_t index = whole; index < count; ++index) scalar_block<1>(work, index, streams...);
}

#endif

/// Does `work` on `count` elements of streams that do not overlap, compiled for `set`.
///
/// The arithmetic of `work` is one text for all sets: fused multiply-adds are explicit, no product feeds a sum
/// otherwise, roots and quotients are the correctly rounded ones. So every set gives the same bits.
/// @pre is_available(set)
template <class Work, class... Elements>
void for_elements(instruction_set set, const Work& work, std::size_t count, Elements*... streams) noexcept
{
#if defined(__x86_64__)
  if (set == instruction_set::avx512) return run_avx512(work, count, streams...);
  if (set == instruction_set::avx2) return run_avx2(work, count, streams...);
#endif
  static_cast<void>(set);
  run_baseline(work, count, streams...);
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
