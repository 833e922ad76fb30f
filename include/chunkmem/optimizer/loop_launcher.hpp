// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Runs kernels in a loop on the host: for backends whose device is memory of the host, and for tests.
///
/// A launcher is what `device_step` starts its kernels with: `launcher(backend, who, kernel)` enqueues.
class loop_launcher {
 public:
  /// Gives the kernel to an agent, as a callable without arguments.
  /// @throws device_error   the backend takes nothing; nothing was enqueued
  template <enqueues_work Backend, device_kernel Kernel>
  void operator()(Backend& backend, agent stream, const Kernel& kernel) const
  {
    if (kernel.count() != 0) backend.launch(stream, [kernel]() noexcept { run(kernel); });
  }

  /// Runs the kernel now, on the calling thread.
  template <device_kernel Kernel>
  static void run(const Kernel& kernel) noexcept
  {
    const float_environment standard;
    if constexpr (element_kernel<Kernel>)
      run_elements(kernel);
    else if constexpr (lane_kernel<Kernel>)
      run_lanes(kernel);
    else
      run_in_order(kernel);
  }

 private:
  template <class Kernel>
  [[gnu::noinline]] static void run_elements(const Kernel& kernel) noexcept
  {
    const auto& prepared = kernel.prepared();
    for (std::uint64_t index = 0; index < kernel.count(); ++index) prepared(index);
  }

  template <class Kernel>
  [[gnu::noinline]] static void run_lanes(const Kernel& kernel) noexcept
  {
    for (std::uint64_t block = 0; block < kernel.count(); ++block) {
      typename Kernel::sums_type sums[warp_lanes];
      for (std::uint32_t index = 0; index < warp_lanes; ++index) sums[index] = kernel.lane(block, index);
      for (std::uint32_t half = warp_lanes / 2; half > 0; half /= 2)
        for (std::uint32_t index = 0; index < half; ++index) kernel.combine(sums[index], sums[index + half]);
      kernel.store(block, sums[0]);
    }
  }

  template <class Kernel>
  [[gnu::noinline]] static void run_in_order(const Kernel& kernel) noexcept
  {
    for (std::uint64_t row = 0; row < kernel.count(); ++row) {
      typename Kernel::total_type total{};
      for (std::uint64_t index = 0; index < kernel.length(row); ++index) total.add(kernel.load(row, index));
      kernel.store(row, total);
    }
  }
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
