// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "either_gradient.hpp"
#include "run.hpp"
#include "size_text.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <unistd.h>

namespace gpt {

/// The memory of this machine, or of the container that this process runs in. A larger budget would end with the
/// kernel's out-of-memory killer.
/// @param limits   folder with the limits of a control group, version 2 or 1; missing, or "max": no limit
[[nodiscard]] inline chunkmem::bytes machine_memory(const std::filesystem::path& limits = "/sys/fs/cgroup")
{
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  const chunkmem::bytes all = chunkmem::bytes{static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))} * pages;
  chunkmem::bytes least = all;
  for (const char* name : {"memory.max", "memory/memory.limit_in_bytes"}) {
    std::ifstream file{limits / name};
    if (std::uint64_t most = 0; file >> most) least = std::min(least, chunkmem::bytes{most});
  }
  return least;
}

/// The most memory that a training may use.
struct memory_limits {
  chunkmem::bytes host;
  std::optional<chunkmem::bytes> device;  ///< none: host memory stands in for the device
};

/// @throws problem   the device is below the smallest that works, or a tier is above what the machine has
inline void check(const options& chosen, const memory_budget& budget, const memory_limits& limits)
{
  if (budget.device < budget.smallest_device) {
    const bool keeps = chosen.activations == activation_mode::keep;
    throw problem{"--device-memory " + size_text(budget.device) + " is too small: this model needs at least " +
                  std::to_string(budget.smallest_device.count()) + " B, which is " + size_text(budget.smallest_device) +
                  (keeps ? ", with --activations keep, which leaves all activations on the device (give that much, or "
                           "try --activations swap)"
                         : " (give that much, or make --width, --context or --chunk-bytes smaller)")};
  }
  if (limits.device && budget.device > *limits.device) {
    throw problem{"device memory " + size_text(budget.device) + " is more than the " + size_text(*limits.device) +
                  " that the device has free (give less)"};
  }
  const chunkmem::bytes beside = limits.device ? chunkmem::bytes{} : budget.device;
  if (beside > limits.host || budget.host > limits.host - beside) {
    const std::string what = limits.device ? "" : "device memory " + size_text(budget.device) + " and ";
    throw problem{what + "host memory " + size_text(budget.host) + " do" + (limits.device ? "es" : "") +
                  " not fit the " + size_text(limits.host) +
                  " of this machine (give less, or make --layers, --width or --batch smaller)"};
  }
}

/// @throws problem   the device has no room for everything
inline void check_unlimited(const memory_budget& budget, const memory_limits& limits)
{
  if (!limits.device || budget.unlimited_device <= *limits.device) return;
  throw problem{"--verify trains a second time with " + size_text(budget.unlimited_device) +
                ", room for everything, and the device has " + size_text(*limits.device) +
                " free (leave it out, or make --layers, --width or --batch smaller)"};
}

/// More than any model needs. Nothing of it is allocated before the first step.
inline constexpr chunkmem::bytes boundless{std::uint64_t{1} << 50};

/// The chunk size of the command line, or the one between the largest tensor and twice that size that takes the fewest
/// bytes.
template <class Training>
[[nodiscard]] chunkmem::bytes chunk_for(const options& chosen, const training_text& text,
                                        chunkmem::optimizer::thread_pool& workers)
{
  if (chosen.chunk_bytes) return *chosen.chunk_bytes;
  const either_gradient gradient{chosen.gradient};
  const std::uint64_t largest = Training::largest_tensor_bytes(chosen.size);
  chunkmem::bytes best;
  chunkmem::bytes least = boundless;
  for (std::uint64_t sixteenths = 16; sixteenths <= 32; ++sixteenths) {
    const chunkmem::bytes candidate = align_up(chunkmem::bytes{largest * sixteenths / 16}, chunkmem::bytes{4096});
    const chunkmem::bytes taken =
        session_as_chosen<Training>({chosen, text, workers, candidate}, boundless, boundless, gradient).chunks();
    if (taken >= least) continue;
    best = candidate;
    least = taken;
  }
  return best;
}

