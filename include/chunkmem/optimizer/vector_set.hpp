// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp_lanes.hpp>
#include <chunkmem/optimizer/element_blocks.hpp>
#include <chunkmem/tensor/half.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

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

/// As `settled` for one single.
template <class Real>
[[gnu::always_inline]] inline void settle_lanes(Real& value) noexcept
{
  flush_lanes(value);
  const Real nan = Real{} + __builtin_nanf("");
  value = value != value ? nan : value;
}

// Work that each instruction set does in its own way. Code for a set can be inlined only into code for the same set.

struct baseline_lanes {
  using real = lanes<4>;

  [[gnu::always_inline]] static void root(real& result, const real& radicand) noexcept
  {
    for (std::size_t lane = 0; lane < 4; ++lane) result[lane] = strict_fp::root(radicand[lane]);
  }
  [[gnu::always_inline]] static void settle(real& value, bool) noexcept { settle_lanes(value); }
};

#if defined(__x86_64__)

struct avx2_lanes {
  using real = lanes<8>;

  /// By the instruction: compilers make no vector code of `std::sqrt`, since it may set errno.
  [[gnu::always_inline, gnu::target("avx2,fma,f16c")]] static void root(real& result, const real& radicand) noexcept
  {
    asm("vsqrtps %1, %0" : "=x"(result) : "x"(radicand));
  }
  [[gnu::always_inline, gnu::target("avx2,fma,f16c")]] static void settle(real& value, bool) noexcept
  {
    settle_lanes(value);
  }
};

struct avx512_lanes {
  using real = lanes<16>;

  [[gnu::always_inline, gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]] static void root(
      real& result, const real& radicand) noexcept
  {
    asm("vsqrtps %1, %0" : "=v"(result) : "v"(radicand));
  }
  /// The table of vfixupimmps says for each kind of number: NaN becomes what the result held before, others stay. A
  /// product of bf16 that is -0 is added where the processor `has_bf16`: such sums take denormals for zeros of their
  /// sign, whatever the flush mode.
  [[gnu::always_inline, gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]] static void settle(
      real& value, bool has_bf16) noexcept
  {
    using words = lane_bits<16>;
    words nan_from_before{};  // nvcc 13 fails at sums of constants here
    nan_from_before += 0x11111100U;
    real settled{};
    settled += __builtin_nanf("");
    if (has_bf16) {
      words minus_zeros{}, zeros{};
      minus_zeros += 0x80008000U;
      asm("vdpbf16ps %[minus_zeros], %[zeros], %[value]\n\t"
          "vfixupimmps $0, %[table], %[value], %[settled]"
          : [settled] "+&v"(settled), [value] "+v"(value)
          : [table] "v"(nan_from_before), [minus_zeros] "v"(minus_zeros), [zeros] "v"(zeros));
    } else {
      words exponent{}, sign{};
      exponent += chunkmem::detail::infinity_bits;
      sign += chunkmem::detail::sign_bit;
      [[maybe_unused]] std::uint16_t small;
      asm("vptestnmd %[value], %[exponent], %[small]\n\t"
          "vfixupimmps $0, %[table], %[value], %[settled]\n\t"
          "vpandd %[value], %[sign], %[settled]%{%[small]%}"
          : [settled] "+&v"(settled), [small] "=&Yk"(small)
          : [value] "v"(value), [exponent] "v"(exponent), [table] "v"(nan_from_before), [sign] "v"(sign));
    }
    value = settled;
  }
};

#endif

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
