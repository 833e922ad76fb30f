// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Where the sums of one tensor's blocks lie among those of all. A tensor without any adds nothing.
///
///     const block_range first = memory.ranges()[0];
///     const gradient_measure* const sums = memory.sums() + first.first;
struct block_range {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

[[nodiscard]] constexpr std::uint64_t blocks_of(std::uint64_t elements) noexcept
{
  return (elements + measure_block - 1) / measure_block;
}

/// The measures of the blocks of one gradient: those of `measure_one_block`, bit by bit.
///
///     loop_launcher::run(measure_kernel{gradient, dtype::float32, elements, sums, range, 0});
///
/// Cost: one pass over the gradient, a lane reads every 32nd element; three operations in double for each.
class measure_kernel {
 public:
  struct sums_type {
    double squares = 0;
    double magnitudes = 0;
    std::int32_t largest = 0;
  };

  /// @param range   written: where the sums are, which begin at `sums`
  /// @pre   the type is float32, bfloat16 or float16
  measure_kernel(const std::byte* gradient, dtype type, std::uint64_t elements, gradient_measure* sums,
                 block_range* range, std::uint64_t first) noexcept
      : gradient_{gradient}, elements_{elements}, sums_{sums}, range_{range}, first_{first}, type_{type}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return (elements_ + measure_block - 1) / measure_block;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane(std::uint64_t block, std::uint32_t index) const noexcept
  {
    if (type_ == dtype::bfloat16) return lane_of(reinterpret_cast<const bf16*>(gradient_), block, index);
    if (type_ == dtype::float16) return lane_of(reinterpret_cast<const fp16*>(gradient_), block, index);
    return lane_of(reinterpret_cast<const float*>(gradient_), block, index);
  }

  CHUNKMEM_HOST_DEVICE static void combine(sums_type& into, sums_type other) noexcept { view(into).add(view(other)); }

  CHUNKMEM_HOST_DEVICE void store(std::uint64_t block, sums_type sums) const noexcept
  {
    sums_[first_ + block] = view(sums).measure();
    if (block == 0) *range_ = {first_, count()};
  }

 private:
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static chunkmem::detail::measure_lane view(sums_type& sums) noexcept
  {
    return {sums.squares, sums.magnitudes, sums.largest};
  }

  template <class Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane_of(const Element* all, std::uint64_t block,
                                                       std::uint32_t index) const noexcept
  {
    constexpr std::uint32_t rows = 8;  // loads that do not wait for each other
    sums_type sums;
    const std::uint64_t begin = block * measure_block;
    const std::uint64_t end = begin + measure_block < elements_ ? begin + measure_block : elements_;
    std::uint64_t next = begin + index;
    for (; next + (rows - 1) * warp_lanes < end; next += rows * warp_lanes) {
      Element loaded[rows];
      for (std::uint32_t row = 0; row < rows; ++row) loaded[row] = all[next + row * warp_lanes];
      for (std::uint32_t row = 0; row < rows; ++row) view(sums).add(loaded[row]);
    }
    for (; next < end; next += warp_lanes) view(sums).add(all[next]);
    return sums;
  }

  const std::byte* gradient_;
  std::uint64_t elements_;
  gradient_measure* sums_;
  block_range* range_;
  std::uint64_t first_;
  dtype type_;
};

static_assert(lane_kernel<measure_kernel>);

/// Makes every tensor one without blocks: what is not measured afterwards adds nothing.
///
///     loop_launcher::run(clear_ranges_kernel{memory.ranges(), memory.sizes().parameters});
class clear_ranges_kernel {
 public:
  clear_ranges_kernel(block_range* ranges, std::uint64_t tensors) noexcept : ranges_{ranges}, tensors_{tensors} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return tensors_; }

  /// To be used while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const clear_ranges_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t tensor) const noexcept { ranges_[tensor] = block_range{}; }

 private:
  block_range* ranges_;
  std::uint64_t tensors_;
};

static_assert(element_kernel<clear_ranges_kernel>);

/// The measure of each tensor: the sums of its blocks, added in their order.
///
///     const std::uint64_t tensors = memory.sizes().parameters;
///     loop_launcher::run(sum_blocks_kernel{memory.sums(), memory.ranges(), memory.measures(), tensors});
class sum_blocks_kernel {
 public:
  using total_type = gradient_measure;

  /// @param ranges, measures   one for each tensor
  sum_blocks_kernel(const gradient_measure* sums, const block_range* ranges, gradient_measure* measures,
                    std::uint64_t tensors) noexcept
      : sums_{sums}, ranges_{ranges}, measures_{measures}, tensors_{tensors}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return tensors_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t length(std::uint64_t tensor) const noexcept
  {
    return ranges_[tensor].count;
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE gradient_measure load(std::uint64_t tensor, std::uint64_t index) const noexcept
  {
    return sums_[ranges_[tensor].first + index];
  }
  CHUNKMEM_HOST_DEVICE void store(std::uint64_t tensor, const gradient_measure& total) const noexcept
  {
    measures_[tensor] = total;
  }

 private:
  const gradient_measure* sums_;
  const block_range* ranges_;
  gradient_measure* measures_;
  std::uint64_t tensors_;
};

static_assert(ordered_kernel<sum_blocks_kernel>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
