// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <cstdint>
#include <optional>
#include <span>

namespace gpt::cuda {

/// Adam, on threads of the CPU or on the device: the same bits.
///
/// On the CPU each update waits until its weight is used, in the next forward pass: the calling thread updates one
/// layer while the device computes the layers before it.
/// @tparam Launcher   starts the optimizer's kernels
template <class Manager, class Launcher>
class updates {
 public:
  /// After the parameters were declared. @param where   cpu or gpu   @param workers   outlives this
  updates(Manager& manager, const chunkmem::optimizer::adam_options& options, update_choice where,
          chunkmem::optimizer::thread_pool& workers)
      : adam_{options}
  {
    if (where == update_choice::gpu) {
      on_device_.emplace(manager, chunkmem::optimizer::adam{options});
      return;
    }
    manager.use(adam_);
    manager.state("skipped steps", std::as_writable_bytes(std::span{&skipped_, 1}));
    on_threads_.emplace(manager, adam_, workers);
  }
  updates(const updates&) = delete;

  /// One step of the optimizer, inside an iteration. @throws as optimizer::step
  void step(const chunkmem::optimizer::step_options& options)
  {
    if (on_device_) return on_device_->step(options);
    const chunkmem::optimizer::step_result result = on_threads_->step(options);
    if (result == chunkmem::optimizer::step_result::skipped_nonfinite) ++skipped_;
  }

  /// Reads the number of skipped steps from the device, which waits for it.
  void ask()
  {
    if (on_device_) skipped_ = on_device_->progress().skips;
  }
  /// Steps whose gradients were not finite; on the device, those before the last `ask`.
  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }

 private:
  using adam = chunkmem::optimizer::adam;

  adam adam_;
  std::uint64_t skipped_ = 0;
  std::optional<chunkmem::optimizer::late_updates<Manager, adam, chunkmem::optimizer::thread_pool>> on_threads_;
  std::optional<chunkmem::optimizer::device_optimizer<Manager, adam, Launcher>> on_device_;
};

}  // namespace gpt::cuda
