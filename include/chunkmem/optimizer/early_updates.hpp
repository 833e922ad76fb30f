// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/optimizer/executor.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/undo_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Steps that do not wait for the norm: parameters are updated in the order in which their gradients were completed, as
/// if nothing had to be clipped or skipped, and what is overwritten is kept. Where the norm of all gradients says
/// otherwise, it is brought back and the step is taken as `optimizer::step` takes it. So no bit is another one.
///
/// Good where the calling thread runs ahead of a device that is still in its backward pass, and most steps are not
/// clipped; poor where most are: an update that is undone is done twice, and the iteration leaves its record for once.
/// How many parameters are updated early is a matter of `undo_bytes`, a lease on the host while the step runs: a
/// parameter takes the bytes of its value and its lists (14 for each element with Adam and a master, 12 in float32).
/// Not early are those that do not fit any more, those whose lists are not filled yet, as before the first step, and
/// all behind the first gradient with which the norm is over its limit. Where nothing has to be measured it is
/// `optimizer::step`.
///
/// A step is early, late (`late_updates`) or neither, never two of them; from step to step a loop may change between
/// them, and what late updates left waiting is done before an early step begins.
///
/// Make one for each manager, after it, for as long as the loop lives. Source: speculation, then validation, of
/// SuperOffload (Lian et al. 2025, arXiv 2509.21271); there the update is inverted, here its bytes are kept, since an
/// inverse is not exact.
/// @threads   one caller, that of the manager
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
class early_updates {
 public:
  /// @param undo_bytes   of host memory for one step; 0: nothing is updated early
  explicit early_updates(Manager& owner, Kernel& kernel, bytes undo_bytes, Executor& workers = on_this_thread)
      : manager_{owner}, kernel_{kernel}, undo_bytes_{undo_bytes}, workers_{workers}
  {
  }
  early_updates(const early_updates&) = delete;

  /// Takes a step. @return   what `optimizer::step` would Guarantee: as `optimizer::step`: call again, and the final
  /// bits are those of an undisturbed step. Where it threw before the decision, only this object can finish the step,
  /// with the options that it began with.
  /// @throws as `optimizer::step`; out_of_memory also where the host has no room for `undo_bytes`; std::bad_alloc
  /// @throws usage_error   a rehearsal while the last step is half done, or other options for it; nothing was done
  step_outcome step(const step_options& options = {})
  {
    detail::check_used_step(manager_, kernel_, options);
    manager_.updates().finish_updates();
    expects(!manager_.rehearsing() || kernel_.progress.decision != step_decision::guessed,
            "a rehearsal of early_updates whose last step is half done: call its step again before");
    const detail::kept_progress kept{kernel_.progress, manager_.rehearsing()};
    run_type run{manager_, kernel_, options, workers_};
    step_progress& progress = kernel_.progress;
    const bool resumes = room_ && progress.decision == step_decision::guessed &&
                         progress.forgotten == manager_.updates().steps_forgotten();
    expects(!resumes || asked_.are(options),
            "a step of early_updates that is half done was called again with other options: give it those it began "
            "with, or load a checkpoint");
    if (!resumes) {
      forget();
      run.finish_last();
    }
    if (!resumes && run.wants_decision()) {
      if (!run.needs_measures() || undo_bytes_ == bytes{})
        run.decide();
      else
        begin(options);
    }
    if (progress.decision == step_decision::guessed) {
      guess(run);
      resolve(run);
    }
    const step_outcome outcome = run.complete();
    early_ = manager_.rehearsing() ? early_ : counted_;
    return outcome;
  }

  /// Parameters that the last step updated before the norm was known, and that stayed so.
  [[nodiscard]] std::size_t early() const noexcept { return early_; }

 private:
  using run_type = detail::step_run<Manager, Kernel, Executor>;
  using room_type = decltype(std::declval<Manager&>().lease(tier::host, bytes{}));

  /// What a step was begun with: some of its updates are done by it.
  struct begun_with {
    step_options options{};
    std::vector<float> rates;
    float scale = 1.0F;

    [[nodiscard]] static float scale_of(const step_options& of) noexcept
    {
      return of.loss_scale != nullptr ? of.loss_scale->scale() : 1.0F;
    }
    void keep(const step_options& now)
    {
      rates.assign(now.group_rates.begin(), now.group_rates.end());
      options = now;
      options.group_rates = {};  // whoever called has them
      scale = scale_of(now);
    }
    [[nodiscard]] bool are(const step_options& now) const noexcept
    {
      return options.learning_rate == now.learning_rate && std::ranges::equal(rates, now.group_rates) &&
             options.clip == now.clip && options.loss_scale == now.loss_scale && scale == scale_of(now) &&
             options.skip_nonfinite == now.skip_nonfinite && options.seed == now.seed;
    }
  };

