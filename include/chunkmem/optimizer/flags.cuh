// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cuda_runtime_api.h>

#include <cub/device/device_reduce.cuh>
#include <cub/version.cuh>

#include <cstddef>
#include <cstdint>

static_assert(CUB_VERSION >= 200300, "chunkmem: optimizer/flags.cuh needs CUB 2.3 or newer, as in CUDA 12.4");

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

struct magnitude_bits {
  template <real_element Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint32_t operator()(Element value) const noexcept
  {
    return bits_as<std::uint32_t>(flush(to_float(value))) & ~chunkmem::detail::sign_bit;
  }
};

struct larger_bits {
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint32_t operator()(std::uint32_t left, std::uint32_t right) const noexcept
  {
    return left < right ? right : left;
  }
};

}  // namespace detail

/// Measures that do not depend on the order of numbers: the largest magnitude, and whether all are finite. One word on
/// the device.
///
/// Good where no sum is needed: at the speed of memory for each type. Where clipping needs sums, `measure_kernel` finds
/// both in its pass. Source: the reduction of CUB.
struct flags {
  std::uint32_t largest_bits = 0;  ///< bits of a magnitude, denormals as zero; infinity and NaN are the largest

  [[nodiscard]] CHUNKMEM_HOST_DEVICE bool are_finite() const noexcept
  {
    return largest_bits < chunkmem::detail::infinity_bits;
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE float largest() const noexcept { return bits_as<float>(largest_bits); }

  /// Temporary bytes for `find`, aligned to 256.
  /// @param size   written on success
  [[nodiscard]] static cudaError_t temporary_size(std::size_t& size, dtype type, std::uint64_t elements) noexcept
  {
    return find(nullptr, size, nullptr, type, elements, nullptr, nullptr);
  }

  /// Enqueues the search for the flags of `elements` numbers into `*found`. No allocation, no wait.
  /// @param temporary, size   device memory of `temporary_size`
  /// @pre   the type is float32, bfloat16 or float16
  [[nodiscard]] static cudaError_t find(void* temporary, std::size_t& size, const void* numbers, dtype type,
                                        std::uint64_t elements, flags* found, cudaStream_t stream) noexcept
  {
    const auto of = [&](const auto* first) {
      return cub::DeviceReduce::TransformReduce(temporary, size, first, reinterpret_cast<std::uint32_t*>(found),
                                                elements, detail::larger_bits{}, detail::magnitude_bits{},
                                                std::uint32_t{0}, stream);
    };
    if (type == dtype::bfloat16) return of(static_cast<const bf16*>(numbers));
    if (type == dtype::float16) return of(static_cast<const fp16*>(numbers));
    return of(static_cast<const float*>(numbers));
  }
};

static_assert(sizeof(flags) == sizeof(std::uint32_t));

}  // namespace optimizer

}  // namespace chunkmem::inline v0
