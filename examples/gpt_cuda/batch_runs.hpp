// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "batch_activations.hpp"
#include "layer.hpp"
#include "saved_activations.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_timeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gpt::cuda {

/// The order in which layers run for a micro-batch, and the fate of their activations in between.
///
/// A forward run right before the layer's backward run is a part of the backward run: its results are in the lease.
/// Tensors for saved activations are declared for the other layers that save.
template <class Manager, class Math>
class batch_runs {
 public:
  using network_type = network<Manager, Math>;
  using layers_type = layer_pass<Manager, Math>;

  /// @param plan      without steps: the forward pass keeps only the input of each layer
  /// @param samples   where a layer saves, it keeps rows of the output of attention
  batch_runs(const network_type& net, const layers_type& layers, activation_mode choice,
             const chunkmem::activation::activation_plan& plan, bool samples)
      : n_{net}, layers_{layers}, keeps_{choice == activation_mode::keep}, plan_{plan}
  {
    const extents& size = net.handles().size;
    if (plan_.steps.empty())
      chunkmem::activation::set_actions(plan_, std::vector(size.layers, chunkmem::activation::block_action::recompute));
    const auto last = std::ranges::find(plan_.steps, size.layers - 1, &chunkmem::activation::chain_step::block);
    turn_ = static_cast<std::uint32_t>(last - plan_.steps.begin()) + 1;
    ends_.read(plan_, batch_chain(size));
    saved_.resize(size.layers);
    kept_.resize(size.layers);
    for (std::uint32_t step = 0; step < plan_.steps.size(); ++step) {
      const auto& [run, layer] = plan_.steps[step];
      if (run == chain_run::saving && !is_in_backward(step) && !saved_[layer])
        saved_[layer] = declare_saved(net.manager(), size, samples);
    }
    for (auto& pins : kept_) pins.reserve(keeps_ ? pins_of_layer : 0);
  }

  /// Runs of the forward pass.
  void forward()
  {
    for (std::uint32_t step = 0; step < turn_; ++step) run_forward(step);
  }
  /// Runs of the backward pass, including forward runs of recomputed layers. Drops all activations.
  /// @param slope   on entry the gradient of the last layer's output, on return that of the first layer's input
  /// @param last    no other micro-batch follows in this step
  void backward(bf16* slope, bool last)
  {
    for (std::uint32_t step = turn_; step < plan_.steps.size(); ++step) {
      const auto& [run, layer] = plan_.steps[step];
      if (run != chain_run::backward) {
        if (!is_in_backward(step)) run_forward(step);
        continue;
      }
      if (is_in_backward(step - 1))
        layers_.backward(layer, slope, last);
      else
        layers_.backward(layer, *saved_[layer], slope, last);
      kept_[layer].clear();
      n_.manager().drop(n_.handles().inputs[layer]);
      drop_saved(layer);
    }
  }
  /// Releases the pins that an interrupted step kept.
  void reset() noexcept
  {
    for (auto& pins : kept_) pins.clear();
  }

 private:
  using chain_run = chunkmem::activation::chain_run;
  using pin_type = decltype(std::declval<const network_type&>().read(std::declval<chunkmem::tensor<bf16>>()));
  static constexpr std::size_t pins_of_layer = 5;

  /// Whether a step is a forward run that is a part of the next backward run.
  [[nodiscard]] bool is_in_backward(std::uint32_t step) const
  {
    if (step < turn_ || plan_.steps[step].run != chain_run::saving) return false;
    return plan_.steps[step + 1] == chunkmem::activation::chain_step{chain_run::backward, plan_.steps[step].block};
  }

  void run_forward(std::uint32_t step)
  {
    const auto& [run, layer] = plan_.steps[step];
    if (run == chain_run::saving)
      layers_.forward(layer, *saved_[layer]);
    else
      layers_.forward(layer);
    for (const auto& [when, of, part] : ends_.after(step)) {
      if (part == chunkmem::activation::tensor_part::inner)
        drop_saved(of);
      else if (of + 1 < saved_.size() || step >= turn_)  // the head reads the output of the last layer
        n_.manager().drop(n_.handles().inputs[of + 1]);
    }
    if (keeps_) keep(layer);
  }
  void keep(std::size_t layer)
  {
    kept_[layer].push_back(n_.read(n_.handles().inputs[layer]));
    saved_[layer]->for_each([&](const auto& tensor) { kept_[layer].push_back(n_.read(tensor)); });
  }
  void drop_saved(std::size_t layer)
  {
    if (!saved_[layer]) return;
    saved_[layer]->for_each([&](const auto& tensor) { n_.manager().drop(tensor); });
  }

  const network_type& n_;
  const layers_type& layers_;
  bool keeps_ = false;
  std::uint32_t turn_ = 0;  // steps before the head runs: the last layer ran once
  chunkmem::activation::activation_plan plan_;
  chunkmem::activation::tensor_ends ends_;
  std::vector<std::optional<saved_activations>> saved_;  // by layer
  std::vector<std::vector<pin_type>> kept_;              // by layer
};

}  // namespace gpt::cuda
