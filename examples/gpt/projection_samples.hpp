// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"
#include "problem.hpp"
#include "sample_ratios.hpp"

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/ratio_search.hpp>
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/activation/sampling_report.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace gpt {

/// Inputs of the projections after attention, and with ReLU those of the last product of the MLP. Some rows of each are
/// kept for the gradient of the weight.
///
/// Only these saved tensors of a layer have no other use in the backward pass: the inputs of the other products are
/// recomputed by a norm or GELU from numbers that their own backward pass needs. ReLU needs a bit for each number.
/// Windows at random places of the text do not come back, and have no norms of earlier visits. Fixed windows do.
///
///     projection_samples<Manager> samples{m, net, {.ratio = 0.3}, seed, windows};
///     samples.begin(step, scale), samples.set(row, number);   // then forward and backward
///     samples.of(layer, row).keep(samples.batch(row), attended);
///     samples.commit(ranks...);                               // after the step
template <class Manager>
class projection_samples {
 public:
  using input_type = chunkmem::activation::sampled_input<Manager, float>;

  /// @param how       how many rows of each input are kept
  /// @param windows   number of windows that come back; 0: none does
  projection_samples(Manager& manager, const model& net, const sample_settings& how, std::uint64_t seed,
                     std::uint64_t windows)
      : norms_{{.name = "sampling", .samples = windows, .seed = seed, .measures_noise = how.measures_noise}},
        batch_{net.rows.size()},
        sites_of_layer_{net.size.mlp == nonlinearity::relu ? std::size_t{2} : std::size_t{1}},
        numbers_(batch_)
  {
    for (std::size_t layer = 0; layer < net.layers.size(); ++layer) {
      const layer_weights& weights = net.layers[layer];
      const auto read_by = [](const weight& whole, const adapter& beside) {
        return beside.rank > 0 ? beside.down : whole;
      };
      const auto add = [&](const char* what, std::size_t width, const weight& reader) {
        const std::string name = "layer " + std::to_string(layer) + ' ' + what;
        const auto site = norms_.add(name, static_cast<std::uint32_t>(net.size.context));
        ratios_.push_back(how.of(name));
        for (std::size_t row = 0; row < batch_; ++row)
          inputs_.emplace_back(
              manager, norms_, site,
              chunkmem::activation::sampling_options{.rows = net.size.context, .width = width, .ratio = ratios_.back()},
              std::initializer_list<chunkmem::tensor_handle>{reader});
      };
      add("attended", net.size.width, read_by(weights.projection, weights.beside_projection));
      if (net.size.mlp != nonlinearity::relu) continue;
      add("hidden", 4 * net.size.width, read_by(weights.contract, weights.beside_contract));
      for (std::size_t row = 0; row < batch_; ++row)
        positive_.push_back(
            manager.template add<std::uint8_t>({net.size.context * net.size.width / 2}, chunkmem::role::activation));
    }
    manager.use(norms_);
    saved_ratios_ = ratios_;
    manager.state("sampling/ratios", std::as_writable_bytes(std::span{saved_ratios_}));
  }

  /// Checks that a loaded training keeps the same ratio of rows. @throws problem   its ratios were others
  void check_ratios() const
  {
    for (std::size_t site = 0; site < ratios_.size(); ++site)
      if (saved_ratios_[site] != ratios_[site])
        throw problem{"--resume continues a training that keeps " + ratio_text(saved_ratios_[site]) +
                      " of the rows of \"" + inputs_[site * batch_].name() + "\", and here it is " +
                      ratio_text(ratios_[site]) + " (give the --activations sample= that it was begun with)"};
  }
  /// Calls `visit(name, options)` for each input of one row, in the order of ratios.
  template <class Visit>
  void for_each_input(Visit visit) const
  {
    for (std::size_t at = 0; at < inputs_.size(); at += batch_) visit(inputs_[at].name(), inputs_[at].options());
  }
  /// From now on a search gets the rows of each input. @param search   null: none does
  void search_with(chunkmem::activation::ratio_search* search) noexcept { search_ = search; }
  /// Called after `keep` of this input.
  void look(const input_type& kept)
  {
    if (search_ != nullptr && !kept.manager().rehearsing())
      search_->add(kept.name(), kept.options(), chunkmem::dtype::float32, kept.weights());
  }
  /// Between two steps.
  [[nodiscard]] chunkmem::activation::sampling_report report() { return norms_.report(); }

  /// A micro-batch begins. @param loss_scale   of its gradients
  void begin(std::uint64_t step, float loss_scale) noexcept
  {
    step_ = step;
    loss_scale_ = loss_scale;
  }
  /// @param number   of the row's window: its begin in the text, or its index among fixed windows
  void set(std::size_t row, std::uint64_t number) noexcept { numbers_[row] = number; }
  /// Adds the norms of a step. @param ranks   that train together; each rank calls this function
  template <class... Ranks>
  void commit(Ranks&... ranks)
  {
    norms_.commit(ranks...);
  }

  /// The input of a projection.
  [[nodiscard]] input_type& of(std::size_t layer, std::size_t row) noexcept { return input(layer, 0, row); }
  /// The output of ReLU.
  [[nodiscard]] input_type& hidden(std::size_t layer, std::size_t row) noexcept { return input(layer, 1, row); }
  /// A bit for each of its numbers: 1 if the number is above 0.
  [[nodiscard]] chunkmem::tensor<std::uint8_t> positive(std::size_t layer, std::size_t row) const noexcept
  {
    return positive_[layer * batch_ + row];
  }
  [[nodiscard]] chunkmem::activation::sampled_batch batch(std::size_t row) const noexcept
  {
    return {.step = step_, .samples = std::span{numbers_}.subspan(row, 1), .loss_scale = loss_scale_};
  }

 private:
  [[nodiscard]] input_type& input(std::size_t layer, std::size_t site, std::size_t row) noexcept
  {
    return inputs_[(layer * sites_of_layer_ + site) * batch_ + row];
  }

  chunkmem::activation::norm_cache norms_;
  std::size_t batch_;
  std::size_t sites_of_layer_;
  std::vector<std::uint64_t> numbers_;         // by row
  std::deque<input_type> inputs_;              // by layer, then by site, then by row
  std::vector<double> ratios_, saved_ratios_;  // of a row's inputs
  std::vector<chunkmem::tensor<std::uint8_t>> positive_;
  chunkmem::activation::ratio_search* search_ = nullptr;
  std::uint64_t step_ = 0;
  float loss_scale_ = 1;
};

}  // namespace gpt
