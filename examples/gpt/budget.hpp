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

/// @throws problem   the device is below the smallest that works, or both together are above what the machine has
inline void check(const memory_budget& budget)
{
  if (budget.device < budget.smallest_device) {
    throw problem{"--device-memory " + size_text(budget.device) + " is too small: this model needs at least " +
                  std::to_string(budget.smallest_device.count()) + " B, which is " + size_text(budget.smallest_device) +
                  " (give that much, or make --width, --context or --chunk-bytes smaller)"};
  }
  const chunkmem::bytes machine = machine_memory();
  if (budget.device > machine || budget.host > machine - budget.device) {
    throw problem{"device memory " + size_text(budget.device) + " and host memory " + size_text(budget.host) +
                  " do not fit the " + size_text(machine) +
                  " of this machine (give less, or make --layers, --width or --batch smaller)"};
  }
}

/// More than any model has. Nothing of it is allocated before the first step.
inline constexpr chunkmem::bytes boundless{std::uint64_t{1} << 50};

/// The chunk size asked for, or the one from the largest tensor to twice as much that leaves the least room unused.
template <class Manager>
[[nodiscard]] chunkmem::bytes chunk_for(const options& chosen, const training_text& text,
                                        chunkmem::optimizer::thread_pool& workers)
{
  if (chosen.chunk_bytes) return *chosen.chunk_bytes;
  const either_gradient gradient{chosen.gradient};
  const std::uint64_t largest = chosen.size.largest_tensor_bytes();
  chunkmem::bytes best;
  chunkmem::bytes least = boundless;
  for (std::uint64_t sixteenths = 16; sixteenths <= 32; ++sixteenths) {
    const chunkmem::bytes candidate = align_up(chunkmem::bytes{largest * sixteenths / 16}, chunkmem::bytes{4096});
    const chunkmem::bytes taken =
        session_as_chosen<Manager>({chosen, text, workers, candidate}, boundless, boundless, gradient).chunks();
    if (taken >= least) continue;
    best = candidate;
    least = taken;
  }
  return best;
}


/// Rehearses one step on a memory without bytes and settles the capacities that the command line leaves open.
///
/// The need is counted in bytes of tensors and leases, not in chunks: room that chunks leave unused is no need.
/// @throws problem   see check
template <class Manager>
[[nodiscard]] memory_budget budget_for(const training_setup& setup)
{
  using chunkmem::role;
  const auto need =
      session_as_chosen<Manager>(setup, boundless, boundless, either_gradient{setup.chosen.gradient}).rehearse();
  memory_budget budget;
  budget.weights = need.by_role[role::parameter];
  budget.gradients = need.by_role[role::gradient];
  budget.optimizer_states = need.by_role[role::optimizer_state];
  budget.activations = need.by_role[role::activation];
  budget.workspace = need.largest_leases;
  budget.everything =
      budget.weights + budget.gradients + budget.optimizer_states + budget.activations + budget.workspace;
  budget.smallest_device = need.smallest_device;
  const chunkmem::bytes quarter{budget.everything.count() / 4};
  budget.device = setup.chosen.device_memory.value_or(std::max(quarter, need.smallest_device));
  budget.host = setup.chosen.host_memory.value_or(need.chunks + setup.chunk);
  check(budget);
  const auto luxury = session<Manager>{setup, boundless, boundless, either_gradient{}}.rehearse();
  budget.unlimited_device = luxury.everything + 4 * setup.chunk;
  budget.unlimited_host = std::max(budget.host, luxury.chunks + setup.chunk);
  return budget;
}

}  // namespace gpt
