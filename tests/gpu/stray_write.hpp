// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>

#include <cstdint>

namespace gpu {

/// A kernel that writes one number, to an address where nothing is.
struct stray_write {
  std::uint64_t* nowhere;
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE stray_write prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept { nowhere[index] = 1; }
};

}  // namespace gpu
