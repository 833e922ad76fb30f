// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activations.hpp"
#include "network.hpp"

#include <chunkmem/activation/chain_timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpt {

/// The order in which layers run, and the fate of their activations in between.
template <class Manager>
class layer_runs {
 public:
  layer_runs(const network<Manager>& net, activation_mode choice, const chunkmem::activation::activation_plan& plan)
      : n_{net}, keeps_{choice == activation_mode::keep}
  {
    const extents& size = net.handles().size;
    kept_.resize(size.layers);
    for (auto& pins : kept_) pins.reserve(size.batch * 7);
    use(plan.steps.empty() ? plan_layer_runs(activation_mode::keep, size) : plan);
  }

  /// Between two steps: later steps run in this order. @param plan   of the layers
  void use(const chunkmem::activation::activation_plan& plan)
  {
    plan_ = plan;
    using chunkmem::activation::chain_run;
    const auto first_of = [&](chain_run run) {
      const auto found = std::ranges::find(plan_.steps, run, &chunkmem::activation::chain_step::run);
      return static_cast<std::size_t>(found - plan_.steps.begin());
    };
    turn_ = static_cast<std::uint32_t>(first_of(chain_run::backward));
    runs_again_ = first_of(chain_run::passing) < plan_.steps.size();
    ends_.read(plan_, chain_of(n_.handles().size));
  }

  /// Runs of the forward pass. @param run_layer   called with the index of a layer
  template <class Run>
  void forward(const Run& run_layer)
  {
    for (std::uint32_t step = 0; step < turn_; ++step) {
      run_layer(plan_.steps[step].block);
      after_forward(step);
    }
  }
  /// Runs of the backward pass, including forward runs of recomputed layers.
  template <class Run, class Back>
  void backward(const Run& run_layer, const Back& back_layer)
  {
    for (std::uint32_t step = turn_; step < plan_.steps.size(); ++step) {
      const auto& [run, layer] = plan_.steps[step];
      if (run != chunkmem::activation::chain_run::backward) {
        run_layer(layer);
        after_forward(step);
        continue;
      }
      kept_[layer].clear();
      back_layer(layer);
      drop_after(step);
    }
  }
  /// Releases the pins that an interrupted step kept.
  void reset() noexcept
  {
    for (auto& pins : kept_) pins.clear();
  }

 private:
  using pin_type = decltype(std::declval<const network<Manager>&>().read(std::declval<chunkmem::tensor<float>>()));

  void after_forward(std::uint32_t step)
  {
    drop_after(step);
    if (!keeps_) return;
    const std::size_t layer = plan_.steps[step].block;
    for (const row_activations& row : n_.handles().rows)
      for (const auto& tensor : of_layer(row.layers[layer])) kept_[layer].push_back(n_.read(tensor));
  }
  /// A layer that never runs again drops its activations in its backward pass.
  void drop_after(std::uint32_t step)
  {
    if (!runs_again_) return;
    for (const auto& [when, layer, part] : ends_.after(step))
      for (const row_activations& row : n_.handles().rows) {
        if (part == chunkmem::activation::tensor_part::inner)
          drop_inner(row.layers[layer]);
        else if (layer + 1 < row.layers.size())
          n_.manager().drop(row.layers[layer + 1].input);
      }
  }
  void drop_inner(const saved_layer& saved)
  {
    for (const auto& tensor : of_layer(saved))
      if (!(tensor == saved.input)) n_.manager().drop(tensor);
  }

  const network<Manager>& n_;
  bool keeps_;
  bool runs_again_ = false;
  std::uint32_t turn_ = 0;  // step of the first backward run
  chunkmem::activation::activation_plan plan_;
  chunkmem::activation::tensor_ends ends_;
  std::vector<std::vector<pin_type>> kept_;  // by layer
};

}  // namespace gpt
