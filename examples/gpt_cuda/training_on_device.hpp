// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "batch_activations.hpp"
#include "batch_sampler.hpp"
#include "budget.hpp"
#include "policies.hpp"
#include "trainer.hpp"

#include <chunkmem/placement/placement_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::cuda {

/// The largest tensor, which a chunk has to hold [bytes]: a momentum in float32, a table, or the output of a layer for
/// a micro-batch.
[[nodiscard]] inline std::uint64_t largest_batch_tensor(const extents& size)
{
  const std::uint64_t table = 4 * std::max(std::uint64_t{vocabulary}, std::uint64_t{size.context}) * size.width;
  return std::max(
      {std::uint64_t{16} * size.width * size.width, table, 2 * std::uint64_t{size.batch} * size.context * size.width});
}

/// The training on a GPU, for the program that it shares with the training on the CPU.
///
/// @tparam Backend    made from {.device_capacity, .host_capacity}
/// @tparam Manager    on it
/// @tparam Math       see network
/// @tparam Machine    `Machine::limits()` gives the most memory of a training
template <class Backend, class Manager, class Math, class Machine>
struct training_on_device {
  using backend_type = Backend;
  using manager_type = Manager;
  using model_type = batch_model;
  using trainer_type = batch_trainer<Manager, Math>;

  /// Updates on the device run there under any placement, so here the placement of states decides who updates: see
  /// settle.
  static constexpr bool places_states = false;
  static constexpr bool foresees = false;
  static constexpr bool exports = false;

  [[nodiscard]] static model_type declare(Manager& manager, const extents& size, chunkmem::dtype precision)
  {
    return declare_batch_model(manager, size, precision);
  }
  [[nodiscard]] static chunkmem::activation::activation_plan plan(activation_mode choice, const options& chosen,
                                                                  chunkmem::bytes device)
  {
    return plan_batch(choice, chosen, device);
  }
  [[nodiscard]] static std::string sample(trainer_type& model, std::string_view prompt, std::size_t count,
                                          std::uint64_t seed)
  {
    return batch_sampler<trainer_type>{model}.write(prompt, count, seed);
  }
  [[nodiscard]] static std::uint64_t largest_tensor_bytes(const extents& size) { return largest_batch_tensor(size); }
  [[nodiscard]] static memory_limits limits() { return Machine::limits(); }

  /// `--update placement` becomes cpu or gpu: the side where the placement keeps most of the states, after all other
  /// needs of a step on this device.
  static void settle(options& chosen, const training_text& text, chunkmem::optimizer::thread_pool& workers,
                     chunkmem::bytes chunk)
  {
    if (chosen.update != update_choice::placement) return;
    chosen.update = update_choice::cpu;
    chunkmem::bytes device;
    chunkmem::memory_requirement need;
    {
      const training_setup setup{chosen, text, workers, chunk};
      device = budget_for<training_on_device>(setup).device;
      need = session<training_on_device>{setup, boundless, boundless, either_gradient{chosen.gradient}}.rehearse();
    }
    if (share_on_device(chosen, device, need) >= 0.5) chosen.update = update_choice::gpu;
  }

 private:
  /// The part of the bytes of states that is on the device.
  [[nodiscard]] static double share_on_device(const options& chosen, chunkmem::bytes device,
                                              const chunkmem::memory_requirement& need)
  {
    // Every parameter has the same bytes of states, so equal parts stand for the parameters.
    const chunkmem::bytes all = need.by_role[chunkmem::role::optimizer_state];
    const std::vector<chunkmem::bytes> states(64, chunkmem::bytes{all.count() / 64});
    std::vector<chunkmem::tier> tiers(states.size());
    const chunkmem::bytes working{need.chunks.count() - std::min(all, need.chunks).count()};
    chosen.placement.assign({.device = device,
                             .working = working,
                             .peak_leased = need.largest_leases,
                             .is_measured = true,
                             .states = states},
                            tiers);
    const auto there = std::count(tiers.begin(), tiers.end(), chunkmem::tier::device);
    return static_cast<double>(there) / static_cast<double>(tiers.size());
  }
};

}  // namespace gpt::cuda
