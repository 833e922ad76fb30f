// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/plan_memory.hpp>

#include <cstdint>

/// Jobs that are planned in a moment.
namespace tiny_plan {

using namespace chunkmem;

/// 28,160 parameters: two sizes of chunks on one rank.
inline constexpr workload::transformer_shape shape{
    workload::transformer_style::gpt, 3, 32, 4, 4, 64, 60, 32, 16, 16, false};

/// 11,040 parameters: chunks of the least size, 44 of them.
inline constexpr workload::transformer_shape least_shape{
    workload::transformer_style::gpt, 1, 32, 4, 4, 64, 60, 32, 16, 16, false};

/// Rates of round numbers: a FLOP takes a nanosecond where half of the peak is reached, a byte one up and two down.
[[nodiscard]] inline workload::rank_share share_of(bytes device, bytes host, std::uint64_t ranks = 1)
{
  return {ranks,
          static_cast<std::uint32_t>(ranks),
          device,
          host,
          {2e9, 1e9, 5e8, ranks > 1 ? 4e9 : 0.0, 0, 1e10, 1e8, 1e9}};
}

[[nodiscard]] inline planner::rank_settings settings()
{
  planner::rank_settings it;
  it.device_context = it.host_process = bytes{};
  it.host_reserve = 0;
  it.link_latency_nanoseconds = 100;
  it.most_iterations = 5;
  return it;
}

}  // namespace tiny_plan