/// Makes the plan of activations that the command line requests.
///
/// Planners get the device, less the bytes that a step takes apart from activations: those of a step that keeps only
/// the input of each layer. A plan that needs more frames than it counts is made again for less room.
/// @tparam Training   has `plan`   @param rehearse   `rehearse()`: the need of a step by the plan of `setup`
template <class Training, class Rehearse>
void choose_activations(training_setup& setup, Rehearse rehearse)
{
  const options& chosen = setup.chosen;
  const auto plan_for = [&](activation_mode choice, chunkmem::bytes device) {
    setup.plan = Training::plan(choice, chosen, device);
  };
  plan_for(activation_mode::recompute, boundless);
  if (!is_planned(chosen.activations)) return plan_for(chosen.activations, boundless);
  if constexpr (Training::foresees) return;  // its first steps recompute, and measure the times that a plan needs
  const auto least = rehearse();
  const chunkmem::bytes quarter{least.everything.count() / 4};
  const chunkmem::bytes device = std::max(chosen.device_memory.value_or(quarter), least.smallest_device);
  chunkmem::bytes room = device - least.smallest_device + setup.plan.costs.device_peak;
  for (int attempt = 0; attempt < 8; ++attempt) {
    plan_for(chosen.activations, room);
    const chunkmem::bytes need = setup.plan.costs.fits ? rehearse().smallest_device : boundless;
    if (need <= device) return;
    const chunkmem::bytes excess = std::min(need - device, chunkmem::bytes{room.count() / 8});
    room -= std::max(excess, chunkmem::bytes{std::min<std::uint64_t>(room.count(), setup.chunk.count() / 4)});
  }
  plan_for(activation_mode::recompute, boundless);
}
/// The same for one manager.
template <class Training>
void choose_activations(training_setup& setup)
{
  choose_activations<Training>(setup, [&] {
    return session_as_chosen<Training>(setup, boundless, boundless, either_gradient{setup.chosen.gradient}).rehearse();
  });
}

/// Sets the capacities that the command line leaves open.
///
/// The need is counted in bytes of tensors and leases, not in chunks: unused room in chunks is no need.
/// @param need   of a rehearsed step   @param luxury   `luxury()`: the need of the second training of --verify
/// @throws problem   see check
template <class Luxury>
[[nodiscard]] memory_budget settled_budget(const training_setup& setup, const chunkmem::memory_requirement& need,
                                           const memory_limits& limits, Luxury luxury)
{
  using chunkmem::role;
  memory_budget budget;
  budget.weights = need.by_role[role::parameter] + need.by_role[role::frozen];
  budget.gradients = need.by_role[role::gradient];
  budget.optimizer_states = need.by_role[role::optimizer_state];
  budget.activations = need.by_role[role::activation];
  budget.workspace = need.largest_leases + need.by_role[role::gathered];
  budget.everything =
      budget.weights + budget.gradients + budget.optimizer_states + budget.activations + budget.workspace;
  budget.smallest_device = need.smallest_device;
  const chunkmem::bytes quarter{budget.everything.count() / 4};
  budget.device = setup.chosen.device_memory.value_or(std::max(quarter, need.smallest_device));
  budget.host = setup.chosen.host_memory.value_or(need.chunks + setup.chunk + setup.host_leases());
  check(setup.chosen, budget, limits);
  const chunkmem::memory_requirement without_limits = luxury();
  budget.unlimited_device = without_limits.everything + 4 * setup.chunk;
  budget.unlimited_host = std::max(budget.host, without_limits.chunks + setup.chunk);
  if (setup.chosen.verify) check_unlimited(budget, limits);
  return budget;
}
/// The budget of one manager, by a rehearsed step on a memory without bytes.
/// @throws problem   see check
template <class Training>
[[nodiscard]] memory_budget budget_for(const training_setup& setup)
{
  const auto need =
      session_as_chosen<Training>(setup, boundless, boundless, either_gradient{setup.chosen.gradient}).rehearse();
  return settled_budget(setup, need, Training::limits(), [&] {
    return session<Training>{setup.without_plan(), boundless, boundless, either_gradient{}}.rehearse();
  });
}

}  // namespace gpt
