// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <configurator/usual_node.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace exhaustive_search {

namespace configurator = chunkmem::configurator;

/// A model whose layers take a while, and which a device of the clusters below holds a part of.
[[nodiscard]] inline chunkmem::workload::transformer_shape shape()
{
  return {.layers = 8,
          .hidden = 1'024,
          .heads = 4,
          .kv_heads = 4,
          .ffn = 4'096,
          .vocabulary = 8'000,
          .embedding = 1'024,
          .positions = 512,
          .sequence = 512};
}

/// Nodes of one device, of different speed, with links that differ in each direction.
[[nodiscard]] inline configurator::cluster roll_cluster(support::dice& dice, std::uint32_t nodes)
{
  configurator::cluster whole{.name = "rolled", .nodes{}};
  for (std::uint32_t it = 0; it < nodes; ++it) {
    whole.nodes.push_back(support::usual_node("node " + std::to_string(it)));
    whole.nodes.back().device_flops_per_second = 1e13 * dice.between(70, 130) / 100.0;
    whole.nodes.back().device_bytes = chunkmem::bytes{std::uint64_t{dice.between(600, 3'000)} << 20};
  }
  whole.links = configurator::link_matrix{nodes};
  for (std::uint32_t from = 0; from < nodes; ++from)
    for (std::uint32_t to = 0; to < nodes; ++to)
      whole.links(from, to) = {.latency = 1e-5 * dice.between(1, 10), .bytes_per_second = 1e8 * dice.between(2, 60)};
  return whole;
}

/// The seconds of the fastest plan that fits, of every plan on every order of the devices. Rehearses plans in the order
/// of their seconds until no other can be faster.
/// @return   infinity where nothing fits
[[nodiscard]] inline double best_seconds(const configurator::cluster& whole, const configurator::plan_space& space)
{
  const chunkmem::workload::transformer_shape model = shape();
  const configurator::step_latency latency{whole, model};
  struct timed {
    double seconds = 0;
    configurator::parallel_plan plan;
  };
  std::vector<timed> all;
  for (const configurator::plan_family& family : families_of(space, model, whole.ranks()))
    for (configurator::parallel_plan plan : family.plans) {
      plan.devices.resize(whole.ranks());
      std::iota(plan.devices.begin(), plan.devices.end(), 0U);
      do {
        try {
          all.push_back({latency.of(plan).step, plan});
        } catch (const chunkmem::config_error&) {  // no such schedule
          break;
        }
      } while (std::ranges::next_permutation(plan.devices).found);
    }
  std::ranges::sort(all, {}, &timed::seconds);
  double best = std::numeric_limits<double>::infinity();
  for (const timed& it : all) {
    if (it.seconds >= best) break;
    const std::uint32_t batches = it.plan.schedule == configurator::schedule_kind::two_versions ? 3 : 1;
    const auto work = work_of(model, it.plan, latency.typical_seconds(it.plan), batches);
    if (!refuse_by_leases(whole, work).fits) continue;
    const configurator::memory_proof proof = prove_memory(whole, work, {}, configurator::refused_stages::are_left_out);
    if (proof.fits) best = std::min(best, latency.of(it.plan, moved_by(whole, it.plan, proof)).step);
  }
  return best;
}

}  // namespace exhaustive_search
