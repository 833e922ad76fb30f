// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace optimizer {

/// For which processors a loop is compiled. The bits of a result do not depend on it.
enum class instruction_set : std::uint8_t {
  baseline,     ///< what the compiler was told; a processor without fused multiply-add is slow there
  avx2,         ///< x86-64 with AVX2, FMA and F16C
  avx512,       ///< and AVX-512 F, BW, VL and DQ
  avx512_bf16,  ///< and AVX512_BF16
};

/// All of them, the largest last.
inline constexpr instruction_set instruction_sets[] = {instruction_set::baseline, instruction_set::avx2,
                                                       instruction_set::avx512, instruction_set::avx512_bf16};

[[nodiscard]] constexpr std::string_view name_of(instruction_set set) noexcept
{
  constexpr std::string_view names[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  return names[static_cast<std::size_t>(set)];
}

#if defined(__x86_64__)
namespace detail {

/// Conversions of fp16. clang 16 has no name for them.
[[nodiscard]] inline bool has_f16c() noexcept
{
#if defined(__clang__)
  std::uint32_t leaf = 1, b = 0, features = 0, d = 0;
  asm("cpuid" : "+a"(leaf), "=b"(b), "+c"(features), "=d"(d));
  return (features >> 29U & 1U) != 0;
#else
  return __builtin_cpu_supports("f16c") != 0;
#endif
}

}  // namespace detail
#endif

/// The largest set that this processor and its operating system run. Cost: a few instructions.
[[nodiscard]] inline instruction_set best_instruction_set() noexcept
{
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !detail::has_f16c())
    return instruction_set::baseline;
  const bool is_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!is_avx512) return instruction_set::avx2;
  return __builtin_cpu_supports("avx512bf16") ? instruction_set::avx512_bf16 : instruction_set::avx512;
#else
  return instruction_set::baseline;
#endif
}

/// Sets grow: a processor that runs one runs those before it.
[[nodiscard]] inline bool is_available(instruction_set set) noexcept
{
  return set <= best_instruction_set();
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
