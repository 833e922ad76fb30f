// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/planner/group_times.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace chunkmem::inline v0 {

namespace planner {

/// The compute of a step over several ranks that collectives wait for.
///
///     group_work work = group_work_of(shape, setup, flops_per_second);
///     work.forward_seconds = ..., work.backward_seconds = ...;   // of a step
struct group_work {
  double parameters = 0;         ///< of all ranks together
  double tables = 0;             ///< of these, the embedding's, which come first
  double vectors = 0;            ///< of these, those that no product takes
  double forward_seconds = 0;    ///< of compute
  double backward_seconds = 0;   ///< of compute, with recomputed layers
  double head_seconds = 0;       ///< of a head whose table is that of the embedding, both ways
  double parameter_seconds = 0;  ///< of a parameter of a matrix in the last layers, from its forward to its gradient
  double update_seconds = 0;     ///< of a parameter of a group, from the group's sum to its new weights on their ranks

  /// The least compute from the first use of a last group of so many parameters to its gradient.
  [[nodiscard]] double at_turn(double last) const noexcept
  {
    return head_seconds + parameter_seconds * std::max(0.0, std::min(last, parameters - tables - vectors) - vectors);
  }
};

/// Without the seconds of both passes. @param flops_per_second   of a device, as reached
/// @throws config_error, size_overflow   no such workload
[[nodiscard]] inline group_work group_work_of(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup, double flops_per_second)
{
  const workload::transformer_costs costs{shape, setup};
  const double token_seconds = static_cast<double>(costs.tokens()) / flops_per_second;
  const bool shares_head = shape.ties_embedding && setup.has_logits;
  constexpr double both_ways = 6;  // FLOP of a parameter and a token: a product forward, two backward
  // Of a sampled input, the weight's product takes a share of the rows.
  using enum workload::transformer_operator;
  const std::uint64_t least_rows =
      std::min({costs.rows_of(qkv), costs.rows_of(projection), costs.rows_of(mlp_up), costs.rows_of(mlp_down)});
  const double of_layers = 4 + 2 * static_cast<double>(least_rows) / static_cast<double>(costs.tokens());
  group_work made;
  // a head of its own is the last matrix, and no head is computed again
  made.parameter_seconds = token_seconds * (of_layers + (shares_head && setup.recomputes_layers ? 2 : 0));
  for (const workload::transformer_tensor& it : workload::tensors_of(shape)) {
    const auto elements = static_cast<double>(it.elements());
    made.parameters += elements;
    if (it.part == workload::transformer_operator::embedding) {
      if (shares_head && made.tables == 0) made.head_seconds = both_ways * token_seconds * elements;
      made.tables += elements;
    } else if (it.columns == 1 || (it.part == workload::transformer_operator::logits && !setup.has_logits)) {
      made.vectors += elements;
    }
  }
  // the head then uses parameters that are declared before the layers
  if (shape.projects_embedding()) made.head_seconds = made.parameter_seconds = 0;
  return made;
}

/// A lower bound of the time of a step over several ranks, for every size of its groups [s].
///
/// All groups have one size s, but for a smaller last group of r parameters. T(x) is the time of gathering x
/// parameters, and u s that of updating a group. The parameters are P, a step computes for C. Passes compute in the
/// order of training_script.
///
/// - The first group gets its gradient last, and the next forward pass needs it first. Its sum over ranks, its update
///   and its gather lie between, with no compute of a pass: C + 2 T(s) + u s.
/// - A gather and a sum of each group: 2 (P / s) T(s), since T(x) / x falls with x.
/// - When the last group begins its forward pass, all groups are gathered. When its gradient is there, all sums are
///   still to come. So the compute of the last group, a(r), comes on top of all gathers and sums. Groups that are
///   gathered again only add collectives. The same holds for the last two groups together, without the sum and the
///   gather of the last group: a(s + r) - 2 T(r). The bound takes the r that is best for the step.
/// - With a norm no gather begins before the last sum, that of the first group: the backward pass and T(s), then all
///   gathers and the forward part of a tied head. No update is counted: the smallest group can be updated first, and
///   its gather then covers the update of another one.
///
/// Large groups make the first and the third long, and small groups the second, for each collective has a latency.
/// @param exchange   shares of all ranks; for broadcasts there is no such bound: 0
/// Cost: some thousand evaluations of network_costs.
[[nodiscard]] inline double least_group_step(const group_work& work, const group_times& exchange, bool takes_norm)
{
  if (exchange.how != group_exchange::shares || exchange.network.ranks() == 1 || !(work.parameters >= 1)) return 0;
  const std::uint64_t ranks = exchange.network.ranks();
  const auto gather = [&](double parameters) {
    const std::uint64_t each = static_cast<std::uint64_t>(parameters) / ranks;
    const std::uint64_t nanoseconds = exchange.nanoseconds(bytes{2 * each * ranks});
    return static_cast<double>(nanoseconds - std::min<std::uint64_t>(nanoseconds, 1)) * 1e-9;
  };
  // Of groups from `small` to `large`: the time that the turn adds to the collectives.
  const auto turn = [&](double small, double large) {
    constexpr int parts = 16;
    double least = std::numeric_limits<double>::infinity();
    for (int part = 0; part < parts; ++part) {
      const double low = small * part / parts;
      const double high = large * (part + 1) / parts + static_cast<double>(ranks);
      least = std::min(least, std::max(work.at_turn(low), work.at_turn(low + small) - 2 * gather(high)));
    }
    return least;
  };
  // Of groups from `small` to `large`: those of a pass, and the step.
  const auto pass = [&](double large) { return work.parameters / large * gather(large); };
  const auto step = [&](double small, double large) {
    const double update = small * work.update_seconds;
    const double apart = takes_norm ? work.backward_seconds + gather(small) + pass(large) + work.head_seconds / 3 : 0;
    return std::max({work.forward_seconds + work.backward_seconds + 2 * gather(small) + update,
                     2 * pass(large) + turn(small, large), apart});
  };
  constexpr double finer = 1.02;
  const double smallest = 4'096.0 * static_cast<double>(ranks);  // smaller ones are one kind
  double large = work.parameters;
  double least = std::numeric_limits<double>::infinity();
  for (; large > smallest && 2 * pass(large) < least; large /= finer)
    least = std::min(least, step(large / finer, large));
  if (2 * pass(large) < least) least = std::min(least, step(static_cast<double>(ranks), large));
  return least;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
