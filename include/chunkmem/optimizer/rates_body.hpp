// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_body.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Writes a few learning rates to where a device step reads them. They travel in the body, so nothing on the host has
/// to stay until it has run.
class rates_body {
 public:
  static constexpr std::size_t most = 24;

  /// @pre   at most `most` rates
  rates_body(float* to, std::span<const float> rates) noexcept
      : to_{to}, count_{static_cast<std::uint32_t>(rates.size())}
  {
    std::copy(rates.begin(), rates.end(), rates_);
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return count_; }

  /// To be used while this body lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const rates_body& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t at) const noexcept { to_[at] = rates_[at]; }

 private:
  float* to_;
  std::uint32_t count_;
  float rates_[most] = {};
};

static_assert(element_body<rates_body>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
