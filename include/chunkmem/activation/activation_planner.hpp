// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/policy.hpp>

#include <algorithm>
#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Decides which activations stay, leave or are computed again.
///
/// A planner sees times and sizes, never payloads. The same chain and budget give the same plan on every machine. Where
/// no plan fits, the result has `costs.fits == false` and the bytes that its fullest step lacks.
///
///     template <activation_planner Planner>
///     activation_plan plan_with(const Planner& planner, const layer_chain& chain, const activation_budget& budget)
///     {
///       return planner.plan(chain, budget);
///     }
template <class Policy>
concept activation_planner = names_itself<Policy> && std::same_as<typename Policy::policy_kind, activation_kind> &&
                             requires(const Policy& policy, const layer_chain& chain, const activation_budget& budget) {
                               {
                                 policy.plan(chain, budget)
                               } -> std::same_as<activation_plan>;
                             };

/// The lower bound of a step's time, in its two halves: no plan is faster.
///
///     const bound_parts bound = activation_bound(chain, budget);
///     std::cout << plan.costs.seconds / bound.seconds() << " of the bound\n";
struct bound_parts {
  double forward_seconds = 0;     ///< up to the first backward run
  double backward_seconds = 0;    ///< from then on
  double recomputed_seconds = 0;  ///< within backward_seconds
  double swapped_bytes = 0;       ///< each way

  [[nodiscard]] double seconds() const noexcept { return forward_seconds + backward_seconds; }
};

namespace detail {

/// Seconds that recomputing the cheapest `y` bytes takes: convex, linear between corners.
class recompute_costs {
 public:
  struct corner {
    double bytes = 0;
    double seconds = 0;
  };

  recompute_costs(const layer_chain& chain, const activation_budget& budget)
  {
    std::vector<corner> blocks;
    for (const chain_block& block : chain.blocks)
      blocks.push_back({static_cast<double>(budget.in_frames(block.inner()) + budget.in_frames(block.boundary)),
                        block.again_seconds()});
    std::erase_if(blocks, [](const corner& block) { return block.bytes == 0; });
    std::ranges::stable_sort(blocks, [](const corner& left, const corner& right) {
      return left.seconds * right.bytes < right.seconds * left.bytes;
    });
    corners_.push_back({});
    for (const corner& block : blocks)
      corners_.push_back({corners_.back().bytes + block.bytes, corners_.back().seconds + block.seconds});
  }
  [[nodiscard]] const std::vector<corner>& corners() const noexcept { return corners_; }
  /// @pre 0 <= bytes <= the last corner's
  [[nodiscard]] double seconds(double bytes) const noexcept
  {
    for (std::size_t index = 1; index < corners_.size(); ++index) {
      const auto& [to, seconds] = corners_[index];
      const auto& [from, before] = corners_[index - 1];
      if (bytes <= to) return before + (seconds - before) * ((bytes - from) / (to - from));
    }
    return corners_.back().seconds;
  }

 private:
  std::vector<corner> corners_;
};

}  // namespace detail

/// The least seconds that any plan of keeping, swapping and recomputing needs, whatever its order.
///
/// All saved bytes of a block are on the device at its backward run. When the forward pass ends, at most `device` bytes
/// are there, and skips and the tensors that the last block carries are among them. Each of the other E bytes is
/// recomputed afterwards, or was copied to the host before and comes back afterwards. With y bytes recomputed, at the
/// price of the cheapest blocks, a fraction of a block included:
///
///     min over y of  max(forward, (E - y) / to host)  +  max(backward + again(y), (E - y) / to device)
///
/// The sum is convex in y and linear between corners, so the least value lies at a corner. Working memory, gradients
/// and fixed costs of copies are left out, which keeps it a bound. Cost: O(blocks^2).
/// @throws config_error   the chain or the budget is invalid
[[nodiscard]] inline bound_parts activation_bound(const layer_chain& chain, const activation_budget& budget)
{
  budget.check(chain);
  const detail::recompute_costs again{chain, budget};
  const double all = again.corners().back().bytes;
  double carried = static_cast<double>(budget.in_frames(chain.blocks.back().carried));
  for (const chain_skip& skip : chain.skips) carried += static_cast<double>(budget.in_frames(skip.size));
  const double excess = std::max(0.0, all + carried - static_cast<double>(budget.device.count()));
  const double forward = chain.forward_seconds();
  const double backward = chain.backward_seconds();
  const auto value = [&](double made_again) {
    const double swapped = excess - made_again;
    const double recomputed = again.seconds(made_again);
    return bound_parts{std::max(forward, swapped / budget.to_host_bytes_per_second),
                       std::max(backward + recomputed, swapped / budget.to_device_bytes_per_second), recomputed,
                       swapped};
  };
  bound_parts least = value(0);
  const auto consider = [&](double made_again) {
    if (!(made_again >= 0 && made_again <= std::min(excess, all))) return;
    const bound_parts found = value(made_again);
    if (found.seconds() < least.seconds()) least = found;
  };
  consider(std::min(excess, all));
  consider(excess - forward * budget.to_host_bytes_per_second);
  for (std::size_t index = 1; index < again.corners().size(); ++index) {
    const auto& [to, seconds] = again.corners()[index];
    const auto& [from, before] = again.corners()[index - 1];
    consider(to);
    // Where the backward half changes from loads to runs: backward + before + slope (y - from) = (E - y) / rate.
    const double slope = (seconds - before) / (to - from);
    const double per_byte = 1 / budget.to_device_bytes_per_second;
    consider((excess * per_byte - backward - before + slope * from) / (slope + per_byte));
  }
  return least;
}

