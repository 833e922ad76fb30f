// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp_lanes.hpp>
#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/rounding_bits.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

// As in strict_fp_lanes.hpp. It stays off: g++ warns at the end of the file, where it makes the functions.
#pragma GCC diagnostic ignored "-Wpsabi"

/// `Count` elements side by side in memory, at any address of an element.
template <class Element, std::size_t Count>
struct packed {
  using type [[gnu::vector_size(sizeof(Element) * Count), gnu::may_alias, gnu::aligned(sizeof(Element))]] = Element;
};
template <std::size_t Count>
using halves = typename vector_of<std::uint16_t, Count>::type;

/// The 16 random bits of 128 elements: element e has half e / 16 mod 2 of word e / 32 of lane e mod 16.
struct alignas(64) random_group {
  std::uint32_t word[4][chunkmem::detail::philox_lanes];
};

/// The 64-bit product of the lower halves of each lane.
template <class Pairs>
[[gnu::always_inline]] inline void multiply_low(Pairs& result, const Pairs& left, const Pairs& right) noexcept
{
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (sizeof(Pairs) > 16) {
    asm("vpmuludq %2, %1, %0" : "=v"(result) : "v"(left), "v"(right));
    return;
  }
#endif
  result = (left & 0xffffffffU) * (right & 0xffffffffU);
}

/// left * right, for words of 32 bits. g++ lowers the operator before it knows the processor.
template <class Words>
[[gnu::always_inline]] inline void multiply(Words& result, const Words& left, const Words& right) noexcept
{
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (sizeof(Words) > 16) {
    asm("vpmulld %2, %1, %0" : "=v"(result) : "v"(left), "vm"(right));
    return;
  }
#endif
  result = left * right;
}

template <class Pairs>
[[gnu::always_inline]] inline void load_pairs(Pairs& result, const std::uint64_t* from) noexcept
{
  result = *reinterpret_cast<const typename packed<std::uint64_t, sizeof(Pairs) / 8>::type*>(from);
}
/// The lower half of each lane.
template <class Pairs>
[[gnu::always_inline]] inline void store_words(std::uint32_t* to, const Pairs& from) noexcept
{
  using words = typename vector_of<std::uint32_t, sizeof(Pairs) / 8>::type;
  *reinterpret_cast<typename packed<std::uint32_t, sizeof(Pairs) / 8>::type*>(to) =
      __builtin_convertvector(from, words);
}

/// Constants of a rounding_stream that all draws share, each in all lanes of 64 bits.
struct alignas(64) stream_words {
  stream_words() = default;  ///< without values: for a stream without random bits
  explicit stream_words(const chunkmem::detail::rounding_stream& of) noexcept
  {
    using namespace chunkmem::detail;
    for (std::uint64_t& lane : c2) lane = of.words.word[2];
    for (std::uint64_t& lane : c3) lane = of.words.word[3];
    for (std::uint32_t round = 0; round < philox_rounds; ++round) {
      for (std::uint64_t& lane : keys0[round]) lane = of.words.word[0] + round * philox_increment0;
      for (std::uint64_t& lane : keys1[round]) lane = of.words.word[1] + round * philox_increment1;
    }
  }

  std::uint64_t c2[8], c3[8];
  std::uint64_t keys0[chunkmem::detail::philox_rounds][8], keys1[chunkmem::detail::philox_rounds][8];
};

/// a ^ b ^ c
template <class Pairs>
[[gnu::always_inline]] inline void exclusive_or(Pairs& result, const Pairs& a, const Pairs& b, const Pairs& c) noexcept
{
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (sizeof(Pairs) == 64) {
    result = a;
    asm("vpternlogq $0x96, %2, %1, %0" : "+v"(result) : "v"(b), "vm"(c));
    return;
  }
#endif
  result = a ^ b ^ c;
}

