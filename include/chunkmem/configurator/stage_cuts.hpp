// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// A stage of a chain of units: those from `first` up to `end`, on machines of its own.
///
///     const cut_stage front{.first = 0, .end = 17, .machines = 3};
struct cut_stage {
  std::size_t first = 0;
  std::size_t end = 0;  ///< the unit after its last one
  std::uint32_t machines = 1;
  std::uint32_t machines_before = 0;  ///< of the stages before: machines are numbered in their order

  [[nodiscard]] bool operator==(const cut_stage&) const = default;
};

/// A chain that is cut into stages.
///
///     plan.cuts = found.cuts();
struct chain_cuts {
  double seconds = std::numeric_limits<double>::infinity();  ///< of the slowest stage
  std::vector<cut_stage> stages{};

  /// The first unit of each stage but the first one: parallel_plan::cuts.
  [[nodiscard]] std::vector<std::uint64_t> cuts() const
  {
    std::vector<std::uint64_t> firsts;
    for (const cut_stage& it : stages)
      if (it.first > 0) firsts.push_back(it.first);
    return firsts;
  }
};

/// Cuts a chain so that its slowest stage is as fast as any cut makes it, over all machines.
///
/// A dynamic program over the units and machines so far: exact for every `seconds`. Of equal cuts, one with short first
/// stages is found. An impossible stage takes infinite seconds; where every cut has one, no stages are found.
///
///     const chain_cuts straight = cut_chain(40, 4, false, seconds);  // 4 stages of one machine each
///
/// @param replicates   stages may have more than one machine   @param seconds   of a cut_stage, for a micro-batch
/// @throws config_error   no machine, or fewer units than stages
/// Cost: O(units^2 machines^2) calls of `seconds` where it replicates, else O(units^2 machines)
/// Source: the optimizer of PipeDream (Narayanan et al. 2019, SOSP)
template <class Seconds>
[[nodiscard]] chain_cuts cut_chain(std::size_t units, std::uint32_t machines, bool replicates, const Seconds& seconds)
{
  if (machines == 0 || units == 0 || (!replicates && units < machines))
    throw config_error{error_text{} << "chunkmem: " << units << " parts cannot be cut into stages for " << machines
                                    << " machines (give a part for each stage)"};
  struct best_split {
    double seconds = std::numeric_limits<double>::infinity();
    cut_stage last{};
  };
  std::vector<best_split> best((machines + std::size_t{1}) * (units + 1));  // of the first units on so many machines
  const auto at = [&](std::uint32_t used, std::size_t end) -> best_split& { return best[used * (units + 1) + end]; };
  at(0, 0).seconds = 0;
  for (std::uint32_t used = 1; used <= machines; ++used)
    for (std::size_t end = 1; end <= units; ++end)
      for (std::uint32_t of_last = 1; of_last <= (replicates ? used : 1); ++of_last)
        for (std::size_t first = 0; first < end; ++first) {
          const double before = at(used - of_last, first).seconds;
          best_split& it = at(used, end);
          if (before >= it.seconds) continue;
          const cut_stage last{first, end, of_last, used - of_last};
          const double slowest = std::max(before, seconds(last));
          if (slowest < it.seconds) it = {slowest, last};
        }
  chain_cuts found{.seconds = at(machines, units).seconds};
  if (found.seconds == std::numeric_limits<double>::infinity()) return found;
  for (std::size_t end = units, used = machines; end > 0;) {
    const cut_stage& last = at(static_cast<std::uint32_t>(used), end).last;
    found.stages.insert(found.stages.begin(), last);
    end = last.first;
    used = last.machines_before;
  }
  return found;
}

/// How machines run the stages of a profile, for asynchronous pipelines such as PipeDream's.
///
///     const streamed_stages seconds{profile, {.kind = "titan x", .bytes_per_second = 1e9}};
struct streamed_machines {
  std::string_view kind;        ///< of device
  double bytes_per_second = 0;  ///< of a machine's link, for both directions together
  std::uint64_t rows = 1;       ///< of a micro-batch
  std::uint32_t weight_bytes = 4;
};

