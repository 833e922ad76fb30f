// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_driver.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Steps whose updates wait until their weights are used, which is in the next forward pass.
///
///     optimizer::late_updates late{m, adam, pool};   // after the manager, as long as the loop lives
///     for (...) {
///       auto iteration = m.iteration();
///       ...                                          // forward and backward pass
///       late.step({.learning_rate = 1e-3F});         // decides; the updates wait
///     }
///     late.finish();
///
/// Good where the host updates and a device computes: the calling thread updates one layer while the device computes
/// with the layers before it. Poor where the calling thread computes too: `optimizer::step` takes the same time.
///
/// `step` decides as `optimizer::step` does: the norm, whether to skip, the loss scale. It keeps all options, and a
/// copy of the kernel (see optimizer_kernel): changes before the update apply to the next step. Then the gradients
/// wait. Any use of a parameter (its weight, its gradient, a list) first runs its update, and the updates of the
/// weights in the same chunk. A weight is never read before its update, so all bits are those of `optimizer::step`.
/// Unused parameters are updated before the first gradient of the next step, a save that copies bytes, a rehearsal, an
/// exchange, or `finish`.
///
/// - Iterations that begin with waiting updates have records of their own. The fourth iteration of a name is the first
///   that repeats, instead of the third.
/// - Gradients live until their update, so they count on both sides of the end of an iteration. A rehearsal runs the
///   step twice and proves the room for both.
/// - Gradients in the bytes of their weights need a rehearsal. Without one, the updates are finished once between two
///   iterations, and the gradients move then.
///
/// Over ranks: `late_updates late{model, adam}` of a sharded_model, in place of `model.step`. An update waits until a
/// weight of its unit is used, and the unit is gathered after it. So every rank uses weights in the same order until no
/// update waits, also where weights are kept whole. Ranks compare whether updates wait, as they compare other settings.
/// Where a step needs no decision (no limit on the norm, no loss scale, no `skip_nonfinite`), no update waits: each
/// share is updated as soon as its own sum is complete, during the backward pass.
///
/// A loop may change between `step`, late and early updates from step to step. Only `early_updates` itself finishes a
/// step that it has begun (usage_error).
///
/// If this object ends while updates wait, their parameters cannot be used until a checkpoint is loaded (usage_error):
/// call `finish` before. Source: the delayed updates of ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840), but here
/// nothing reads an older weight.
/// @threads   one caller, that of the manager
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
class late_updates {
  using taker_type = typename detail::step_taker_of<Manager, Kernel, Executor>::type;

 public:
  using part_of_a_step = taker_type;  ///< the taker in step_by

  /// @param owner   a manager or a sharded_model, with one such object
  /// @param kernel, workers   outlive this, as the owner does
  explicit late_updates(Manager& owner, Kernel& kernel, Executor& workers = on_this_thread)
      : taker_{owner, kernel, workers}
  {
  }
  late_updates(const late_updates&) = delete;
  ~late_updates() { driver().abandon(this); }

  /// Decides the step, updates `first`, and lets the others wait. The step counts from here on.
  ///
  /// @param first   parameters whose updates do not wait, in this order; those without a gradient are skipped. None
  ///   over ranks
  /// @return   as `optimizer::step`; after a skipped step no update waits Guarantee: as `optimizer::step`, which may
  /// also finish a step that this began. Call again with the same `first`.
  /// @throws as `optimizer::step`, and std::bad_alloc   @complexity   as there; no allocation after the first step
  step_outcome step(const step_options& options = {}, std::span<const tensor_handle> first = {},
                    typename taker_type::place_type from = typename taker_type::place_type{})
  {
    const bool begins = taker_.begin(options, first);
    return taker_.take(begins ? kept(options) : options, timing{*this, first}, from);
  }
  /// As `step`, as a part of a larger step: see pipeline::stage_step, which also reports mistakes in the options.
  /// @param take   `take(taker, options, timing)` takes the step, with options that are valid until the last update
  template <class Take>
  step_outcome step_by(const step_options& options, Take take)
  {
    const bool begins = taker_.begin_part();
    return take(taker_, begins ? kept(options) : options, timing{*this, {}});
  }

  /// Runs all waiting updates.
  /// @throws out_of_memory, device_error   a parameter could not be loaded: call again
  void finish() { driver().finish_waiting(); }
  /// Parameters whose update waits.
  [[nodiscard]] std::size_t waiting() const noexcept { return taker_.driver().waiting(); }

 private:
  using driver_type = typename taker_type::driver_type;

  /// The time of updates: for `first` at once, for the others when their weights are used.
  struct timing {
    static constexpr bool lets_wait = true;
    static constexpr bool guesses = false;

    late_updates& self;
    std::span<const tensor_handle> first;

    /// All allocations come first. A decided step keeps the kernel of its decision.
    void begin(driver_type& driver, typename driver_type::place_type from) const
    {
      driver.keep_kernel();
      self.is_updated_.assign(driver.parameters(), 0);
      driver.make_room_to_wait();
      driver.begin(from);
    }
    void decide(driver_type& driver) const
    {
      driver.decide();
      self.at_once_ =
          taker_type::updates_behind_sums && !driver.needs_measures() ? UINT32_MAX : driver.order_by_use(first);
    }
    [[nodiscard]] bool is_due(std::uint32_t place) const noexcept { return place < self.at_once_; }
    static constexpr void passed(std::uint32_t) noexcept {}
    /// The step is decided, and the remaining updates wait.
    void end(driver_type& driver) const noexcept
    {
      self.factor_ = driver.progress().factor;
      self.number_ = driver.progress().number + 1;
      self.at_once_ = 0;
      driver.let_wait([](void* late, slot_id value) { static_cast<late_updates*>(late)->update(index_of(value)); },
                      &self);
    }
  };

  /// Keeps the options of the step whose updates will wait. @pre no update waits
  [[nodiscard]] step_options kept(const step_options& options)
  {
    rates_.assign(options.group_rates.begin(), options.group_rates.end());
    step_options own = options;
    own.group_rates = rates_;
    return own;
  }
  /// Safe to call again: a finished update does not run again if its gradient could not be dropped.
  void update(std::uint32_t ordinal)
  {
    taker_.update(ordinal, [&] { driver().update_waiting(ordinal, is_updated_[ordinal], factor_, number_); });
  }
  [[nodiscard]] driver_type& driver() noexcept { return taker_.driver(); }

  taker_type taker_;
  std::vector<float> rates_;              // of the step whose updates wait
  std::vector<std::uint8_t> is_updated_;  // by parameter: its gradient was consumed and may still have bytes
  std::uint32_t at_once_ = 0;             // parameters of the decided step that do not wait, in its order
  float factor_ = 1.0F;                   // of the step whose updates wait
  std::uint64_t number_ = 1;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
