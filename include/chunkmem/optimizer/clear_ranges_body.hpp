// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_body.hpp>
#include <chunkmem/optimizer/measure_body.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Makes every tensor one without blocks: what is not measured afterwards adds nothing.
class clear_ranges_body {
 public:
  clear_ranges_body(block_range* ranges, std::uint64_t tensors) noexcept : ranges_{ranges}, tensors_{tensors} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return tensors_; }

  /// To be used while this body lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const clear_ranges_body& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t tensor) const noexcept { ranges_[tensor] = block_range{}; }

 private:
  block_range* ranges_;
  std::uint64_t tensors_;
};

static_assert(element_body<clear_ranges_body>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