/// Fills in the costs of a plan, its bound, and the fingerprint of this chain.
/// @throws config_error   the plan does not fit this chain, or the chain or the budget is invalid
inline void cost_plan(activation_plan& plan, const layer_chain& chain, const activation_budget& budget)
{
  budget.check(chain);
  expect_plan_fits(plan, chain.size());
  plan.costs = chain_timeline{chain, budget}.run(plan);
  plan.costs.bound_seconds = activation_bound(chain, budget).seconds();
  plan.chain = chain_fingerprint(chain);
}

/// The plan with one action for each block, with its costs.
///
///     const activation_plan plan = plan_of("mine", chain, budget, {block_action::swap, block_action::keep});
[[nodiscard]] inline activation_plan plan_of(std::string_view planner, const layer_chain& chain,
                                             const activation_budget& budget, const std::vector<block_action>& actions)
{
  activation_plan plan;
  plan.planner = planner;
  set_actions(plan, actions);
  cost_plan(plan, chain, budget);
  return plan;
}

/// Whether the left plan is the better one: first by whether it fits, then by time, then by moved bytes, then by
/// recomputed seconds. Of two plans that do not fit, the better one lacks fewer bytes.
[[nodiscard]] inline bool is_better(const plan_costs& left, const plan_costs& right) noexcept
{
  if (left.fits != right.fits) return left.fits;
  if (!left.fits) return left.missing < right.missing;
  if (left.seconds != right.seconds) return left.seconds < right.seconds;
  if (left.moved != right.moved) return left.moved < right.moved;
  return left.recomputed_seconds < right.recomputed_seconds;
}

/// The better of two plans by a planner that does not handle skips: one whose skips stay on the device, and one whose
/// skips leave between their uses. For a chain without skips, the planner's own plan.
/// @param  plan_chain     a chain without skips to its plan
/// @throws config_error   the chain or the budget is invalid
template <class PlanChain>
[[nodiscard]] activation_plan better_with_skips(const layer_chain& chain, const activation_budget& budget,
                                                const PlanChain& plan_chain)
{
  budget.check(chain);
  if (chain.skips.empty()) return plan_chain(chain);
  activation_plan best;
  for (const std::uint8_t stay : {std::uint8_t{1}, std::uint8_t{0}}) {
    activation_plan tried = plan_chain(carrying_skips(chain, std::vector<std::uint8_t>(chain.size(), stay)));
    tried.skips_leave.assign(chain.size(), stay ^ 1U);
    cost_plan(tried, chain, budget);
    if (best.steps.empty() || is_better(tried.costs, best.costs)) best = std::move(tried);
  }
  return best;
}

/// The score of a plan for a search: its seconds. A plan that does not fit has far more, which grow with the missing
/// bytes.
[[nodiscard]] inline double searched_seconds(const layer_chain& chain, const plan_costs& costs)
{
  if (costs.fits) return costs.seconds;
  const double saved = static_cast<double>(chain.saved().count()) + 1;
  return chain.unlimited_seconds() * (1e3 + static_cast<double>(costs.missing.count()) / saved);
}

}  // namespace activation

}  // namespace chunkmem::inline v0
