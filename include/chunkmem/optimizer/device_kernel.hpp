// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/float_environment.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The most bytes of a kernel object: it must fit into an entry of a backend's queue, together with its launcher.
inline constexpr std::size_t largest_kernel = 120;

/// Lanes that share a block of a `lane_kernel`: a warp.
inline constexpr std::uint32_t warp_lanes = 32;

/// Work that is copied to its processor, with its pointers: the common part of all kernels.
template <class Kernel>
concept portable_kernel =
    std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= largest_kernel && requires(const Kernel& kernel) {
      {
        kernel.count()
      } -> std::same_as<std::uint64_t>;
    };

/// A kernel with one call for each element: `prepared()(index)`. Each thread may call `prepared()` once and its result
/// often.
///
/// Laws: calls with different indices below `count()` write different bytes, so that they run in any order and at once.
template <class Kernel>
concept element_kernel =
    portable_kernel<Kernel> && requires(const Kernel& kernel, std::uint64_t index) { kernel.prepared()(index); };

/// A kernel that adds up blocks in 32 lanes: `lane(block, at)` is the sum of one lane, lane j adds lane j + 16
/// (`combine`), then j + 8, 4, 2 and 1, and `store(block, sums)` gets lane 0.
template <class Kernel>
concept lane_kernel =
    portable_kernel<Kernel> && std::is_trivially_copyable_v<typename Kernel::sums_type> &&
    requires(const Kernel& kernel, std::uint64_t block, std::uint32_t index, typename Kernel::sums_type& sums) {
      {
        kernel.lane(block, index)
      } -> std::same_as<typename Kernel::sums_type>;
      kernel.combine(sums, sums);
      kernel.store(block, sums);
    };

/// A kernel that adds up rows of any length in their order: `total.add(load(row, index))` for each `index` below
/// `length(row)`, then `store(row, total)`.
template <class Kernel>
concept ordered_kernel = portable_kernel<Kernel> && std::is_trivially_copyable_v<typename Kernel::total_type> &&
                         requires(const Kernel& kernel, std::uint64_t row, typename Kernel::total_type& total) {
                           {
                             kernel.length(row)
                           } -> std::same_as<std::uint64_t>;
                           {
                             kernel.load(row, row)
                           } -> std::same_as<typename Kernel::total_type>;
                           total.add(total);
                           kernel.store(row, total);
                         };

/// A kernel that a launcher runs on a device, or on the host with the same bits.
///
/// Laws: the written bits depend on the read bits alone, not on the launcher; no call throws; `count()` is the number
/// of indices, blocks or rows, and 0 launches nothing.
template <class Kernel>
concept device_kernel = element_kernel<Kernel> || lane_kernel<Kernel> || ordered_kernel<Kernel>;

/// Runs kernels in a loop on the host: for backends whose device is memory of the host, and for tests.
///
/// `device_step` starts its kernels by a launcher: `launcher(backend, stream, kernel)` enqueues.
class loop_launcher {
 public:
  /// Enqueues the kernel on an agent, as a callable without arguments.
  /// @throws device_error   the backend refused the work; nothing was enqueued
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
