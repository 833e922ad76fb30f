// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpt {

/// Room of early updates on the host: the values and the states of Adam of every second parameter.
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

 public:
  /// @param manager, kernel, workers   outlive this   @param undo   of early updates, see undo_bytes
  update_times(Manager& manager, adam& kernel, update_time when, pool& workers, chunkmem::bytes undo)
      : m_{manager}, kernel_{kernel}, workers_{workers}
  {
    if (when == update_time::late) late_.emplace(manager, kernel, workers);
    if (when == update_time::early) early_.emplace(manager, kernel, undo, workers);
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
    if constexpr (requires { m_.ranks(); })
      return m_.step(kernel_, options, workers_);
    else
      return chunkmem::optimizer::step(m_, kernel_, options, workers_);
  }
  /// Updates of all steps that waited for the next use of their weights, or that came before the norm was known and
  /// stayed. 0 where all updates are at once.
  [[nodiscard]] std::uint64_t apart() const noexcept { return apart_; }

 private:
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
  std::uint64_t apart_ = 0;
};

}  // namespace gpt
