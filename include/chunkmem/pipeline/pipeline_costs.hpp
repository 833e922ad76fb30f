// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// How long the runs of one part take for one micro-batch, and which bytes they move.
///
///     const part_costs layers{.forward = 0.018, .backward_input = 0.018, .backward_weight = 0.009, .output = 8_MiB};
struct part_costs {
  double forward = 0;          ///< [s]
  double backward_input = 0;   ///< [s]; a whole backward run takes both times
  double backward_weight = 0;  ///< [s]
  double recompute = 0;        ///< [s]
  double gather = 0;           ///< of weights over replicas, in the forward run of a batch's first micro-batch [s]
  double update = 0;           ///< of the weights, with its sums over replicas [s]
  bytes output{};              ///< to the next part, and back as a gradient
  bytes saved{};               ///< that an offload moves to the host, and a reload back

  [[nodiscard]] bool operator==(const part_costs&) const = default;
};

/// A link from one stage to another one, in one direction.
///
/// A transfer takes bytes / bytes_per_second on the link's channel, then `latency`. Links with the same channel share
/// one wire: their transfers follow each other in the order in which both ends are ready. A link with the channel
/// `unshared` never waits, as if the wire carried all transfers at once.
///
///     const stage_link slow{.latency = 14e-6, .bytes_per_second = 12e9, .channel = 0};
struct stage_link {
  static constexpr std::uint32_t unshared = UINT32_MAX;

  double latency = 0;  ///< [s]
  double bytes_per_second = std::numeric_limits<double>::infinity();
  std::uint32_t channel = unshared;

  [[nodiscard]] bool operator==(const stage_link&) const = default;
};

/// The costs of each kind of step on a pipeline.
///
///     pipeline_costs costs = uniform_costs(plan, {.forward = 0.02, .backward_input = 0.02, .backward_weight = 0.01});
///     costs.link(0, 1).bytes_per_second = 2e9;
struct pipeline_costs {
  std::vector<part_costs> parts;
  std::vector<stage_link> links;  ///< from stage a to stage b: element a * stages + b
  std::uint32_t stages = 0;
  double to_host_bytes_per_second = std::numeric_limits<double>::infinity();    ///< of each stage
  double to_device_bytes_per_second = std::numeric_limits<double>::infinity();  ///< of each stage
  bool updates_aside = false;  ///< an update runs next to the stage's runs, as on a CPU; else it takes the stage's time

  [[nodiscard]] bool operator==(const pipeline_costs&) const = default;
  [[nodiscard]] stage_link& link(std::uint32_t from, std::uint32_t to)
  {
    return links[std::size_t{from} * stages + to];
  }
  [[nodiscard]] const stage_link& link(std::uint32_t from, std::uint32_t to) const
  {
    return links[std::size_t{from} * stages + to];
  }

  /// @throws config_error   other numbers of parts or stages than in the schedule, or a time or rate that cannot be
  void check(const schedule& plan) const
  {
    if (parts.size() != plan.part_count() || stages != plan.stage_count() ||
        links.size() != std::size_t{stages} * stages)
      throw config_error{error_text{} << "chunkmem: costs of " << parts.size() << " parts and " << stages
                                      << " stages do not fit a schedule of " << plan.part_count() << " parts and "
                                      << plan.stage_count() << " stages (give costs of each part and link)"};
    constexpr double most = std::numeric_limits<double>::max();
    for (std::size_t part = 0; part < parts.size(); ++part) {
      const part_costs& it = parts[part];
      for (const double seconds :
           {it.forward, it.backward_input, it.backward_weight, it.recompute, it.gather, it.update})
        if (!(seconds >= 0 && seconds <= most))
          throw config_error{error_text{} << "chunkmem: a time of part " << part << " is negative or no number"};
    }
    const auto refuse_link = [&](std::size_t index, std::string_view why) {
      throw config_error{error_text{} << "chunkmem: the link from stage " << index / stages << " to stage "
                                      << index % stages << " has " << why};
    };
    for (std::size_t index = 0; index < links.size(); ++index) {
      if (!(links[index].latency >= 0 && links[index].latency <= most))
        refuse_link(index, "a negative latency, or none");
      if (!(links[index].bytes_per_second > 0)) refuse_link(index, "a rate that is not above 0");
      if (links[index].channel != stage_link::unshared && links[index].channel >= links.size())
        refuse_link(index, "a channel that is not below the number of links");
    }
    if (!(to_host_bytes_per_second > 0) || !(to_device_bytes_per_second > 0))
      throw config_error{"a copy rate of a pipeline's stages is not above 0 (give bytes per second)"};
  }
};

/// The same times for every stage, divided equally among its parts, and the same latency for every link.
/// A second forward run takes as long as the first one.
[[nodiscard]] inline pipeline_costs uniform_costs(const schedule& plan, const pass_seconds& seconds)
{
  pipeline_costs costs;
  costs.stages = plan.stage_count();
  costs.links.resize(std::size_t{costs.stages} * costs.stages, stage_link{.latency = seconds.transfer});
  std::vector<double> parts_of(costs.stages, 0);
  for (const std::uint32_t owner : plan.owners) ++parts_of[owner];
  for (const std::uint32_t owner : plan.owners) {
    const double share = 1 / parts_of[owner];
    costs.parts.push_back({.forward = share * seconds.forward,
                           .backward_input = share * seconds.backward_input,
                           .backward_weight = share * seconds.backward_weight,
                           .recompute = share * seconds.forward,
                           .update = share * seconds.update});
  }
  return costs;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
