// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/executor.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Steps whose updates wait until their weights are used, which is in the next forward pass: the calling thread updates
/// one layer while the device computes with those before it. Good where the host updates and a device computes; where
/// the calling thread computes itself, `optimizer::step` does the same in the same time.
///
/// `step` decides what `optimizer::step` would: the norm, whether to skip, the loss scale. Then the gradients wait.
/// Whatever uses a parameter next, its weight in any way, its gradient or a list, updates it before, and with it the
/// weights in its chunk; a weight is never read before its update, and no bit is another than with `optimizer::step`.
/// What nobody uses is updated before the first gradient of the next step, before a checkpoint is saved, a rehearsal,
/// an exchange, or `finish`. Iterations that begin with updates that wait have records of their own, so those of one
/// name repeat from the fourth on where `step` ends them. Gradients live until their update, so they are counted on
/// both sides of an iteration's end; a rehearsal runs the step twice and proves the room for both. Gradients that come
/// to lie in their weights' places need a rehearsal, or updates that are finished once between iterations, which is
/// then done.
///
/// A step is late, early (`early_updates`) or neither, never two of them, and a loop may change between them from step
/// to step; a step that early updates have begun is finished by them alone (usage_error).
///
/// Make one for each manager, after it, for as long as the loop lives. Where it ends while updates wait, their
/// parameters cannot be used any more until a checkpoint is loaded (usage_error): call `finish` before. Source: updates
/// of ZeRO-Offload that are delayed (Ren et al. 2021, arXiv 2101.06840), but here nothing reads an older weight.
/// @threads   one caller, that of the manager
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
class late_updates {
 public:
  explicit late_updates(Manager& owner, Kernel& kernel, Executor& workers = on_this_thread)
      : manager_{owner}, kernel_{kernel}, workers_{workers}
  {
  }
  late_updates(const late_updates&) = delete;
  ~late_updates() { manager_.updates().abandon_updates(this); }

  /// Decides the step, updates `first`, and lets the others wait. The step counts from here on.
  ///
  /// @param first   parameters whose updates do not wait, in this order; those without a gradient are passed over
  /// @return   what `optimizer::step` would; a skipped step leaves nothing that waits
  /// Guarantee: as `optimizer::step`, which may also finish what this began: call again with the same `first`.
  /// @throws as `optimizer::step`, and std::bad_alloc   @complexity   as there; no allocation once it was taken
  step_outcome step(const step_options& options = {}, std::span<const tensor_handle> first = {})
  {
    detail::check_used_step(manager_, kernel_, options);
    manager_.updates().finish_updates();
    // what is no parameter is refused before anything is decided
    for (const tensor_handle it : first) (void)manager_.has_gradient(it);
    const detail::kept_progress kept{kernel_.progress, manager_.rehearsing()};
    prepare(options);
    run_->finish_last();
    const step_progress& progress = kernel_.progress;
    if (run_->wants_decision()) {
      run_->decide();
      at_once_ = manager_.updates().order_by_use(first);
    }
    const bool updates = progress.decision == step_decision::update;
    if (!updates) manager_.updates().keep_record();
    std::uint32_t at = progress.reached;
    run_->for_each_unfinished([&](tensor_handle parameter, const tensor_info& info) {
      const bool waits = at++ >= at_once_;
      if (!updates || !manager_.has_gradient(parameter))
        run_->pass_over(parameter);
      else if (!waits)
        run_->update(parameter, info);
    });
    if (updates) wait();
    return run_->finish_step();
  }

  /// Does all updates that wait.
  /// @throws out_of_memory, device_error   a parameter could not be brought: call again
  void finish() { manager_.updates().finish_updates(); }
  /// Parameters whose update waits.
  [[nodiscard]] std::size_t waiting() const noexcept { return manager_.updates_pending(); }

 private:
  /// All that may ask for memory, and what has to be there when updates are done. @pre none waits
  void prepare(const step_options& options)
  {
    rates_.assign(options.group_rates.begin(), options.group_rates.end());
    options_ = options;
    options_.group_rates = rates_;
    run_.emplace(manager_, kernel_, options_, workers_);
    std::uint32_t parameters = 0;
    manager_.for_each_parameter([&](tensor_handle, const tensor_info&) { ++parameters; });
    is_updated_.assign(parameters, 0);
    manager_.updates().make_room_for_updates();
  }

  /// The step is decided, and what it has left to do waits.
  void wait() noexcept
  {
    terms_ = run_->terms();
    at_once_ = 0;
    manager_.updates().hold_updates(
        [](void* self, std::uint32_t parameter) { static_cast<late_updates*>(self)->update(parameter); }, this);
  }

  /// Safe to take again: an update that is done is not done again where its gradient could not be dropped.
  void update(std::uint32_t number)
  {
    manager_.updates().with_parameter(number, [&](tensor_handle parameter, const tensor_info& info) {
      if (is_updated_[number] == 0) {
        run_->update(parameter, info, terms_);
        is_updated_[number] = 1;
      }
      manager_.updates().spend_gradient(parameter);
      is_updated_[number] = 0;
    });
  }

  Manager& manager_;
  Kernel& kernel_;
  Executor& workers_;
  std::optional<detail::step_run<Manager, Kernel, Executor>> run_;  // of the last step
  step_options options_{};  // its own; the loss scale hears of the decision alone
  std::vector<float> rates_;
  detail::update_terms terms_;
  std::vector<std::uint8_t> is_updated_;  // by parameter: its gradient is used up and may still be there
  std::uint32_t at_once_ = 0;             // parameters of the order that do not wait, of the step that was decided
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
