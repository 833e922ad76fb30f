// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "training.hpp"

#include "../gpt/problem.hpp"
#include "../gpt/size_text.hpp"

#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <string>

namespace out_of_core {

/// The memory that a training needs and the memory that it is given.
struct memory_budget {
  chunkmem::bytes activations{};  ///< that all blocks save in one step
  chunkmem::bytes beside{};       ///< of the device: weights, gradients and pictures, in whole chunks
  chunkmem::bytes least{};        ///< the smallest device that runs a step of the plan, from a rehearsal
  memory_limits limited{};
  memory_limits unlimited{};  ///< room for everything at once
};

/// More than any training here needs. A rehearsal allocates nothing of it.
inline constexpr chunkmem::bytes boundless{std::uint64_t{1} << 50};

/// All sizes but those of the limited device, from a rehearsal that keeps every activation.
[[nodiscard]] inline memory_budget everything(const options& chosen, const picture_set& pictures)
{
  using chunkmem::role;
  memory_budget budget;
  // A chunk holds the narrowest output of a residual block. Larger tensors take whole chunks, smaller ones share one.
  const chunkmem::bytes narrow = bytes_of(static_cast<index>(chosen.batch) * shapes_of_network()[11].out.numbers());
  const chunkmem::bytes chunk = align_up(narrow, chunkmem::bytes{4096});
  training all{pictures, chosen.batch, {boundless, boundless, boundless, chunk, {}}, planner_choice::keep_all};
  const chunkmem::memory_requirement need = all.rehearse();
  budget.activations = all.net().chain().chain().saved();
  for (const role part : {role::parameter, role::gradient, role::buffer})
    budget.beside += align_up(need.by_role[part], chunk);
  const chunkmem::bytes host = need.chunks + chunk;
  budget.limited.host = host;
  budget.limited.chunk = chunk;
  budget.unlimited = {need.everything + 4 * chunk, host, boundless, chunk, all.net().chain().plan()};
  return budget;
}

/// Divides the device: activations get the bytes that the other tensors leave. Where the command line names no device,
/// the device is a quarter of the activations. For a small batch that is little more than the weights: then activations
/// get a quarter of their bytes.
/// @throws gpt::problem   the device is too small for weights and gradients, for a plan, or for a step of the plan
[[nodiscard]] inline memory_budget budget_for(const options& chosen, const picture_set& pictures)
{
  memory_budget budget = everything(chosen, pictures);
  memory_limits& limits = budget.limited;
  const std::uint64_t quarter = budget.activations.count() / 4 / limits.chunk.count();  // in whole chunks
  const chunkmem::bytes whole = quarter * limits.chunk;
  limits.device = chosen.device.value_or(whole > 3 * budget.beside ? whole : budget.beside + whole);
  const std::string too_small = "a device of " + gpt::size_text(limits.device) + " is too small: ";
  if (limits.device <= budget.beside)
    throw gpt::problem{too_small + "weights and gradients take " + gpt::size_text(budget.beside) +
                       " (make --device larger)"};
  limits.for_activations = limits.device - budget.beside;
  try {
    const memory_limits plenty{boundless, boundless, limits.for_activations, limits.chunk, {}};
    training planned{pictures, chosen.batch, plenty, chosen.planner};
    budget.least = planned.rehearse().smallest_device;
    limits.plan = planned.net().chain().plan();
  } catch (const chunkmem::config_error& no_plan) {
    throw gpt::problem{too_small + no_plan.what()};
  }
  if (budget.least > limits.device)
    throw gpt::problem{too_small + "a step needs " + std::to_string(budget.least.count()) +
                       " B (make --device that large)"};
  return budget;
}

}  // namespace out_of_core
