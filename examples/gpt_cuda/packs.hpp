// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <cstring>

namespace gpt::cuda {

using chunkmem::bf16;

/// Numbers of one load of 16 bytes.
inline constexpr std::uint32_t pack = 8;

/// Eight numbers in the precision of the arithmetic. Their addresses are multiples of 16 bytes.
struct eight {
  float at[pack];
};

[[nodiscard]] CHUNKMEM_HOST_DEVICE inline eight operator+(const eight& left, const eight& right) noexcept
{
  eight result;
  for (std::uint32_t i = 0; i < pack; ++i) result.at[i] = left.at[i] + right.at[i];
  return result;
}

struct alignas(16) sixteen_bytes {
  std::uint32_t word[4];
};

[[nodiscard]] CHUNKMEM_HOST_DEVICE inline sixteen_bytes load_bytes(const void* from) noexcept
{
#if defined(__CUDA_ARCH__)
  const uint4 raw = *static_cast<const uint4*>(from);  // the compiler may load a struct by four accesses
  return {{raw.x, raw.y, raw.z, raw.w}};
#else
  sixteen_bytes result;
  std::memcpy(&result, from, sizeof result);
  return result;
#endif
}
CHUNKMEM_HOST_DEVICE inline void store_bytes(void* to, const sixteen_bytes& value) noexcept
{
#if defined(__CUDA_ARCH__)
  // Inline PTX: the compiler splits vector stores whose words were computed one by one.
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(value.word[0]),
               "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
               : "memory");
#else
  std::memcpy(to, &value, sizeof value);
#endif
}

/// Two numbers rounded to nearest, ties to even, the first in the low half.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline std::uint32_t rounded(float low, float high) noexcept
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
#else
  return chunkmem::round_to<bf16>(low).bits() | static_cast<std::uint32_t>(chunkmem::round_to<bf16>(high).bits())
                                                    << 16U;
#endif
}

[[nodiscard]] CHUNKMEM_HOST_DEVICE inline eight load(const bf16* from) noexcept
{
  const sixteen_bytes raw = load_bytes(from);
  eight result;
  for (std::uint32_t i = 0; i < 4; ++i) {
    result.at[2 * i] = chunkmem::bits_as<float>(raw.word[i] << 16U);
    result.at[2 * i + 1] = chunkmem::bits_as<float>(raw.word[i] & 0xffff0000U);
  }
  return result;
}
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline eight load(const float* from) noexcept
{
  const sixteen_bytes raw[2] = {load_bytes(from), load_bytes(from + 4)};
  eight result;
  for (std::uint32_t i = 0; i < pack; ++i) result.at[i] = chunkmem::bits_as<float>(raw[i / 4].word[i % 4]);
  return result;
}
/// Rounded to nearest.
CHUNKMEM_HOST_DEVICE inline void store(bf16* to, const eight& values) noexcept
{
  sixteen_bytes raw;
  for (std::uint32_t i = 0; i < 4; ++i) raw.word[i] = rounded(values.at[2 * i], values.at[2 * i + 1]);
  store_bytes(to, raw);
}
CHUNKMEM_HOST_DEVICE inline void store(float* to, const eight& values) noexcept
{
  sixteen_bytes raw[2];
  for (std::uint32_t i = 0; i < pack; ++i) raw[i / 4].word[i % 4] = chunkmem::bits_as<std::uint32_t>(values.at[i]);
  store_bytes(to, raw[0]);
  store_bytes(to + 4, raw[1]);
}

}  // namespace gpt::cuda
