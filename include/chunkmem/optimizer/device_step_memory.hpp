// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/optimizer/device_optimizer_kernel.hpp>
#include <chunkmem/optimizer/device_step_state.hpp>
#include <chunkmem/optimizer/measure_kernels.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// What the memory of a device step depends on.
///
///     const bytes room = device_step_memory<adam>::size({.groups = 1, .parameters = 10, .blocks = 1'000});
struct device_step_sizes {
  std::uint64_t groups = 1;
  std::uint64_t parameters = 0;
  std::uint64_t blocks = 0;  ///< of all gradients together: the sum of `blocks_of(elements)`
};

/// Where a device step keeps what it works with: one run of device memory, which the caller owns.
///
///     const device_step_sizes sizes{.groups = 1, .parameters = 10, .blocks = 1'000};
///     std::byte* const start = memory.allocate(tier::device, device_step_memory<adam>::size(sizes));
///     const device_step_memory<adam> places{start, sizes};
///
/// First comes what the host writes: the state, once, and the learning rates of the groups, whenever they change.
/// Size: 72 B, and 4 B and the kernel's factors for each group, 40 B for each parameter, 24 B for each block of 4,096
/// elements of a gradient.
template <device_optimizer_kernel Kernel>
class device_step_memory {
 public:
  using factors_type = typename Kernel::device_factors;

  /// Bytes to allocate, at a multiple of 16.
  [[nodiscard]] static bytes size(const device_step_sizes& sizes)
  {
    return bytes{device_step_memory{nullptr, sizes}.end_};
  }

  /// @param start   device memory, or nothing where only sizes are asked for
  device_step_memory(std::byte* start, const device_step_sizes& sizes) noexcept : start_{start}, sizes_{sizes}
  {
    end_ = sizeof(device_step_state);
    rates_ = take<float>(sizes.groups);
    host_end_ = end_;
    factors_ = take<factors_type>(sizes.groups);
    ranges_ = take<block_range>(sizes.parameters);
    measures_ = take<gradient_measure>(sizes.parameters);
    sums_ = take<gradient_measure>(sizes.blocks);
  }

  [[nodiscard]] const device_step_sizes& sizes() const noexcept { return sizes_; }
  /// Bytes from the start that the host may write in one copy: the state, then a rate for each group.
  [[nodiscard]] bytes host_bytes() const noexcept { return bytes{host_end_}; }

  [[nodiscard]] device_step_state* state() const noexcept { return at<device_step_state>(0); }
  [[nodiscard]] float* rates() const noexcept { return at<float>(rates_); }
  [[nodiscard]] factors_type* factors() const noexcept { return at<factors_type>(factors_); }
  [[nodiscard]] block_range* ranges() const noexcept { return at<block_range>(ranges_); }
  [[nodiscard]] gradient_measure* measures() const noexcept { return at<gradient_measure>(measures_); }
  [[nodiscard]] gradient_measure* sums() const noexcept { return at<gradient_measure>(sums_); }

 private:
  template <class Thing>
  [[nodiscard]] std::uint64_t take(std::uint64_t count) noexcept
  {
    const std::uint64_t begin = (end_ + alignof(Thing) - 1) / alignof(Thing) * alignof(Thing);
    end_ = begin + count * sizeof(Thing);
    return begin;
  }
  template <class Thing>
  [[nodiscard]] Thing* at(std::uint64_t offset) const noexcept
  {
    return reinterpret_cast<Thing*>(start_ + offset);
  }

  std::byte* start_;
  device_step_sizes sizes_;
  std::uint64_t rates_ = 0, factors_ = 0, ranges_ = 0, measures_ = 0, sums_ = 0, host_end_ = 0, end_ = 0;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
