// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_body.hpp>
#include <chunkmem/optimizer/measure_body.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The measure of each tensor: the sums of its blocks, added in their order.
class sum_blocks_body {
 public:
  using total_type = gradient_measure;

  /// @param ranges, measures   one for each tensor
  sum_blocks_body(const gradient_measure* sums, const block_range* ranges, gradient_measure* measures,
                  std::uint64_t tensors) noexcept
      : sums_{sums}, ranges_{ranges}, measures_{measures}, tensors_{tensors}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return tensors_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t length(std::uint64_t tensor) const noexcept
  {
    return ranges_[tensor].count;
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE gradient_measure load(std::uint64_t tensor, std::uint64_t at) const noexcept
  {
    return sums_[ranges_[tensor].first + at];
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

static_assert(ordered_body<sum_blocks_body>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
