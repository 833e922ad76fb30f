// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cuda_runtime_api.h>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_memcpy.cuh>
#include <cub/version.cuh>

#include <cstddef>
#include <cstdint>

static_assert(CUB_VERSION >= 200300, "chunkmem: optimizer/copy_tensors.cuh needs CUB 2.3 or newer, as in CUDA 12.4");

namespace chunkmem::inline v0 {

namespace optimizer {

/// One tensor and its place in a packed buffer; a table of them lies in device memory.
struct packed_tensor {
  std::byte* data = nullptr;
  std::uint64_t offset = 0;  ///< in the buffer [B]
  std::uint64_t size = 0;    ///< [B]
};

namespace detail {

struct tensor_data {
  const packed_tensor* table;
  __host__ __device__ void* operator()(std::uint64_t index) const noexcept { return table[index].data; }
};
struct tensor_size {
  const packed_tensor* table;
  __host__ __device__ std::uint64_t operator()(std::uint64_t index) const noexcept { return table[index].size; }
};
struct packed_data {
  const packed_tensor* table;
  std::byte* buffer;
  __host__ __device__ void* operator()(std::uint64_t index) const noexcept { return buffer + table[index].offset; }
};

template <class Function>
[[nodiscard]] auto numbered(Function function)
{
  return thrust::make_transform_iterator(thrust::counting_iterator<std::uint64_t>{0}, function);
}

}  // namespace detail

/// Gathers many tensors into one buffer, or scatters it again, in a few launches for any number of tensors.
///
/// Good for many small tensors, such as biases that go to another device in one message; no gain for a large tensor.
/// Source: the batched copy of CUB. Cost: as copies within the device; no allocation, no wait.
struct copy_tensors {
  const packed_tensor* table = nullptr;  ///< in device memory; ranges of one table do not overlap
  std::uint64_t count = 0;
  std::byte* buffer = nullptr;

  /// Temporary bytes for `pack` and `unpack`, aligned to 256.
  /// @param size   written on success
  [[nodiscard]] cudaError_t temporary_size(std::size_t& size) const noexcept { return pack(nullptr, size, nullptr); }

  /// Enqueues the copies from the tensors to the buffer.
  /// @param temporary, size   device memory of `temporary_size`
  [[nodiscard]] cudaError_t pack(void* temporary, std::size_t& size, cudaStream_t stream) const noexcept
  {
    return copy(temporary, size, detail::tensor_data{table}, detail::packed_data{table, buffer}, stream);
  }

  /// Enqueues the copies from the buffer to the tensors.
  /// @param temporary, size   device memory of `temporary_size`
  [[nodiscard]] cudaError_t unpack(void* temporary, std::size_t& size, cudaStream_t stream) const noexcept
  {
    return copy(temporary, size, detail::packed_data{table, buffer}, detail::tensor_data{table}, stream);
  }

 private:
  template <class From, class To>
  [[nodiscard]] cudaError_t copy(void* temporary, std::size_t& size, From from, To to,
                                 cudaStream_t stream) const noexcept
  {
    return cub::DeviceMemcpy::Batched(temporary, size, detail::numbered(from), detail::numbered(to),
                                      detail::numbered(detail::tensor_size{table}), static_cast<std::int64_t>(count),
                                      stream);
  }
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
