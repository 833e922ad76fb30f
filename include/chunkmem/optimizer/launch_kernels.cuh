// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

inline constexpr unsigned threads_of_a_block = 256;

[[nodiscard]] __device__ inline std::uint64_t first_thread() noexcept
{
  return blockIdx.x * std::uint64_t{threads_of_a_block} + threadIdx.x;
}
[[nodiscard]] __device__ inline std::uint64_t all_threads() noexcept
{
  return gridDim.x * std::uint64_t{threads_of_a_block};
}

/// The value of another lane of the warp, word by word.
template <class Value>
[[nodiscard]] __device__ Value from_lane(const Value& value, std::uint32_t lane) noexcept
{
  static_assert(sizeof(Value) % 4 == 0);
  std::uint32_t words[sizeof(Value) / 4];
  memcpy(words, &value, sizeof value);
  for (std::uint32_t& word : words) word = __shfl_sync(0xffffffffU, word, static_cast<int>(lane));
  Value result;
  memcpy(&result, words, sizeof result);
  return result;
}

/// Two shared objects with the same kernel each launch their own: the namespace is hidden. At a kernel itself, nvcc
/// warns about the attribute where a template argument has no linkage.
namespace [[gnu::visibility("hidden")]] hidden {

template <element_kernel Kernel>
__global__ void __launch_bounds__(threads_of_a_block) run_elements(const __grid_constant__ Kernel kernel)
{
  const auto& prepared = kernel.prepared();
  const std::uint64_t count = kernel.count();
  for (std::uint64_t index = first_thread(); index < count; index += all_threads()) prepared(index);
}

/// A warp takes a block.
template <lane_kernel Kernel>
__global__ void __launch_bounds__(threads_of_a_block) run_lanes(const __grid_constant__ Kernel kernel)
{
  const std::uint32_t lane = threadIdx.x % warp_lanes;
  const std::uint64_t count = kernel.count();
  for (std::uint64_t block = first_thread() / warp_lanes; block < count; block += all_threads() / warp_lanes) {
    auto sums = kernel.lane(block, lane);
    for (std::uint32_t half = warp_lanes / 2; half > 0; half /= 2) kernel.combine(sums, from_lane(sums, lane + half));
    if (lane == 0) kernel.store(block, sums);
  }
}

/// A warp takes a row: 32 loads at once, then one sum after another, which all lanes compute alike.
template <ordered_kernel Kernel>
__global__ void __launch_bounds__(threads_of_a_block) run_in_order(const __grid_constant__ Kernel kernel)
{
  using total_type = typename Kernel::total_type;
  const std::uint32_t lane = threadIdx.x % warp_lanes;
  const std::uint64_t count = kernel.count();
  for (std::uint64_t row = first_thread() / warp_lanes; row < count; row += all_threads() / warp_lanes) {
    const std::uint64_t length = kernel.length(row);
    total_type total{};
    total_type next = lane < length ? kernel.load(row, lane) : total_type{};
    for (std::uint64_t begin = 0; begin < length; begin += warp_lanes) {
      const total_type now = next;
      const std::uint64_t ahead = begin + warp_lanes + lane;
      if (ahead < length) next = kernel.load(row, ahead);
      const auto here = static_cast<std::uint32_t>(length - begin < warp_lanes ? length - begin : warp_lanes);
      for (std::uint32_t index = 0; index < here; ++index) total.add(from_lane(now, index));
    }
    if (lane == 0) kernel.store(row, total);
  }
}

}  // namespace hidden

}  // namespace detail

/// Launches kernels as CUDA kernels: for `device_step` on a backend whose streams are CUDA's.
///
/// No allocation, no wait. The backend's `launch` checks the last error for a refused launch. Cost: one kernel launch
/// for each kernel.
struct cuda_launcher {
  unsigned most_blocks = 4096;  ///< of 256 threads each; more work runs in a grid-stride loop

  /// @throws device_error   the launch was refused; nothing was enqueued
  template <class Backend, device_kernel Kernel>
  void operator()(Backend& backend, agent on_stream, const Kernel& kernel) const
  {
    if (kernel.count() != 0) backend.launch(on_stream, [&](cudaStream_t stream) { (*this)(stream, kernel); });
  }

  /// Launches on a stream; errors stay in the runtime as its last error.
  /// @pre   count() is not 0
  template <device_kernel Kernel>
  void operator()(cudaStream_t stream, const Kernel& kernel) const
  {
    constexpr std::uint64_t threads = detail::threads_of_a_block;
    const std::uint64_t wanted = element_kernel<Kernel> ? kernel.count() : kernel.count() * warp_lanes;
    const std::uint64_t blocks = (wanted + threads - 1) / threads;
    const auto grid = static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
    if constexpr (element_kernel<Kernel>)
      detail::hidden::run_elements<Kernel><<<grid, static_cast<unsigned>(threads), 0, stream>>>(kernel);
    else if constexpr (lane_kernel<Kernel>)
      detail::hidden::run_lanes<Kernel><<<grid, static_cast<unsigned>(threads), 0, stream>>>(kernel);
    else
      detail::hidden::run_in_order<Kernel><<<grid, static_cast<unsigned>(threads), 0, stream>>>(kernel);
  }
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
