// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// Seconds that no placement of a plan goes below, without a simulation.
///
///     if (free_bound{whole}.of(plan, parts_of(shape, plan)) > best) continue;  // the optimum is never cut off
///
/// A stage runs all its micro-batches, and without several versions it first waits for the first forward run of the
/// stages before it. Every device is as fast as the fastest, or as the fastest one that was measured, and every link
/// that ranks add up over is as good as the best. Where all devices have a rank, one stage runs on the slowest.
/// Cost: O(parts)
class free_bound {
 public:
  explicit free_bound(const cluster& whole)
  {
    for (const cluster_node& it : whole.nodes) {
      fastest_ = std::max(fastest_, it.device_flops_per_second);
      slowest_ = std::min(slowest_, it.device_flops_per_second);
    }
    for (std::uint32_t from = 0; from < whole.nodes.size(); ++from)
      for (std::uint32_t to = 0; to < whole.nodes.size(); ++to) {
        if (from == to && whole.nodes[from].devices == 1) continue;
        best_.latency = std::min(best_.latency, whole.links(from, to).latency);
        best_.bytes_per_second = std::max(best_.bytes_per_second, whole.links(from, to).bytes_per_second);
      }
    devices_ = whole.ranks();
  }

  /// @param parts   of the plan
  [[nodiscard]] double of(const parallel_plan& plan, const std::vector<model_part>& parts) const
  {
    const std::vector<std::uint32_t> owners = owners_of(plan);
    std::vector<double> work(plan.stages, 0);    // of a micro-batch, on the fastest device [s]
    std::vector<double> begin(plan.stages, -1);  // of the first run
    double least_flops = std::numeric_limits<double>::infinity();
    std::vector<double> flops(plan.stages, 0);
    double ahead = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const model_part& it = parts[part];
      const double adding = added(plan, it);
      const std::uint32_t stage = owners[part];
      const auto least = [&](auto seconds) {
        double of_all = it.measured.empty() ? seconds(it.computing_on({}, fastest_)) : unmeasured;
        for (const measured_runs& of_kind : it.measured) of_all = std::min(of_all, seconds(of_kind.seconds));
        return of_all;
      };
      flops[stage] += it.forward_flops + it.backward_input_flops + it.backward_weight_flops;
      work[stage] += least([](const run_seconds& runs) { return runs.sum(); }) + (plan.recomputes ? 3 : 2) * adding;
      if (begin[stage] < 0) begin[stage] = ahead;
      ahead += least([](const run_seconds& runs) { return runs.forward; }) + adding;
    }
    double longest = 0;
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
      const double waits = plan.schedule == schedule_kind::two_versions ? 0 : begin[stage];
      longest = std::max(longest, waits + plan.micro_batches * work[stage]);
      least_flops = std::min(least_flops, flops[stage]);
    }
    if (plan.ranks() == devices_) longest = std::max(longest, plan.micro_batches * least_flops / slowest_);
    return longest;
  }

 private:
  /// The time in which ranks that share layers add up, on the best link.
  [[nodiscard]] double added(const parallel_plan& plan, const model_part& part) const
  {
    if (plan.tensor == 1 || part.measured_with_sums) return 0;
    const auto ranks = static_cast<double>(plan.tensor);
    return part.all_reduces * 2 * (ranks - 1) * best_.seconds(static_cast<double>(part.summed.count()) / ranks);
  }

  static constexpr double unmeasured = std::numeric_limits<double>::infinity();

  double fastest_ = 0;
  double slowest_ = std::numeric_limits<double>::infinity();
  pair_link best_{.latency = std::numeric_limits<double>::infinity(), .bytes_per_second = 0};
  std::uint32_t devices_ = 0;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
