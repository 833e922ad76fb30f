// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>

#include <cuda_runtime_api.h>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/version.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>

static_assert(CUB_VERSION >= 200300, "chunkmem: activation/cub_sampling.cuh needs CUB 2.3 or newer, as in CUDA 12.4");

namespace chunkmem::inline v0 {

namespace activation {

/// Samples on CUDA streams, with the sort and the scan of CUB.
///
///     using launcher = activation::cub_sampling<optimizer::cuda_launcher>;
///     activation::sampled_input<manager, bf16, launcher> kept{m, norms, site, how, {weight}};
///
/// Sorted keys are distinct or equal in every bit, and summed numbers are integers: CUB's order changes no result.
/// @tparam Launcher   `launcher(backend, stream, kernel)` enqueues, as `optimizer::cuda_launcher` does
template <class Launcher>
struct cub_sampling : Launcher {
  /// @throws device_error   CUB could not compute it, as on a machine without a device
  [[nodiscard]] static std::uint64_t temporary_bytes(std::uint64_t count)
  {
    std::size_t of_sort = 0, of_sum = 0;
    expect(sort(nullptr, of_sort, nullptr, nullptr, count, {}));
    expect(add(nullptr, of_sum, nullptr, count + 1, {}));
    return std::max(of_sort, of_sum);
  }

  /// @throws device_error   CUB refused; some of its kernels may be enqueued
  template <class Backend>
  void sort_down(Backend& backend, agent on_stream, const std::uint64_t* from, std::uint64_t* to, std::uint64_t count,
                 std::byte* temporary, std::uint64_t size) const
  {
    if (count == 0) return;
    backend.launch(on_stream, [&](cudaStream_t stream) {
      std::size_t room = size;
      expect(sort(temporary, room, from, to, count, stream));
    });
  }
  /// @throws device_error   CUB refused; some of its kernels may be enqueued
  template <class Backend>
  void add_up(Backend& backend, agent on_stream, std::uint64_t* sums, std::uint64_t count, std::byte* temporary,
              std::uint64_t size) const
  {
    if (count == 0) return;
    backend.launch(on_stream, [&](cudaStream_t stream) {
      std::size_t room = size;
      expect(add(temporary, room, sums, count, stream));
    });
  }

 private:
  [[nodiscard]] static cudaError_t sort(void* temporary, std::size_t& size, const std::uint64_t* from,
                                        std::uint64_t* to, std::uint64_t count, cudaStream_t stream) noexcept
  {
    return cub::DeviceRadixSort::SortKeysDescending(temporary, size, from, to, count, 0, 64, stream);
  }
  [[nodiscard]] static cudaError_t add(void* temporary, std::size_t& size, std::uint64_t* sums, std::uint64_t count,
                                       cudaStream_t stream) noexcept
  {
    // An int in older versions: rows are below 2^31.
    return cub::DeviceScan::InclusiveSum(temporary, size, sums, sums, static_cast<std::uint32_t>(count), stream);
  }
  static void expect(cudaError_t code)
  {
    if (code != cudaSuccess)
      throw device_error{
          error_text{} << "chunkmem: CUB refused a sort or a sum of sampled rows: " << cudaGetErrorString(code),
          {.number = static_cast<int>(code)}};
  }
};

}  // namespace activation

}  // namespace chunkmem::inline v0
