// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "measured_updates.hpp"
#include "options.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/split_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace gpt {

/// Room for undoing early updates on the host: the values and the states of Adam of every second parameter.
/// @param parameters   that one rank updates
[[nodiscard]] inline chunkmem::bytes undo_bytes(std::uint64_t parameters, chunkmem::dtype precision)
{
  const std::uint64_t each = precision == chunkmem::dtype::float32 ? 12 : 14;
  return align_up(chunkmem::bytes{parameters * each / 2}, chunkmem::bytes{4096});
}

/// Adam at the time that the command line chooses. Every time gives the same bits.
/// @tparam Manager   a manager or a sharded_model
template <class Manager>
class update_times {
  using adam = adam_of<Manager>;
  using pool = chunkmem::optimizer::thread_pool;
  using split = chunkmem::optimizer::split_updates<Manager, chunkmem::optimizer::loop_launcher, pool>;
  using placement = std::remove_cvref_t<decltype(chunkmem::rank_manager(std::declval<Manager&>()).placement())>;
  static constexpr bool can_measure =
      !has_clocks<Manager> && std::is_constructible_v<placement, chunkmem::placement::update_share>;

 public:
  /// @param manager, kernel, workers   outlive this   @param undo   of early updates, see undo_bytes
  update_times(Manager& manager, adam& kernel, update_time when, pool& workers, chunkmem::bytes undo)
      : m_{manager}, kernel_{kernel}, workers_{workers}
  {
    if (when == update_time::late) late_.emplace(manager, kernel, workers);
    if (when == update_time::early) early_.emplace(manager, kernel, undo, workers);
    if constexpr (can_measure)
      if (when == update_time::measured) split_.emplace(manager, workers);
  }
  update_times(const update_times&) = delete;

  /// One step of the optimizer.
  chunkmem::optimizer::step_outcome step(const chunkmem::optimizer::step_options& options)
  {
    if (late_) {
      const auto outcome = late_->step(options);
      return counted(outcome, late_->waiting());
    }
    if (early_) {
      const auto outcome = early_->step(options);
      return counted(outcome, early_->early());
    }
    if constexpr (can_measure)
      if (split_) return step_at_once(options, *split_);
    return step_at_once(options, workers_);
  }
  /// Called when the iteration with a step is over.
  void end_step()
  {
    if constexpr (can_measure)
      if (split_) split_->end_step();
  }
  /// The need of `step`, wherever its updates may run. @param known   as of a manager, where no place is measured
  chunkmem::memory_requirement rehearse(chunkmem::call_ref<void()> step,
                                        const chunkmem::memory_requirement* known = nullptr)
  {
    if constexpr (can_measure)
      if (split_) return split_->rehearse(step);
    return m_.rehearse(step, chunkmem::rehearse_on::nothing, known);
  }
  /// Nothing where no place is measured.
  [[nodiscard]] std::optional<measured_updates> measured() const
  {
    if constexpr (can_measure)
      if (split_) return measured_updates{split_->split(), split_->rates()};
    return {};
  }
  /// Updates that waited for the next use of their weights, or that came before the norm was known and stayed, in all
  /// steps. 0 where all updates run at the end of a step.
  [[nodiscard]] std::uint64_t apart() const noexcept { return apart_; }

 private:
  template <class Workers>
  [[nodiscard]] chunkmem::optimizer::step_outcome step_at_once(const chunkmem::optimizer::step_options& options,
                                                               Workers& workers)
  {
    if constexpr (requires { m_.ranks(); })
      return m_.step(kernel_, options, workers);
    else
      return chunkmem::optimizer::step(m_, kernel_, options, workers);
  }
  [[nodiscard]] chunkmem::optimizer::step_outcome counted(const chunkmem::optimizer::step_outcome& outcome,
                                                          std::size_t updates)
  {
    if (!m_.rehearsing()) apart_ += updates;
    return outcome;
  }

  Manager& m_;
  adam& kernel_;
  pool& workers_;
  std::optional<chunkmem::optimizer::late_updates<Manager, adam, pool>> late_;
  std::optional<chunkmem::optimizer::early_updates<Manager, adam, pool>> early_;
  std::optional<split> split_;
  std::uint64_t apart_ = 0;
};

}  // namespace gpt
