// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstdint>
#include <vector>

namespace support {

/// Equal blocks: 10 s forward, 20 s backward, 10 B, of which 1 B is the output.
[[nodiscard]] inline chunkmem::activation::layer_chain equal_blocks(std::uint32_t count)
{
  const chunkmem::activation::chain_block one{.name = "block",
                                              .forward_seconds = 10,
                                              .backward_seconds = 20,
                                              .saved = chunkmem::bytes{10},
                                              .boundary = chunkmem::bytes{1}};
  return {.blocks = std::vector<chunkmem::activation::chain_block>(count, one)};
}

/// A link of one rate each way, and copies that move whole tensors.
[[nodiscard]] inline chunkmem::activation::activation_budget budget_of(std::uint64_t device, double rate)
{
  return {.device = chunkmem::bytes{device},
          .to_host_bytes_per_second = rate,
          .to_device_bytes_per_second = rate,
          .copy = chunkmem::bytes{1'000}};
}

}  // namespace support
