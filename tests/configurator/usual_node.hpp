// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstdint>
#include <string>

namespace support {

/// A node with sizes and rates of a usual server, for tests that change the ones they test.
[[nodiscard]] inline chunkmem::configurator::cluster_node usual_node(const std::string& kind, std::uint32_t devices = 1)
{
  using namespace chunkmem::literals;
  return {.kind = kind,
          .devices = devices,
          .device_bytes = 32_GiB,
          .host_bytes = 256_GiB,
          .disk_bytes = 0_B,
          .device_flops_per_second = 1e14,
          .to_device_bytes_per_second = 12e9,
          .to_host_bytes_per_second = 11e9,
          .host_memory_bytes_per_second = 100e9,
          .host_updates_per_second = 2e9,
          .device_updates_per_second = 1e10};
}

}  // namespace support
