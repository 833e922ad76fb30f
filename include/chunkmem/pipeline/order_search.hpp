// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/pipeline/greedy_orders.hpp>
#include <chunkmem/pipeline/pass_clock.hpp>
#include <chunkmem/pipeline/pass_orders.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Looks for orders of one batch with the shortest span of a stage, under a limit of what a stage saves.
///
/// First the best greedy orders of all rules. Then simulated annealing: a run moves some places within its
/// stage, and a worse result stays with a probability that falls to 0. The same problem gives the same orders on every
/// machine with the same `exp`.
///
///     const pass_orders orders = order_search{problem}.best(greedy, 50'000);
///
/// Cost: O((rules times stages + trials) runs).
class order_search {
 public:
  /// @param problem   outlives the search
  explicit order_search(const order_problem& problem) : problem_{problem}, clock_{problem} {}

  /// The best of these rules and orders, and of `trials` changes. @param known   orders of other sources: those that do
  /// not keep to the limit are left out   @throws config_error   no rule and no order leads to an end
  [[nodiscard]] pass_orders best(const std::vector<greedy_rules>& rules, std::uint32_t trials,
                                 const std::vector<pass_orders>& known = {})
  {
    greedy_orders greedy{problem_};
    best_.assign(problem_.stages, {});
    best_span_ = pass_clock::never;
    for (const pass_orders& orders : known)
      if (std::ranges::all_of(orders, [&](const auto& runs) { return fits(problem_, runs, counts_); }))
        consider(orders);
    for (const greedy_rules& it : rules)
      if (pass_orders orders = greedy.make(it); !orders[0].empty()) consider(std::move(orders));
    if (best_span_ == pass_clock::never)
      throw config_error{"no order of a pipeline's runs keeps to the limit of what stages save (raise the limit)"};
    if (best_span_ > shortest()) anneal(trials);
    return best_;
  }

 private:
  void consider(pass_orders orders)
  {
    const pass_clock::spans found = clock_.run(orders);
    if (!(found.longest < best_span_)) return;
    best_span_ = found.longest;
    best_ = std::move(orders);
  }

  static constexpr std::uint64_t farthest = 6;  // places that a run moves

  /// No stage is faster than its runs.
  [[nodiscard]] double shortest() const
  {
    const double each = problem_.forward + problem_.backward_input + problem_.backward_weight;
    return each * problem_.micro_batches * problem_.part_count() / problem_.stages * (1 + 1e-12);
  }

  /// The longest span counts; the others and early ends tell neighbours of equal span apart.
  [[nodiscard]] double cost_of(const pass_clock::spans& found) const
  {
    const double runs = static_cast<double>(problem_.part_count()) * problem_.micro_batches;
    return found.longest + 0.02 * found.sum / problem_.stages + 1e-4 * found.ends / runs;
  }

  void anneal(std::uint32_t trials)
  {
    splitmix64 dice;
    pass_orders orders = best_;
    double cost = cost_of(clock_.run(orders));
    const double hottest = 0.003 * (problem_.forward + problem_.backward_input + problem_.backward_weight);
    for (std::uint32_t trial = 0; trial < trials; ++trial) {
      const double heat = hottest * (1 - static_cast<double>(trial) / trials);
      std::vector<pass>& runs = orders[dice.next() % problem_.stages];
      const std::uint64_t from = dice.next() % runs.size();
      const std::uint64_t distance = 1 + dice.next() % farthest;
      const bool is_later = dice.next() % 2 == 0;
      const double chance = static_cast<double>(dice.next() >> 11U) * 0x1p-53;
      if (is_later ? from + distance >= runs.size() : from < distance) continue;
      const std::uint64_t to = is_later ? from + distance : from - distance;
      if (runs[from] == runs[to]) continue;
      move(runs, from, to);
      const pass_clock::spans found = fits(problem_, runs, counts_) ? clock_.run(orders) : pass_clock::spans{};
      const double next = cost_of(found);
      if (next <= cost || (next < pass_clock::never && chance < std::exp((cost - next) / heat))) {
        cost = next;
        if (found.longest >= best_span_) continue;
        best_span_ = found.longest;
        best_ = orders;
      } else {
        move(runs, to, from);
      }
    }
  }

  static void move(std::vector<pass>& runs, std::uint64_t from, std::uint64_t to)
  {
    const auto begin = runs.begin();
    const auto at = [&](std::uint64_t index) { return begin + static_cast<std::ptrdiff_t>(index); };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    if (from > to) std::rotate(at(to), at(from), at(from + 1));
  }

  const order_problem& problem_;
  pass_clock clock_;
  pass_orders best_;
  double best_span_ = pass_clock::never;
  std::vector<std::int64_t> counts_;
};

/// A schedule of searched orders, the same for each batch.
/// @param plan    without steps: its owners count   @param limit, kept   as zero_bubble's
/// @throws config_error   a limit below one micro-batch, no part from 0 to 1, or no order keeps to the limit
[[nodiscard]] inline schedule searched_schedule(schedule plan, const pipeline_shape& shape, double limit, double kept,
                                                const std::vector<greedy_rules>& rules, std::uint32_t trials,
                                                const std::vector<pass_orders>& known = {})
{
  if (!(kept >= 0 && kept <= 1))
    throw config_error{"what gradients of weights read is no part of what is saved (give kept from 0 to 1)"};
  if (!(limit * shape.stages >= 1))
    throw config_error{"a stage cannot save a single micro-batch (give a limit of at least 1 over the stages)"};
  const double rounds = plan.part_count() / shape.stages;  // parts of a stage
  const order_problem problem{.stages = shape.stages,
                              .micro_batches = shape.micro_batches,
                              .owners = plan.owners,
                              .forward = shape.seconds.forward / rounds,
                              .backward_input = shape.seconds.backward_input / rounds,
                              .backward_weight = shape.seconds.backward_weight / rounds,
                              .transfer = shape.seconds.transfer,
                              .kept = kept,
                              .limit = rounds * limit * shape.stages};
  const pass_orders found = order_search{problem}.best(rules, trials, known);
  for (std::uint32_t batch = 0; batch < shape.batches; ++batch) append_orders(plan, found, batch);
  return plan;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
