// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <bit>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace planner {

/// A hash of a model, its set-up and its memory.
///
/// Rates are not in it: they drift, and a plan has the rates that it was made from.
[[nodiscard]] inline std::uint64_t plan_fingerprint(const workload::transformer_shape& shape,
                                                    const workload::training_setup& setup,
                                                    const workload::rank_share& share, const rank_settings& settings)
{
  constexpr std::uint64_t all_rows = std::bit_cast<std::uint64_t>(1.0);  // so of exact training each is 0
  const std::uint64_t gradients = settings.gradient.takes_slot() ? 0 : settings.has_wide_gradients() ? 4 : 2;
  const std::uint64_t divided = (settings.divided.gradients ? 0U : 1U) + (settings.divided.parameters ? 0U : 2U);
  std::uint64_t hash = 0;
  const auto add = [&hash](std::uint64_t value) { hash = mixed_bits((hash ^ value) + splitmix64::step); };
  workload::for_numbers(shape, add);
  for (const std::uint64_t value : {setup.micro_batch,
                                    std::uint64_t{setup.recomputes_layers},
                                    std::uint64_t{setup.fuses_attention},
                                    std::uint64_t{setup.has_dropout},
                                    std::uint64_t{setup.has_logits},
                                    std::bit_cast<std::uint64_t>(setup.sampled.qkv) ^ all_rows,
                                    std::bit_cast<std::uint64_t>(setup.sampled.projection) ^ all_rows,
                                    std::bit_cast<std::uint64_t>(setup.sampled.mlp_up) ^ all_rows,
                                    std::bit_cast<std::uint64_t>(setup.sampled.mlp_down) ^ all_rows,
                                    share.ranks,
                                    std::uint64_t{share.of_node},
                                    share.device_bytes.count(),
                                    share.host_bytes.count(),
                                    settings.device_context.count(),
                                    settings.host_process.count(),
                                    std::bit_cast<std::uint64_t>(settings.host_reserve),
                                    std::uint64_t{settings.takes_norm},
                                    std::uint64_t{settings.updates_late},
                                    gradients,
                                    divided})
    add(value);
  if (settings.states != optimizer::listed_states{}) {  // plans of Adam stay what they were
    add(settings.states.lists);
    add(settings.states.bytes_each);
  }
  return hash;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