  void begin(const step_options& options)
  {
    asked_.keep(options);
    std::uint32_t parameters = 0;
    manager_.for_each_parameter([&](tensor_handle, const tensor_info&) { ++parameters; });
    done_.reserve(parameters);
    manager_.updates().order_by_completion();
    room_.emplace(manager_.lease(tier::host, undo_bytes_));
    kernel_.progress.gradients = manager_.updates().gradients_opened();
    kernel_.progress.decision = step_decision::guessed;
    kernel_.progress.reached = 0;
  }

  /// Measures and updates as gradients come. Goes on where it stopped.
  void guess(run_type& run)
  {
    manager_.updates().for_each_in_order(next_, [&](tensor_handle parameter, const tensor_info& info) {
      if (manager_.has_gradient(parameter)) {
        run.measure(parameter, info);
        gradient_measure seen = seen_;
        seen.add(*manager_.updates().measure_of(parameter));
        goes_on_ = goes_on_ && run.is_usual(seen);
        if (goes_on_ && is_exact(run, parameter, info)) update(run, parameter, info);
        seen_ = seen;
      }
      ++next_;
    });
  }

  /// It can be brought back with the memory that is left.
  [[nodiscard]] bool is_exact(const run_type& run, tensor_handle parameter, const tensor_info& info)
  {
    bool is_filled = true;
    run.for_each_list(info, [&](list_id list, dtype) {
      is_filled = is_filled && (manager_.rehearsing() || manager_.is_filled(parameter, list));
    });
    return is_filled && used_ + detail::undo_size(run, info) <= undo_bytes_.count();
  }

  /// Only of one whose gradient is usual: where it lies in the value's place, pinning the value takes that away from
  /// it.
  void update(run_type& run, tensor_handle parameter, const tensor_info& info)
  {
    run.where_updated(parameter, [&](auto place) {
      run.with_bytes(parameter, info, place, [&](const parameter_bytes& all) {
        if constexpr (Manager::engine_type::has_bytes) detail::keep_bytes(all, room_->data() + used_);
        run.apply(all, info, place, run.usual_terms());
        manager_.updates().begin_update();
        is_in_place_ = all.value == all.gradient;
      });
    });
    done_.push_back({info.ordinal, used_, is_in_place_ && !manager_.rehearsing()});
    used_ += detail::undo_size(run, info);
  }

  /// Decides, and then keeps or brings back what was done. Goes on where it stopped.
  void resolve(run_type& run)
  {
    if (!verdict_) verdict_ = run.judge();
    const bool keeps = verdict_->decision == step_decision::update && verdict_->factor == run.usual_terms().factor;
    if (!keeps) manager_.updates().keep_record();
    for (; resolved_ < done_.size(); ++resolved_)
      manager_.updates().with_parameter(
          done_[resolved_].parameter, [&](tensor_handle parameter, const tensor_info& info) {
            keeps ? manager_.updates().spend_gradient(parameter) : bring_back(run, parameter, info, done_[resolved_]);
          });
    counted_ = keeps ? done_.size() : 0;
    run.take(*verdict_);
    forget();
  }

  struct early_update {
    std::uint32_t parameter;
    std::uint64_t begin;  // of its bytes in the room
    bool in_place;        // its gradient lay in the value's bytes
  };

  void bring_back(run_type& run, tensor_handle parameter, const tensor_info& info, const early_update& it)
  {
    run.where_updated(parameter, [&](auto place) {
      run.with_bytes(parameter, info, place, [&](const parameter_bytes& all) {
        if constexpr (Manager::engine_type::has_bytes) detail::bring_back_bytes(all, room_->data() + it.begin);
      });
    });
    if (it.in_place) manager_.updates().take_place_again(parameter);
  }

  void forget() noexcept
  {
    room_.reset();
    done_.clear();
    verdict_.reset();
    seen_ = {};
    used_ = 0;
    next_ = 0;
    resolved_ = 0;
    goes_on_ = true;
  }

  Manager& manager_;
  Kernel& kernel_;
  bytes undo_bytes_;
  Executor& workers_;
  std::optional<room_type> room_;  // from the beginning of a step to its decision
  std::vector<early_update> done_;
  begun_with asked_;
  std::optional<detail::verdict> verdict_;
  gradient_measure seen_;
  std::uint64_t used_ = 0;
  std::uint32_t next_ = 0;    // in the order of the step
  std::size_t resolved_ = 0;  // of those done
  std::size_t counted_ = 0;
  std::size_t early_ = 0;
  bool goes_on_ = true;
  bool is_in_place_ = false;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
