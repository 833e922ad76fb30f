// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/dtype.hpp>

#if !defined(DLPACK_DLPACK_H_)  // not where a framework's copy, such as ATen/dlpack.h, was included before
#include <dlpack/dlpack.h>
#endif

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Tensors of other programs and frameworks, lent and taken by the structs of DLPack.
///
/// The header of DLPack is the user's own, 0.6 or newer. A framework's copy that was included before counts instead.
namespace interop {

/// The name of an element type in DLPack.
[[nodiscard]] constexpr DLDataType dlpack_type_of(dtype type) noexcept
{
  switch (type) {
    case dtype::float32: return {kDLFloat, 32, 1};
    case dtype::bfloat16: return {kDLBfloat, 16, 1};
    case dtype::float16: return {kDLFloat, 16, 1};
    case dtype::int32: return {kDLInt, 32, 1};
    case dtype::int64: return {kDLInt, 64, 1};
    case dtype::uint8: return {kDLUInt, 8, 1};
  }
  return {kDLOpaqueHandle, 0, 0};
}

[[nodiscard]] constexpr bool is_same_type(const DLDataType& left, const DLDataType& right) noexcept
{
  return left.code == right.code && left.bits == right.bits && left.lanes == right.lanes;
}

/// The calling thread may read these bytes.
[[nodiscard]] constexpr bool is_readable_here(const DLDevice& device) noexcept
{
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost ||
         device.device_type == kDLCUDAManaged;
}

/// One of the two structs of DLPack: the first one, or the struct of DLPack 1 with a version and flags.
template <class Managed>
concept dlpack_managed = requires(Managed it, void (*deleter)(Managed*)) {
  it.dl_tensor.data;
  it.manager_ctx;
  it.deleter = deleter;
};

/// Bit of `flags` in the newer struct: the consumer may not write.
inline constexpr std::uint64_t dlpack_read_only = 1;

/// The newest layout of structs that is known here.
inline constexpr std::uint32_t dlpack_major_version = 1;

/// The struct has a version.
template <class Managed>
concept dlpack_versioned = dlpack_managed<Managed> && requires(Managed it) {
  it.version.major;
  it.version.minor;
  it.flags;
};

static_assert(dlpack_managed<DLManagedTensor> && !dlpack_versioned<DLManagedTensor>);

}  // namespace interop

}  // namespace chunkmem::inline v0
