// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/optimizer/numerics.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// Elements of one turn of a loop: a constant, so that compilers at -O2 make vector code of it.
inline constexpr std::size_t elements_per_block = 128;

inline constexpr std::uint32_t value_stream = max_lists;  ///< stands for the value in the keys of stochastic rounding
static_assert(value_stream == chunkmem::detail::rounding_lists - 1);  // an update draws once for an element

/// The value to store: zero of the same sign for denormals, and one NaN for all NaNs, since the NaN that an instruction
/// returns depends on the compiler's order of operands.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float settled(float value) noexcept
{
  using chunkmem::detail::choose;
  const auto bits = bits_as<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & ~chunkmem::detail::sign_bit);
  const std::uint32_t flushed = choose(magnitude < 0x00800000, bits & chunkmem::detail::sign_bit, bits);
  return bits_as<float>(choose(magnitude > 0x7f800000, 0x7fc00000U, flushed));
}

/// Work on elements of streams, at equal indices. `run<Count>(first, streams...)` handles `Count` elements and is
/// always inlined.
template <class Work, class... Elements>
[[gnu::always_inline]] inline void run_blocks(const Work& work, std::size_t count,
                                              Elements* __restrict... streams) noexcept
{
  const std::size_t whole = count - count % elements_per_block;
  for (std::size_t index = 0; index < whole; index += elements_per_block)
    work.template run<elements_per_block>(index, streams...);
  for (std::size_t index = whole; index < count; ++index) work.template run<1>(index, streams...);
}

// `__restrict` on these parameters spares the loops a check for overlaps.

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
/// The arithmetic of `work` is the same source for all sets: fused multiply-adds are explicit, no other product feeds a
/// sum, quotients are correctly rounded. So every set gives the same bits.
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

/// The changes of a gradient before a kernel gets it: widened, flushed, multiplied, flushed, clamped.
///
///     const gradient_transform transform{.factor = 1.0F / 1'024, .limit = 1.0F};
struct gradient_transform {
  float factor = 1.0F;  ///< of the clipping and the loss scale
  float limit = 0.0F;   ///< clamps to [-limit, limit]; 0: does not clamp. NaN stays NaN
};

namespace detail {

/// The gradient of one element as a kernel gets it.
template <bool Cuts, class Element>
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float transformed(const gradient_transform& how,
                                                                                Element stored) noexcept
{
  const float scaled = flush(strict_fp::product(flush(to_float(stored)), how.factor));
  const float below = Cuts && strict_fp::is_less(how.limit, scaled) ? how.limit : scaled;
  return Cuts && strict_fp::is_less(below, strict_fp::negative(how.limit)) ? strict_fp::negative(how.limit) : below;
}

struct widen_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, float* wide, const Element* stored) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) wide[first + step] = to_float(stored[first + step]);
  }
};

/// A clamp costs a tenth of a whole update: it is compiled in only where it is needed.
template <bool Cuts>
struct transform_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, float* wide, const Element* stored) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) wide[first + step] = transformed<Cuts>(how, stored[first + step]);
  }

  gradient_transform how;
};

/// The gradient of `count` elements as a kernel gets it.
template <class Element>
void transform(instruction_set set, const gradient_transform& how, std::size_t count, float* wide,
               const Element* stored) noexcept
{
  if (how.limit > 0.0F)
    for_elements(set, transform_work<true>{how}, count, wide, stored);
  else
    for_elements(set, transform_work<false>{how}, count, wide, stored);
}

struct narrow_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, Element* stored, const float* wide) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) stored[first + step] = round_to<Element>(wide[first + step]);
  }
};

struct stochastic_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, Element* stored, const float* wide,
                                  const std::uint16_t* random) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step)
      stored[first + step] = round_stochastic<Element>(wide[first + step], random[first + step]);
  }
};

/// Random bits of the elements from `element` on, a multiple of 128 as is every count.
template <numerics Rule>
struct random_work {
  template <std::size_t Count>
  [[gnu::always_inline]] void run(std::size_t first, std::uint16_t* random) const noexcept
  {
    if constexpr (Rule < numerics::version_3) {
      random_bits(key, element + first, std::span{random + first, Count});
    } else {
      const auto source = rounding_source<Rule>{key}.in_block_of(element + first);
      const auto place = static_cast<std::uint32_t>(element + first);
      for (std::uint32_t step = 0; step < Count; ++step) random[first + step] = source.bits_at(place + step);
    }
  }

  rounding_key key;
  std::uint64_t element;
};

/// Calls `work` with a pointer to `data` as elements of its type.
/// @pre the type is float32, bfloat16 or float16
template <class Byte, class Work>
[[gnu::always_inline]] inline void with_elements(Byte* data, dtype type, std::uint64_t first, const Work& work) noexcept
{
  const auto as = [&]<class Element>(Element) {
    using pointer = std::conditional_t<std::is_const_v<Byte>, const Element*, Element*>;
    work(reinterpret_cast<pointer>(data) + first);
  };
  if (type == dtype::bfloat16) return as(bf16{});
  if (type == dtype::float16) return as(fp16{});
  as(float{});
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
