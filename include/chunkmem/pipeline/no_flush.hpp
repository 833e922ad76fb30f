// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/in_flight_order.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The fewest versions of the weights with which a pipeline never has to empty: 1 + ceil((d - 1) / m). @pre m > 0
[[nodiscard]] constexpr std::uint32_t fewest_versions(std::uint32_t stages, std::uint32_t micro_batches) noexcept
{
  return stages == 0 ? 1 : 1 + (stages - 1 + micro_batches - 1) / micro_batches;
}

/// Pairs of runs that a stage has from the last backward run of a batch until the first forward run that reads the
/// version which the batch makes: (K - 1) m - (d - 1 - s). An update aside that takes no longer costs no time, if the
/// stage has two sets of gradients. @pre K versions are enough
[[nodiscard]] constexpr std::uint32_t update_slack(std::uint32_t stages, std::uint32_t micro_batches,
                                                   std::uint32_t versions, std::uint32_t stage) noexcept
{
  const std::uint64_t pairs = std::uint64_t{versions - 1} * micro_batches - (stages - 1 - stage);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(pairs, UINT32_MAX));
}

/// `one_f_one_b` that never empties between batches, with K versions of the weights.
///
/// Batch t reads version max(0, t - (K - 1)), so its gradients come K - 1 updates late: the bits are those of delayed
/// SGD. T batches take (T m + d - 1)(F + B + W) without transfer times. With two versions this is PipeDream-2BW; with
/// one micro-batch in a batch and d versions it is PipeDream with vertical sync.
/// Source: PipeDream-2BW (Narayanan et al., 2021, arXiv 2006.09503). Cost: O(steps).
///
///     const schedule plan = make_schedule(no_flush{.versions = 2}, {.stages = 4, .micro_batches = 8, .batches = 10});
class no_flush {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "no_flush";

  std::uint32_t versions = 2;      ///< of the weights; at least fewest_versions(d, m)
  std::uint32_t update_delay = 0;  ///< pairs of runs between the last backward run of a batch and its update; at most
                                   ///< update_slack. Above 0, a stage needs two sets of gradients.
  bool for_all_stages = false;  ///< an update needs gradients of all stages, such as a norm: stage s has its update s
                                ///< pairs later than stage 0, so that no stage waits. Needs two sets of gradients.
  std::uint32_t gradient_sets = 0;  ///< two let the next batch add up while an update runs; 0: as many as needed

  /// @throws config_error   too few versions, or a delay that a stage has no time for
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    const std::uint32_t needed = fewest_versions(shape.stages, shape.micro_batches);
    if (versions < needed)
      throw config_error{error_text{} << "chunkmem: " << shape.stages << " stages with " << shape.micro_batches
                                      << " micro-batches in a batch need " << needed << " versions of the weights, not "
                                      << versions << " (add versions, or micro-batches)"};
    const std::uint32_t slack = update_slack(shape.stages, shape.micro_batches, versions, 0);
    if (update_delay > std::min(slack, shape.micro_batches))
      throw config_error{error_text{} << "chunkmem: an update cannot come " << update_delay
                                      << " pairs of runs late: stage 0 has " << slack << " pairs, and a batch has "
                                      << shape.micro_batches << " (choose a smaller delay)"};
    const std::uint64_t latest = std::uint64_t{update_delay} + (for_all_stages ? shape.stages - 1 : 0);
    if (for_all_stages && latest >= shape.micro_batches)
      throw config_error{error_text{} << "chunkmem: updates for all stages come up to " << latest
                                      << " pairs of runs late, and the next batch ends after " << shape.micro_batches
                                      << " (add micro-batches)"};
    schedule plan = empty_schedule(name, shape);
    plan.versions = versions;
    plan.gradient_sets = std::max(gradient_sets, latest == 0 ? 1U : 2U);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage)
      in_flight_order{.ahead = shape.stages - stage,
                      .updates_within = true,
                      .update_delay = update_delay + (for_all_stages ? stage : 0)}
          .append(plan, stage, 0, plan.all_micro_batches());
    return plan;
  }
};

static_assert(schedule_generator<no_flush>);

}  // namespace pipeline

}  // namespace chunkmem::inline v0
