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

/// Inputs of the projections behind attention. Some rows of each are kept for the gradient of the weight.
///
/// Of what a layer saves they alone have no other use in the backward pass: the other products read what a norm or GELU
/// computes again from numbers that their own backward pass needs. Windows lie anywhere in the text, so none comes
/// back, and there are no norms of earlier visits.
///
///     projection_samples<Manager> samples{m, net, {.ratio = 0.3}, seed};
///     samples.begin(step), samples.set(row, where);   // then forward and backward
///     samples.of(layer, row).keep(samples.batch(row), attended);
template <class Manager>
class projection_samples {
 public:
  using input_type = chunkmem::activation::sampled_input<Manager, float>;

  /// @param how   many rows are kept of each input
  projection_samples(Manager& manager, const model& net, const sample_settings& how, std::uint64_t seed)
      : norms_{{.name = "sampling", .samples = 0, .seed = seed, .measures_noise = how.measures_noise}},
        batch_{net.rows.size()},
        numbers_(batch_)
  {
    const auto context = static_cast<std::uint32_t>(net.size.context);
    for (std::size_t layer = 0; layer < net.layers.size(); ++layer) {
      const std::string name = "layer " + std::to_string(layer) + " attended";
      const auto site = norms_.add(name, context);
      ratios_.push_back(how.of(name));
      for (std::size_t row = 0; row < batch_; ++row)
        inputs_.emplace_back(manager, norms_, site,
                             chunkmem::activation::sampling_options{
                                 .rows = net.size.context, .width = net.size.width, .ratio = ratios_.back()},
                             std::initializer_list<chunkmem::tensor_handle>{net.layers[layer].projection});
    }
    manager.use(norms_);
    saved_ratios_ = ratios_;
    manager.state("sampling/ratios", std::as_writable_bytes(std::span{saved_ratios_}));
  }

  /// What was loaded goes on here with the rows that it would have kept. @throws problem   ratios are others
  void check_ratios() const
  {
    for (std::size_t site = 0; site < ratios_.size(); ++site)
      if (saved_ratios_[site] != ratios_[site])
        throw problem{"--resume takes up a training that keeps " + ratio_text(saved_ratios_[site]) +
                      " of the rows of \"" + inputs_[site * batch_].name() + "\", and here it is " +
                      ratio_text(ratios_[site]) + " (give the --activations sample= that it was begun with)"};
  }
  /// Calls `visit(name, options)` for each input of one row, in the order of ratios.
  template <class Visit>
  void for_each_input(Visit visit) const
  {
    for (std::size_t at = 0; at < inputs_.size(); at += batch_) visit(inputs_[at].name(), inputs_[at].options());
  }
  /// From now on the rows of each input are given to a search. @param search   null: no more
  void search_with(chunkmem::activation::ratio_search* search) noexcept { search_ = search; }
  /// Behind `keep`, of this input.
  void look(const input_type& kept)
  {
    if (search_ != nullptr && !kept.manager().rehearsing())
      search_->add(kept.name(), kept.options(), chunkmem::dtype::float32, kept.weights());
  }
  /// Between two steps.
  [[nodiscard]] chunkmem::activation::sampling_report report() { return norms_.report(); }

  /// A micro-batch begins. Between the two passes of a training step alone rows are kept.
  void begin(std::uint64_t step) noexcept
  {
    step_ = step;
    is_training_ = true;
  }
  void end() noexcept { is_training_ = false; }
  /// @param where   its window begins in the text
  void set(std::size_t row, std::uint64_t where) noexcept { numbers_[row] = where; }

  [[nodiscard]] bool is_training() const noexcept { return is_training_; }
  [[nodiscard]] input_type& of(std::size_t layer, std::size_t row) noexcept { return inputs_[layer * batch_ + row]; }
  [[nodiscard]] chunkmem::activation::sampled_batch batch(std::size_t row) const noexcept
  {
    return {.step = step_, .samples = std::span{numbers_}.subspan(row, 1)};
  }

 private:
  chunkmem::activation::norm_cache norms_;
  std::size_t batch_;
  std::vector<std::uint64_t> numbers_;         // by row
  std::deque<input_type> inputs_;              // by layer, then by row
  std::vector<double> ratios_, saved_ratios_;  // of a row's inputs
  chunkmem::activation::ratio_search* search_ = nullptr;
  std::uint64_t step_ = 0;
  bool is_training_ = false;
};

}  // namespace gpt
