// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_bound.hpp>
#include <chunkmem/activation/activation_budget.hpp>
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/policy.hpp>

#include <concepts>
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

/// Fills in the costs of a plan, and its bound. The plan is one of this chain from then on.
/// @throws config_error   the plan is not one of this chain, or the chain or the budget cannot be
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

/// Whether a plan is the better one: it fits; then it is faster; then it moves fewer bytes; then it computes less
/// again. Of two that do not fit, the better one lacks fewer bytes.
[[nodiscard]] inline bool is_better(const plan_costs& left, const plan_costs& right) noexcept
{
  if (left.fits != right.fits) return left.fits;
  if (!left.fits) return left.missing < right.missing;
  if (left.seconds != right.seconds) return left.seconds < right.seconds;
  if (left.moved != right.moved) return left.moved < right.moved;
  return left.recomputed_seconds < right.recomputed_seconds;
}

}  // namespace activation

}  // namespace chunkmem::inline v0
