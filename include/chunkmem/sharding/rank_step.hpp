// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/sharding/agreed_measure.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/rank_tensors.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The part of a sharded_model that updates: ranks agree on what a step is, each updates its shares, and what is kept
/// whole is gathered.
///
/// Not for users by itself: see sharded_model.
template <stream_backend Backend, rank_group<Backend> Ranks, class... Policies>
class rank_step : public rank_tensors<Backend, Ranks, Policies...> {
  using base = rank_tensors<Backend, Ranks, Policies...>;

 protected:
  using base::gradients_, base::m_, base::plan_, base::seal_once, base::units_;

 public:
  using base::base, base::ranks;
  using typename base::manager_type;

  [[nodiscard]] bool rehearsing() const noexcept { return m_.rehearsing(); }

  /// optimizer::step over what this rank owns, with the norm and the decision of all ranks. No weight may be pinned.
  /// Ranks have to give their kernels the same settings: those are not compared.
  /// @throws comm_error; usage_error   ranks have gradients of different weights, or other options; as optimizer::step:
  ///   call again to go on
  template <optimizer_kernel Kernel, executor Executor = const optimizer::serial>
  optimizer::step_outcome step(Kernel& kernel, const optimizer::step_options& options = {},
                               Executor& workers = optimizer::on_this_thread)
  {
    if (!updated_) {
      for (std::uint32_t at = 0; at < units_.size(); ++at) gradients_.finish(m_, units_[at], at);
      if (!rehearsing()) this->settle();
      agree_on_gradients(kernel, options, workers);
      const changing now{*this};
      now.begin();
      is_updating_ = !rehearsing();
      updated_ = optimizer::step(m_, kernel, options, workers);
      gradients_.forget_step();
      agreed_on_.reset();
    }
    for (; behind_ < units_.size(); ++behind_)
      if (units_[behind_].is_kept && units_[behind_].is_trained) m_.gather_over_ranks(units_[behind_].whole);
    behind_ = 0;
    is_updating_ = false;
    return *std::exchange(updated_, std::nullopt);
  }

  /// Shares were changed by others than `step` (a checkpoint was loaded into `shares()`): weights are made of them
  /// anew. Every rank has to call it.
  /// @throws usage_error   in an iteration, or a weight is pinned; comm_error, out_of_memory, device_error: call it
  ///   again
  void gather_weights()
  {
    seal_once();
    expects(!m_.is_iterating() && !rehearsing(), "weights were to be gathered in an iteration (end it first)");
    forget_update();  // a step that did not end is void
    agreed_on_.reset();
    for (const unit_tensors& it : units_.all()) {
      if (it.is_kept)
        m_.gather_over_ranks(it.whole);
      else
        m_.change(it.whole).release();
    }
  }

 protected:
  void expect_whole() const
  {
    expects(
        !is_updating_,
        "a weight was used behind a step that did not end: some were updated and not gathered yet (call step again)");
  }
  void forget_update() noexcept
  {
    updated_.reset();
    behind_ = 0;
    is_updating_ = false;
  }

 private:
  /// While it lives shares change: units that are not kept have no whole, and runs know whether they have a gradient.
  struct changing {
    void begin() const
    {
      model.changes_.reserve(model.units_.size());
      for (const unit_tensors& it : model.units_.all()) {
        if (!it.is_kept) model.changes_.push_back(model.m_.change(it.whole));
        for (std::size_t part = 0; part < it.parts.size(); ++part)
          model.m_.runs_of(it.share)[part].has_gradient = model.gradients_.is_of_step(it.parts[part].tensor);
      }
    }
    ~changing() { model.changes_.clear(); }
    rank_step& model;
  };

  /// What has to be the same on every rank: the settings of a step, the updates so far (ranks may have loaded
  /// checkpoints of different steps), and all that was gathered and added.
  [[nodiscard]] std::uint64_t same_in_step(const optimizer::step_options& options, std::uint64_t updates) const
  {
    collective::fingerprint all;
    all.add(settings_word(options));
    all.add(updates);
    all.add(this->runs_.moved.value());
    return all.value();
  }
  /// A step that one rank cannot take is taken by none: that rank says why, and the others that ranks differ.
  /// @throws usage_error   on every rank: one of them was given options that no step can be taken with, or ranks were
  ///   given other ones
  template <class Kernel>
  void agree_on_settings(const Kernel& kernel, const optimizer::step_options& options)
  {
    constexpr std::uint64_t refused = 0;
    std::optional<usage_error> wrong;
    try {
      optimizer::detail::check_used_step(m_, kernel, options);
    } catch (const usage_error& found) {
      wrong = found;
    }
    const std::uint64_t word = wrong ? refused : same_in_step(options, kernel.progress.number) | 1U;
    try {
      measure_.begin(
          ranks(), plan_.tensors(), [this](std::uint32_t planned) { return gradients_.is_of_step(planned); }, word);
    } catch (const usage_error&) {
      if (wrong) throw *wrong;
      throw;
    }
    if (wrong) throw *wrong;
  }
  /// What all gradients of all ranks measure, where the step asks for it; that all take the same step, always.
  template <class Kernel, class Executor>
  void agree_on_gradients(const Kernel& kernel, const optimizer::step_options& options, Executor& workers)
  {
    const optimizer::step_progress& progress = kernel.progress;
    const bool is_decided =
        progress.decision != optimizer::step_decision::open && progress.gradients == m_.updates().gradients_opened();
    if (is_decided && progress.forgotten == m_.updates().steps_forgotten() && !rehearsing()) return;
    const agreement now{m_.updates().gradients_opened(), m_.updates().steps_forgotten()};
    if (!rehearsing() && agreed_on_ != now) {
      agree_on_settings(kernel, options);
      agreed_on_ = now;
      measured_ = 0;
    }
    if (!options.skip_nonfinite && options.loss_scale == nullptr && !(options.clip.norm > 0.0F)) return;
    for (std::uint32_t at = rehearsing() ? 0 : measured_; at < units_.size(); ++at) {
      if (units_[at].is_trained) measure_unit(at, workers);
      if (!rehearsing()) measured_ = at + 1;
    }
    m_.updates().keep_measure_of_all(rehearsing() ? gradient_measure{} : measure_.total());
  }
  template <class Executor>
  void measure_unit(std::uint32_t at, Executor& workers)
  {
    const unit_tensors& it = units_[at];
    if (!m_.has_gradient(it.share)) return;
    const auto pin = m_.acquire_bytes(it.share, gradient_list, access::read, m_.updates().place_of_update(it.share));
    if (!rehearsing())
      measure_.add(ranks(), plan_, at, it.gradient_type, reinterpret_cast<const std::byte*>(pin.data()), workers);
  }

  /// Which gradients ranks have agreed on: a rank whose step failed, and which calls it again, talks to the others
  /// where it stopped.
  struct agreement {
    std::uint64_t gradients = 0;
    std::uint64_t forgotten = 0;
    [[nodiscard]] constexpr bool operator==(const agreement&) const noexcept = default;
  };

  agreed_measure measure_;
  std::optional<agreement> agreed_on_;
  std::uint32_t measured_ = 0;                                                   // units, of those
  std::vector<typename manager_type::template pin_type<std::uint8_t>> changes_;  // of a step, kept for its memory
  std::optional<optimizer::step_outcome> updated_;  // by a step that has not gathered all kept units yet
  std::uint32_t behind_ = 0;                        // the first of those
  bool is_updating_ = false;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
