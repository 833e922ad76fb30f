// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstdint>

namespace configurator_bench {

/// Nodes like DGX A100: NVLink of 300 GB/s in a direction, of which a ring reaches 230; for each device a network port
/// of 25 GB/s and half of a PCIe 4 switch; 45 % of 312 TFLOP/s; a host of 1 TiB, or of 2 TiB for devices of 80 GB.
[[nodiscard]] inline chunkmem::configurator::cluster dgx(std::uint32_t nodes, chunkmem::bytes device)
{
  using namespace chunkmem::literals;
  chunkmem::configurator::cluster whole{.name = "dgx a100", .nodes{}};
  const chunkmem::configurator::cluster_node node{.kind = "a100",
                                                  .devices = 8,
                                                  .device_bytes = device,
                                                  .host_bytes = device > 40_GiB ? 2'048_GiB : 1'024_GiB,
                                                  .disk_bytes = 0_B,
                                                  .device_flops_per_second = 1.4e14,
                                                  .to_device_bytes_per_second = 1.2e10,
                                                  .to_host_bytes_per_second = 1.2e10,
                                                  .host_memory_bytes_per_second = 3e11,
                                                  .host_updates_per_second = 8e9,
                                                  .device_updates_per_second = 5e10};
  whole.nodes.assign(nodes, node);
  whole.links = chunkmem::configurator::link_matrix{nodes, {.latency = 5e-6, .bytes_per_second = 2.3e10}};
  for (std::uint32_t it = 0; it < nodes; ++it) whole.links(it, it) = {.latency = 3e-6, .bytes_per_second = 2.3e11};
  return whole;
}

}  // namespace configurator_bench