/// The seconds of a stage for a micro-batch, in a pipeline that never waits: the longest of its work, its input and its
/// output.
///
/// Machines of a stage take micro-batches in turn, so all three are divided by their number. A link carries one
/// direction at a time. So a boundary counts twice: as an activation and as its gradient. The gradients of a
/// micro-batch are summed immediately, by a ring, without overlap with runs: 4 (m - 1) / m times the weights.
///
///     const chain_cuts found = cut_chain(profile.parts.size(), 4, true, streamed_stages{profile, machines});
///
/// Source: PipeDream (Narayanan et al. 2019, SOSP). Cost: O(1) for a stage
class streamed_stages {
 public:
  /// @throws config_error   the profile has no such kind, or the link no rate
  streamed_stages(const model_profile& profile, const streamed_machines& machines) : machines_{machines}
  {
    if (!(machines.bytes_per_second > 0))
      throw config_error{"machines whose links have no rate (give bytes_per_second)"};
    work_.push_back(0);
    weights_.push_back(0);
    boundaries_.push_back(0);
    for (std::size_t part = 0; part < profile.parts.size(); ++part) {
      double weights = 0;
      for (const std::uint64_t elements : profile.weights_of(part, 1)) weights += static_cast<double>(elements);
      work_.push_back(work_.back() + profile.seconds(machines.kind, part, 1, machines.rows).sum());
      weights_.push_back(weights_.back() + machines.weight_bytes * weights);
      boundaries_.push_back(
          static_cast<double>(profile.size(&profiled_sizes::boundary, part, 1, machines.rows).count()));
    }
    boundaries_.back() = 0;  // nothing leaves the last stage
  }
  [[nodiscard]] double operator()(const cut_stage& stage) const
  {
    const double machines = stage.machines;
    const double sums =
        4 * (machines - 1) * (weights_[stage.end] - weights_[stage.first]) / (machines_.bytes_per_second * machines);
    const double work = work_[stage.end] - work_[stage.first] + sums;
    const double transfer = 2 * std::max(boundaries_[stage.first], boundaries_[stage.end]) / machines_.bytes_per_second;
    return std::max(work, transfer) / machines;
  }

 private:
  streamed_machines machines_;
  std::vector<double> work_;        // of the parts before [s]
  std::vector<double> weights_;     // of the parts before [B]
  std::vector<double> boundaries_;  // after the parts before [B]
};

/// The cuts with the fastest slowest stage of a plan, each stage on its own devices. Only computing counts;
/// step_latency adds transfers and sums.
///
///     plan.cuts = balanced_cuts(whole, model, plan);
///     seconds = std::min(seconds, latency.of(plan).step);
///
/// @param plan   with devices, and one part for each stage
/// @throws config_error   the plan is invalid, or a stage has several parts
/// Cost: O(layers^2 stages + layers ranks)
[[nodiscard]] inline std::vector<std::uint64_t> balanced_cuts(const cluster& whole, const trained_model& model,
                                                              parallel_plan plan)
{
  plan.cuts.clear();
  plan.check(model, whole.ranks());
  if (plan.parts != 1)
    throw config_error{error_text{} << "chunkmem: balanced cuts of a plan with " << plan.parts
                                    << " parts for a stage (give 1)"};
  parallel_plan finest = plan;  // each unit a part
  finest.stages = static_cast<std::uint32_t>(model.units());
  const std::vector<model_part> units = parts_of(model, finest);
  const std::vector<std::uint32_t> node_of = whole.nodes_of_ranks();
  std::vector<std::vector<double>> seconds(plan.stages, std::vector<double>(units.size() + 1, 0));  // of units before
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      double slowest = 0;
      for (std::uint32_t replica = 0; replica < plan.replicas; ++replica)
        for (std::uint32_t member = 0; member < plan.tensor; ++member) {
          const cluster_node& node = whole.nodes[node_of[plan.devices[plan.rank(replica, stage, member)]]];
          const run_seconds runs = units[unit].measured.empty() ? units[unit].computing_on(node)
                                                                : units[unit].measured_on(node.kind).seconds;
          slowest = std::max(slowest, runs.sum());
        }
      seconds[stage][unit + 1] = seconds[stage][unit] + slowest;
    }
  return cut_chain(units.size(), plan.stages, false,
                   [&](const cut_stage& it) {
                     return seconds[it.machines_before][it.end] - seconds[it.machines_before][it.first];
                   })
      .cuts();
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
