// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>

namespace chunkmem::inline v0 {

/// Arithmetic that rounds once, to nearest, on the host and on a device alike; denormals are kept.
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

}  // namespace strict_fp

}  // namespace chunkmem::inline v0
