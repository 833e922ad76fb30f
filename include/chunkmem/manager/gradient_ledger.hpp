// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/update_order.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// Notes of each gradient of this step whether it is done, when, and with what norms; and whether an update or a load
/// is half done.
///
///     gradient_ledger notes;
///     notes.reset(1);
///     notes.note_opened(weight);
///     notes.finish(weight, measure);
///
/// `note_opened` when a pin on a gradient was given out, `finish` when it is complete, `forget` when it is used up.
/// `begin_update` to `end_update` and `begin_load` to `end_load` are the times in which weights are not those of one
/// access; `expect_no_update` and `expect_no_load` refuse calls then. Cost: O(1) for each call; O(parameters) for a
/// rehearsal.
class gradient_ledger {
 public:
  static constexpr std::uint64_t alone = 1;  ///< the moment where no iteration was begun

  void reset(std::size_t parameters)
  {
    if (notes_.size() != parameters) order_.reset(parameters);
    notes_.resize(parameters);
  }

  /// False after the gradient was declared done, in this micro-batch or in another iteration. The micro-batches of one
  /// iteration add up, so a gradient that was done in one of them is open in the others.
  /// @param moment   now, see micro_batch_ledger
  [[nodiscard]] bool is_open(slot_id value_slot, std::uint64_t moment = alone) const noexcept
  {
    const std::uint64_t done = notes_[index_of(value_slot)].done;
    return done == 0 || (done != moment && is_done_in_iteration(value_slot, moment));
  }
  /// It was declared done in the iteration of this moment.
  [[nodiscard]] bool is_done_in_iteration(slot_id value_slot, std::uint64_t moment) const noexcept
  {
    return notes_[index_of(value_slot)].done >> 16U == moment >> 16U && notes_[index_of(value_slot)].done != 0;
  }
  /// A pin on a gradient was given out for writing: it is not what was measured or done.
  void note_opened(slot_id value_slot, std::uint64_t moment = alone) noexcept
  {
    ++opened_;
    opened_at_ = moment;
    of_all_.reset();
    notes_[index_of(value_slot)] = {{}, ++touched_, 0, false};
  }
  [[nodiscard]] std::uint64_t opened() const noexcept { return opened_; }        ///< so many times
  [[nodiscard]] std::uint64_t opened_at() const noexcept { return opened_at_; }  ///< the moment of the last one
  void finish(slot_id value_slot) noexcept { finish_unmeasured(value_slot, alone); }
  /// @param moment   now
  void finish_unmeasured(slot_id value_slot, std::uint64_t moment) noexcept
  {
    notes_[index_of(value_slot)].touched = ++touched_;
    notes_[index_of(value_slot)].done = moment;
  }
  /// @param measure   of all its elements as they are stored
  void finish(slot_id value_slot, const gradient_measure& measure, std::uint64_t moment = alone) noexcept
  {
    notes_[index_of(value_slot)] = {measure, ++touched_, moment, true};
  }
  /// The same of a gradient that nobody declared done.
  void keep_measure(slot_id value_slot, const gradient_measure& measure) noexcept
  {
    notes_[index_of(value_slot)].measure = measure;
    notes_[index_of(value_slot)].measured = true;
  }
  /// Of all gradients of this step together, where it is known from elsewhere: so long as none comes.
  void keep_measure_of_all(const gradient_measure& measure) noexcept { of_all_ = measure; }
  /// @return   null where it was not given
  [[nodiscard]] const gradient_measure* measure_of_all() const noexcept { return of_all_ ? &*of_all_ : nullptr; }
  void forget_measure_of_all() noexcept { of_all_.reset(); }
  /// Of a gradient that is used up or dropped. The measure of all stays: updates that waited use gradients of the step
  /// before.
  void forget(slot_id value_slot) noexcept { notes_[index_of(value_slot)] = {}; }
  /// Grows from gradient to gradient as they were completed in this step: opened for the last time, or declared done.
  [[nodiscard]] std::uint64_t completed(slot_id value_slot) const noexcept
  {
    return notes_[index_of(value_slot)].touched;
  }
  [[nodiscard]] update_order& order() noexcept { return order_; }

  /// The gradients' bytes are others now: nothing of them is measured or done, and a decision is taken again.
  void forget_gradients() noexcept
  {
    for (note& it : notes_) it = {};
    of_all_.reset();
    ++opened_;
  }

  /// @return   null where it was not measured
  [[nodiscard]] const gradient_measure* measure_of(slot_id value_slot) const noexcept
  {
    return notes_[index_of(value_slot)].measured ? &notes_[index_of(value_slot)].measure : nullptr;
  }

  /// A parameter has its update, and others may not: gradients must neither come nor go now.
  void begin_update() noexcept { weights_ = weights::updated_in_part; }
  void end_update() noexcept
  {
    weights_ = weights::whole;
    of_all_.reset();
    order_.reset();
  }
  /// Weights are overwritten from here to `end_load`, and what a step had done does not count any more.
  void begin_load() noexcept
  {
    weights_ = weights::loaded_in_part;
    forget_step();
  }
  void end_load() noexcept { weights_ = weights::whole; }
  /// A step that had updated nothing yet does not count any more.
  void forget_step() noexcept
  {
    ++forgotten_;
    of_all_.reset();
    order_.reset();
  }
  [[nodiscard]] std::uint64_t forgotten() const noexcept { return forgotten_; }  ///< steps

  /// @throws usage_error   some parameters have an update that others do not have
  void expect_no_update(std::string_view what) const
  {
    if (weights_ == weights::updated_in_part) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: " << what
                                     << " while an optimizer step is half done (call step again; over one rank a load "
                                        "outside of the iteration ends it too)"};
  }
  /// @throws usage_error   a load was cut short
  void expect_no_load(std::string_view what) const
  {
    if (weights_ == weights::loaded_in_part) [[unlikely]]
      throw usage_error{
          error_text{} << "chunkmem: " << what
                       << " while a checkpoint is loaded in part (load again, or begin with a new manager)"};
  }

  /// A rehearsal starts with nothing finished and leaves everything as it was.
  void begin_rehearsal()
  {
    kept_ = notes_;
    kept_order_ = order_;
    kept_of_all_ = of_all_;
    of_all_.reset();
    notes_.assign(notes_.size(), {});
    order_.reset();
    kept_weights_ = std::exchange(weights_, weights::whole);
    kept_opened_ = opened_;
    kept_opened_at_ = opened_at_;
  }
  void end_rehearsal() noexcept
  {
    notes_.swap(kept_);
    of_all_ = kept_of_all_;
    std::swap(order_, kept_order_);
    weights_ = kept_weights_;
    opened_at_ = kept_opened_at_;
    opened_ = kept_opened_;  // else a step that is half done would take its decision again
  }

 private:
  enum class weights : std::uint8_t { whole, updated_in_part, loaded_in_part };

  struct note {
    gradient_measure measure;
    std::uint64_t touched = 0;
    std::uint64_t done = 0;  // the moment of it; 0: it is open
    bool measured = false;
  };

  sequence<note> notes_;  // by parameter, in the order of declaration
  sequence<note> kept_;
  std::optional<gradient_measure> of_all_, kept_of_all_;
  update_order order_, kept_order_;
  std::uint64_t opened_ = 0, kept_opened_ = 0;
  std::uint64_t opened_at_ = 0, kept_opened_at_ = 0;
  std::uint64_t touched_ = 0;
  std::uint64_t forgotten_ = 0;
  weights weights_ = weights::whole;
  weights kept_weights_ = weights::whole;
};

}  // namespace chunkmem::inline v0
