// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "problem.hpp"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <cstdint>
#include <span>

namespace gpt::cuda {

/// Adam over ranks, on threads of the CPU: each rank updates its shards after the backward pass. The interface of
/// updates.
template <class Manager>
class rank_updates {
 public:
  /// @throws problem   updates on the device: kernels of an optimizer do not support ranks
  rank_updates(Manager& manager, const chunkmem::optimizer::adam_options& options, update_choice where,
               chunkmem::optimizer::thread_pool& workers)
      : m_{manager}, adam_{options}, workers_{workers}
  {
    if (where == update_choice::gpu)
      throw problem{"--update gpu is for one rank (choose --update cpu, or leave out --ranks and --shard)"};
    manager.use(adam_);
    manager.state("skipped steps", std::as_writable_bytes(std::span{&skipped_, 1}));
  }
  rank_updates(const rank_updates&) = delete;

  /// @throws as sharded_model::step
  void step(const chunkmem::optimizer::step_options& options)
  {
    const chunkmem::optimizer::step_result result = m_.step(adam_, options, workers_);
    if (result == chunkmem::optimizer::step_result::skipped_nonfinite) ++skipped_;
  }
  void ask() const noexcept {}
  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_; }

 private:
  Manager& m_;
  chunkmem::optimizer::adam adam_;
  chunkmem::optimizer::thread_pool& workers_;
  std::uint64_t skipped_ = 0;
};

}  // namespace gpt::cuda