/// Draws the bits of a group, `Count` / 2 counters at a time. Each counter has a lane of 64 bits. A round
/// multiplies lower halves alone, so the upper half of a counter's lane may hold anything.
template <std::size_t Count>
[[gnu::always_inline]] inline void draw_group(random_group& group, const stream_words& stream,
                                              std::uint64_t number) noexcept
{
  using namespace chunkmem::detail;
  constexpr std::size_t width = Count / 2;
  using pairs = typename vector_of<std::uint64_t, width>::type;
  const std::uint64_t counter = number * philox_lanes;
  for (std::size_t first = 0; first < philox_lanes; first += width) {
    std::uint64_t low[width], high[width];
    for (std::size_t lane = 0; lane < width; ++lane) {
      low[lane] = counter + first + lane;
      high[lane] = counter >> 32U;
    }
    pairs c0 = __builtin_bit_cast(pairs, low), c1 = __builtin_bit_cast(pairs, high);
    pairs c2, c3, key, product0, product1;
    load_pairs(c2, stream.c2);
    load_pairs(c3, stream.c3);
    for (std::uint32_t round = 0; round < philox_rounds; ++round) {
      multiply_low(product0, c0, pairs{} + philox_multiplier0);
      multiply_low(product1, c2, pairs{} + philox_multiplier1);
      load_pairs(key, stream.keys0[round]);
      exclusive_or(c0, product1 >> 32U, c1, key);
      load_pairs(key, stream.keys1[round]);
      exclusive_or(c2, product0 >> 32U, c3, key);
      c1 = product1;
      c3 = product0;
    }
    store_words(&group.word[0][first], c0);
    store_words(&group.word[1][first], c1);
    store_words(&group.word[2][first], c2);
    store_words(&group.word[3][first], c3);
  }
}

/// The places of elements side by side, from `element` on: what `draw_lanes` takes. Later ones are sums.
template <class Words>
[[gnu::always_inline]] inline void find_places(Words& places, const chunkmem::detail::rounding_hash& source,
                                               std::uint64_t element) noexcept
{
  std::uint32_t all[sizeof(Words) / 4];
  for (std::uint32_t lane = 0; lane < sizeof(Words) / 4; ++lane)
    all[lane] = static_cast<std::uint32_t>(element) + source.first + lane;
  places = __builtin_bit_cast(Words, all);
}

/// The word that all lists of an element share. @pre `source` is that of their block
template <class Words>
[[gnu::always_inline]] inline void draw_lanes(Words& drawn, const chunkmem::detail::rounding_hash& source,
                                              const Words& places) noexcept
{
  using namespace chunkmem::detail;
  multiply(drawn, places ^ places >> 17U, Words{} + rounding_multiplier0);
  drawn += source.second;
  multiply(drawn, drawn ^ drawn >> 11U, Words{} + rounding_multiplier1);
  multiply(drawn, drawn ^ drawn >> 15U, Words{} + rounding_multiplier2);
}

/// The random bits of a list.
template <class Words>
[[gnu::always_inline]] inline void bits_of_list(Words& random, const Words& drawn, std::uint32_t list) noexcept
{
  using namespace chunkmem::detail;
  random = drawn;
  if (const std::uint32_t by = list_multiplier(list); by != 0) multiply(random, drawn ^ drawn >> 14U, Words{} + by);
  random = random >> 16U;
}

template <class Real>
[[gnu::always_inline]] inline void widen_fp16(Real& result, const halves<lane_count<Real>>& stored) noexcept
{
#if defined(__aarch64__)
  asm("fcvtl %0.4s, %1.4h" : "=w"(result) : "w"(stored));
#else
  if constexpr (lane_count<Real> < 8) {
    Real wide{};
    for (std::size_t lane = 0; lane < lane_count<Real>; ++lane)
      wide[lane] = chunkmem::detail::widened_fp16(stored[lane]);
    result = wide;
  } else {
#if defined(__clang__)
    using singles = typename vector_of<_Float16, lane_count<Real>>::type;
    result = __builtin_convertvector(__builtin_bit_cast(singles, stored), Real);
#elif defined(__x86_64__)
    asm("vcvtph2ps %1, %0" : "=v"(result) : "vm"(stored));
#endif
  }
#endif
}

template <class Real>
[[gnu::always_inline]] inline void widen_bf16(Real& result, const halves<lane_count<Real>>& stored) noexcept
{
  using words = lane_bits<lane_count<Real>>;
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (lane_count<Real> >= 8) {
    words wide;
    asm("vpmovzxwd %1, %0" : "=v"(wide) : "vm"(stored));  // g++ 12 would emit five or six instructions
    result = __builtin_bit_cast(Real, wide << 16U);
    return;
  }
#endif
  result = __builtin_bit_cast(Real, __builtin_convertvector(stored, words) << 16U);
}

/// Rounds to nearest. @pre the rounding mode is that of float_environment
template <class Real>
[[gnu::always_inline]] inline void narrow_fp16(halves<lane_count<Real>>& result, const Real& value) noexcept
{
#if defined(__aarch64__)
  asm("fcvtn %0.4h, %1.4s" : "=w"(result) : "w"(value));
#else
  if constexpr (lane_count<Real> < 8) {
    for (std::size_t lane = 0; lane < lane_count<Real>; ++lane)
      result[lane] = chunkmem::detail::nearest_fp16(value[lane]);
  } else {
#if defined(__clang__)
    using singles = typename vector_of<_Float16, lane_count<Real>>::type;
    result = __builtin_bit_cast(halves<lane_count<Real>>, __builtin_convertvector(value, singles));
#elif defined(__x86_64__)
    asm("vcvtps2ph $0, %1, %0" : "=v"(result) : "v"(value));
#endif
  }
#endif
}

