#pragma once

#include "run.hpp"

#include <algorithm>

#include <unistd.h>

namespace gpt {

/// The memory of this machine. A budget above it could only end in the kernel's hands.
[[nodiscard]] inline chunkmem::bytes machine_memory()
{
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  return chunkmem::bytes{static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))} * pages;
}

/// A device on which nothing ever has to leave, with a little room for the loops that are not rehearsed.
[[nodiscard]] inline chunkmem::bytes unlimited_device(const memory_budget& budget)
{
  return budget.everything + 4 * budget.chunk;
}

/// @throws problem   the device is below the smallest that works, or both together are above what the machine has
inline void check(const memory_budget& budget)
{
  if (budget.device < budget.smallest_device) {
    throw problem{"--device-memory " + size_text(budget.device) + " (" + std::to_string(budget.device.count()) +
                  " B) is too small: this model needs at least " + std::to_string(budget.smallest_device.count()) +
                  " B (give that much, or make --width, --context or --chunk-bytes smaller)"};
  }
  const chunkmem::bytes machine = machine_memory();
  if (budget.device > machine || budget.host > machine - budget.device) {
    throw problem{"device memory " + size_text(budget.device) + " and host memory " + size_text(budget.host) +
                  " do not fit the " + size_text(machine) +
                  " of this machine (give less, or make --layers, --width or --batch smaller)"};
  }
}

/// Rehearses one step on a memory without bytes and settles the capacities that the command line leaves open.
/// @throws problem   see check
template <class Manager>
[[nodiscard]] memory_budget budget_for(const training_setup& setup)
{
  using chunkmem::role;
  const chunkmem::bytes boundless{std::uint64_t{1} << 50};
  session<Manager> rehearsal{setup, boundless, boundless};
  const auto need = rehearsal.rehearse();
  memory_budget budget;
  budget.weights = need.by_role[role::parameter];
  budget.gradients = need.by_role[role::gradient];
  budget.optimizer_states = need.by_role[role::optimizer_state];
  budget.activations = need.by_role[role::activation];
  budget.workspace = need.largest_leases;
  budget.everything = need.everything;
  budget.smallest_device = need.smallest_device;
  budget.chunk = setup.chunk();
  const chunkmem::bytes quarter{need.everything.count() / 4};
  budget.device = setup.chosen.device_memory.value_or(std::max(quarter, need.smallest_device));
  budget.host = setup.chosen.host_memory.value_or(need.chunks + budget.chunk);
  check(budget);
  return budget;
}

}  // namespace gpt
