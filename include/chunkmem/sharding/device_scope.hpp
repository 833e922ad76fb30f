// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

namespace sharding {

/// Makes the device of a rank the calling thread's current device for a scope, and restores the previous one.
///
///     using scope = device_scope<cuda_runtime>;
///     const scope device{scope::device_of(rank_in_node, ranks_of_node)};  // before the backend of this rank
///
/// A rank makes it first, then its backend and its communicator of NCCL: contexts, kernels and NCCL use the thread's
/// device. Includes no header of CUDA: see cuda_api. Cost: one call of the runtime where the device is the same, else
/// three, and one that makes the context the first time. An operation of a backend inside of the scope queries the
/// device once; outside, on a thread with another current device, it also pushes and pops.
///
/// @threads   ends on the thread that made it
template <cuda_api Api>
class device_scope {
 public:
  /// @param device   its index among the visible devices   @throws device_error   there is no such device: nothing was
  ///   switched
  explicit device_scope(std::uint32_t device, Api api = {})
      : session_{std::move(api)}, now_{session_, static_cast<int>(device)}
  {
  }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  /// The number of visible devices. @throws device_error   the runtime failed, for example without a driver
  [[nodiscard]] static std::uint32_t devices(Api api = {})
  {
    int count = 0;
    backend::cuda_session<Api> session{std::move(api)};
    session.require("cudaGetDeviceCount", [&](const Api& asked) { return asked.count_devices(count); });
    return static_cast<std::uint32_t>(count);
  }
  /// The device of a rank, one for each rank of the node, as NCCL requires.
  /// @throws config_error   the node has fewer devices than ranks; device_error   as devices
  [[nodiscard]] static std::uint32_t device_of(std::uint32_t rank_in_node, std::uint32_t ranks_of_node, Api api = {})
  {
    const std::uint32_t all = devices(std::move(api));
    if (ranks_of_node <= all) return rank_in_node;
    throw config_error{error_text{} << "chunkmem: " << ranks_of_node << " ranks on a node that shows " << all
                                    << " devices (start as many ranks as devices: each needs one of its own)"};
  }

 private:
  backend::cuda_session<Api> session_;
  backend::cuda_current_device<Api> now_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