/// Rounds to nearest. g++ uses the processor's instruction where it `has_bf16`, which treats denormals as 0; clang has
/// no such vectors here.
/// @pre the numbers are settled, so that no carry changes a NaN
template <class Real>
[[gnu::always_inline]] inline void narrow_bf16(halves<lane_count<Real>>& result, const Real& value,
                                               bool has_bf16) noexcept
{
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (lane_count<Real> == 16) {
    if (has_bf16) {
      asm("vcvtneps2bf16 %1, %0" : "=v"(result) : "v"(value));
      return;
    }
  }
#endif
  static_cast<void>(has_bf16);
  using words = lane_bits<lane_count<Real>>;
  const words bits = __builtin_bit_cast(words, value);
  result = __builtin_convertvector((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U, halves<lane_count<Real>>);
}

/// round_stochastic<bf16>. @pre the numbers are settled
template <class Real>
[[gnu::always_inline]] inline void narrow_bf16(halves<lane_count<Real>>& result, const Real& value,
                                               const lane_bits<lane_count<Real>>& random) noexcept
{
  using words = lane_bits<lane_count<Real>>;
  const words bits = __builtin_bit_cast(words, value);
  const words low = (bits & ~chunkmem::detail::sign_bit) >= 0x7f7f0000U ? words{} + 0x8000U : random;
  result = __builtin_convertvector((bits + low) >> 16U, halves<lane_count<Real>>);
}

/// round_stochastic<fp16>. @pre the numbers are settled
template <class Real>
[[gnu::always_inline]] inline void narrow_fp16(halves<lane_count<Real>>& result, const Real& value,
                                               const lane_bits<lane_count<Real>>& random) noexcept
{
  using words = lane_bits<lane_count<Real>>;
  using counts = typename vector_of<std::int32_t, lane_count<Real>>::type;
  constexpr std::uint32_t smallest = chunkmem::detail::least_normal_fp16;
  const words bits = __builtin_bit_cast(words, value);
  const words magnitude = bits & ~chunkmem::detail::sign_bit;
  const words least = magnitude < smallest ? magnitude : words{} + smallest;
  const Real units = __builtin_bit_cast(Real, least) * 0x1p40F;
  const words whole = __builtin_bit_cast(words, __builtin_convertvector(units, counts));
  const words low = magnitude >= 0x477fe000U ? words{} : random & 0x1fffU;
  const words normal = (magnitude - (112U << 23U) + low) >> 13U;
  const words in_range = magnitude < smallest ? (whole + random) >> 16U : normal;
  const words finite = magnitude >= chunkmem::detail::fp16_overflow ? words{} + 0x7c00U : in_range;
  const words all = magnitude > chunkmem::detail::infinity_bits ? words{} + 0x7e00U : finite;
  result = __builtin_convertvector(all | (bits >> 16U & 0x8000U), halves<lane_count<Real>>);
}

/// Loads stored elements from `element` on, in single precision.
template <class Real>
[[gnu::always_inline]] inline void load_lanes(Real& result, const std::byte* data, dtype type,
                                              std::uint64_t element) noexcept
{
  if (type == dtype::float32) {
    result = *reinterpret_cast<const typename packed<float, lane_count<Real>>::type*>(data + 4 * element);
    return;
  }
  const halves<lane_count<Real>> stored =
      *reinterpret_cast<const typename packed<std::uint16_t, lane_count<Real>>::type*>(data + 2 * element);
  if (type == dtype::float16) return widen_fp16(result, stored);
  widen_bf16(result, stored);
}

/// Stores elements, rounded to nearest. @param has_bf16   the processor has AVX512_BF16   @pre settled
template <class Real>
[[gnu::always_inline]] inline void store_lanes(std::byte* data, dtype type, std::uint64_t element, const Real& value,
                                               bool has_bf16) noexcept
{
  if (type == dtype::float32) {
    *reinterpret_cast<typename packed<float, lane_count<Real>>::type*>(data + 4 * element) = value;
    return;
  }
  halves<lane_count<Real>> stored;
  if (type == dtype::float16)
    narrow_fp16(stored, value);
  else
    narrow_bf16(stored, value, has_bf16);
  *reinterpret_cast<typename packed<std::uint16_t, lane_count<Real>>::type*>(data + 2 * element) = stored;
}

/// The random bits of elements in a group. @param place   of the first one
template <class Words>
[[gnu::always_inline]] inline void load_random(Words& random, const random_group& group, std::size_t place) noexcept
{
  const auto* const from = &group.word[place / 32][place % chunkmem::detail::philox_lanes];
  const Words both = *reinterpret_cast<const typename packed<std::uint32_t, sizeof(Words) / 4>::type*>(from);
  const auto from_bit = static_cast<std::uint32_t>(place / chunkmem::detail::philox_lanes % 2 * 16);
  random = (both >> from_bit) & 0xffffU;  // no branch: g++ 12 fails where comparisons of vectors move across it
}

/// Stores 16-bit elements, rounded by random bits. @pre settled
template <class Real>
[[gnu::always_inline]] inline void store_lanes(std::byte* data, dtype type, std::uint64_t element, const Real& value,
                                               const lane_bits<lane_count<Real>>& random) noexcept
{
  halves<lane_count<Real>> stored;
  if (type == dtype::float16)
    narrow_fp16(stored, value, random);
  else
    narrow_bf16(stored, value, random);
  *reinterpret_cast<typename packed<std::uint16_t, lane_count<Real>>::type*>(data + 2 * element) = stored;
}

/// Denormals as zero of the same sign.
template <class Real>
[[gnu::always_inline]] inline void flush_lanes(Real& value) noexcept
{
  using words = lane_bits<lane_count<Real>>;
  const words bits = __builtin_bit_cast(words, value);
  const words exponent = bits & chunkmem::detail::infinity_bits;
  const words flushed = exponent == 0 ? bits & chunkmem::detail::sign_bit : bits;
  value = __builtin_bit_cast(Real, flushed);
}

/// As `settled` for one element.
template <class Real>
  requires(lane_count<Real> > 0)
[[nodiscard, gnu::always_inline]] inline Real settled(const Real& value) noexcept
{
  Real flushed = value;
  flush_lanes(flushed);
  return strict_fp::with_one_nan(flushed);
}

// Operations that differ by instruction set. Code for a set can be inlined only into code for the same set. `add` is a
// sum of two products, by inline assembly, so that no compiler contracts it. `rows` is the number of vectors in a block
// of an update with a root. AVX-512 has blocks of one vector: larger ones were slow at some addresses of the code.

struct baseline_lanes {
  using real = lanes<4>;
  static constexpr std::size_t rows = 1;

  [[gnu::always_inline]] static void root(real& result, const real& radicand) noexcept
  {
#if defined(__aarch64__)
    asm("fsqrt %0.4s, %1.4s" : "=w"(result) : "w"(radicand));
#else
    for (std::size_t lane = 0; lane < 4; ++lane) result[lane] = strict_fp::root(radicand[lane]);
#endif
  }
  [[gnu::always_inline]] static void add(real& to, const real& added) noexcept
  {
#if defined(__aarch64__)
    asm("fadd %0.4s, %0.4s, %1.4s" : "+w"(to) : "w"(added));
#else
    for (std::size_t lane = 0; lane < 4; ++lane) to[lane] = strict_fp::sum_of_products(to[lane], added[lane]);
#endif
  }
};

#if defined(__x86_64__)

struct avx2_lanes {
  using real = lanes<8>;
  static constexpr std::size_t rows = 32;

  /// By inline assembly: compilers do not vectorize `std::sqrt`, since it may set errno.
  [[gnu::always_inline, gnu::target("avx2,fma,f16c")]] static void root(real& result, const real& radicand) noexcept
  {
    asm("vsqrtps %1, %0" : "=x"(result) : "x"(radicand));
  }
  [[gnu::always_inline, gnu::target("avx2,fma,f16c")]] static void add(real& to, const real& added) noexcept
  {
    asm("vaddps %1, %0, %0" : "+x"(to) : "x"(added));
  }
};

struct avx512_lanes {
  using real = lanes<16>;
  static constexpr std::size_t rows = 1;

  [[gnu::always_inline, gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]] static void root(
      real& result, const real& radicand) noexcept
  {
    asm("vsqrtps %1, %0" : "=v"(result) : "v"(radicand));
  }
  [[gnu::always_inline, gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]] static void add(
      real& to, const real& added) noexcept
  {
    asm("vaddps %1, %0, %0" : "+v"(to) : "v"(added));
  }
};

#endif

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
