// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Arithmetic that rounds once, to nearest, equally on the host and on a device; denormals are kept.
///
/// On a device each function is one PTX instruction, written out: compiler flags (`-ftz`, `-fmad`, `-prec-div`,
/// `-prec-sqrt`, `--use_fast_math`) change operators, and with `-ftz` the `_rn` intrinsics too, but not these. On the
/// host they are the operators, so one rule stays with the caller: no product feeds a sum except through `fused`, since
/// compilers contract the two. Rounding mode and denormals of the host: see float_environment. Builtins, since
/// `<cmath>` is 10,000 lines that the umbrella header would carry.
namespace strict_fp {

/// left * right
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float product(float left, float right) noexcept
{
#if defined(__CUDA_ARCH__)
  float result;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
#else
  return left * right;
#endif
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline double product(double left, double right) noexcept
{
#if defined(__CUDA_ARCH__)
  double result;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(left), "d"(right));
  return result;
#else
  return left * right;
#endif
}

/// left + right
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float sum(float left, float right) noexcept
{
#if defined(__CUDA_ARCH__)
  float result;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
#else
  return left + right;
#endif
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline double sum(double left, double right) noexcept
{
#if defined(__CUDA_ARCH__)
  double result;
  asm("add.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(left), "d"(right));
  return result;
#else
  return left + right;
#endif
}

/// left * right + added, rounded once
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float fused(float left, float right, float added) noexcept
{
#if defined(__CUDA_ARCH__)
  float result;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(left), "f"(right), "f"(added));
  return result;
#else
  return __builtin_fmaf(left, right, added);
#endif
}

/// over / under
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float quotient(float over, float under) noexcept
{
#if defined(__CUDA_ARCH__)
  float result;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(over), "f"(under));
  return result;
#else
  return over / under;
#endif
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline double quotient(double over, double under) noexcept
{
#if defined(__CUDA_ARCH__)
  double result;
  asm("div.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(over), "d"(under));
  return result;
#else
  return over / under;
#endif
}

/// The square root; NaN below zero.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float root(float value) noexcept
{
#if defined(__CUDA_ARCH__)
  float result;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  return __builtin_sqrtf(value);
#endif
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline double root(double value) noexcept
{
#if defined(__CUDA_ARCH__)
  double result;
  asm("sqrt.rn.f64 %0, %1;" : "=d"(result) : "d"(value));
  return result;
#else
  return __builtin_sqrt(value);
#endif
}

/// To the nearest single.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float to_single(double value) noexcept
{
#if defined(__CUDA_ARCH__)
  float result;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(result) : "d"(value));
  return result;
#else
  return static_cast<float>(value);
#endif
}

// Signs, comparisons and conversions that round nothing and keep denormals, whatever a device compiler was told: with
// `-ftz` its operators take a denormal for zero. On the host they are the operators; all may be constants.

/// left * right, for constants too.
/// @pre on the host, it feeds no sum, or is exact
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float constant_product(float left,
                                                                                        float right) noexcept
{
  if (__builtin_is_constant_evaluated()) return left * right;
  return product(left, right);
}

/// left + right, for constants too.
/// @pre on the host, neither of them is a product, or it is exact
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float constant_sum(float left, float right) noexcept
{
  if (__builtin_is_constant_evaluated()) return left + right;
  return sum(left, right);
}
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr double constant_sum(double left, double right) noexcept
{
  if (__builtin_is_constant_evaluated()) return left + right;
  return sum(left, right);
}

/// over / under, for constants too.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr double constant_quotient(double over,
                                                                                          double under) noexcept
{
  if (__builtin_is_constant_evaluated()) return over / under;
  return quotient(over, under);
}

/// To the nearest single, for constants too.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float constant_single(double value) noexcept
{
  if (__builtin_is_constant_evaluated()) return static_cast<float>(value);
  return to_single(value);
}

/// -value
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr float negative(float value) noexcept
{
  if (__builtin_is_constant_evaluated()) return -value;
#if defined(__CUDA_ARCH__)
  return bits_as<float>(bits_as<std::uint32_t>(value) ^ 0x80000000U);
#else
  return -value;
#endif
}

/// |value|
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float magnitude(float value) noexcept
{
#if defined(__CUDA_ARCH__)
  return bits_as<float>(bits_as<std::uint32_t>(value) & 0x7fffffffU);
#else
  return __builtin_fabsf(value);
#endif
}

/// left < right; false for NaN.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr bool is_less(float left, float right) noexcept
{
  if (__builtin_is_constant_evaluated()) return left < right;
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("{ .reg .pred is; setp.lt.f32 is, %1, %2; selp.u32 %0, 1, 0, is; }" : "=r"(result) : "f"(left), "f"(right));
  return result != 0;
#else
  return left < right;
#endif
}

/// left == right; false for NaN.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr bool is_equal(float left, float right) noexcept
{
  if (__builtin_is_constant_evaluated()) return left == right;
#if defined(__CUDA_ARCH__)
  std::uint32_t result;
  asm("{ .reg .pred is; setp.eq.f32 is, %1, %2; selp.u32 %0, 1, 0, is; }" : "=r"(result) : "f"(left), "f"(right));
  return result != 0;
#else
  return left == right;
#endif
}

/// The number truncated to an integer.
/// @pre it fits
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr std::int32_t cut(float value) noexcept
{
  if (__builtin_is_constant_evaluated()) return static_cast<std::int32_t>(value);
#if defined(__CUDA_ARCH__)
  std::int32_t result;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
#else
  return static_cast<std::int32_t>(value);
#endif
}

/// The same number in double precision.
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE constexpr double to_double(float value) noexcept
{
  if (__builtin_is_constant_evaluated()) return static_cast<double>(value);
#if defined(__CUDA_ARCH__)
  double result;
  asm("cvt.f64.f32 %0, %1;" : "=d"(result) : "f"(value));
  return result;
#else
  return static_cast<double>(value);
#endif
}

}  // namespace strict_fp

}  // namespace chunkmem::inline v0
