// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/owner_link.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>
#include <exception>

namespace chunkmem::inline v0 {

/// One step of a loop: recorded the first time, followed afterwards.
///
/// An iteration ends with its scope, or by `end()`, which may throw. If an exception ends it, its record stays as it
/// was. An iteration of several micro-batches names each of them by `pass`. If one is missing, `end()` throws; after
/// the end of a scope, the next iteration or optimizer step does. The record stays as it was then, too.
/// @code
/// auto it = m.iteration("train", 2);
/// for (std::uint32_t batch = 0; batch < 2; ++batch) {
///   it.pass(pass::forward, batch);
///   // ... forward; it.pass(pass::backward, batch); backward ...
/// }
/// optimizer::step(m, adam);
/// it.end();
/// @endcode
template <class Engine>
class iteration {
 public:
  /// @param real   false in a rehearsal, where nothing begins
  /// @pre the link has room for so many micro-batches
  iteration(owner_link<Engine>& link, std::uint32_t micro_batches, bool real) noexcept
      : link_{&link}, micro_batches_{micro_batches}, exceptions_{std::uncaught_exceptions()}, real_{real}
  {
    ++link.holders;
    link.micro_batches.begin(micro_batches);
  }
  iteration(const iteration&) = delete;
  iteration& operator=(const iteration&) = delete;
  ~iteration()
  {
    try {
      const bool complete = std::uncaught_exceptions() <= exceptions_;
      if (finish(complete) && complete && !link_->micro_batches.is_complete()) link_->micro_batches.keep();
    } catch (...) {  // no room for a changed record: the one before it stays, if there is one
    }
    if (--link_->holders == 0 && link_->engine == nullptr) delete link_;
  }

  /// From here on the trainer is in this pass of this micro-batch.
  /// @throws usage_error   there is no such micro-batch, or the iteration is over; and what a source of
  ///   watch_external_memory throws
  void pass(chunkmem::pass during, std::uint32_t micro_batch = 0)
  {
    expects(!over_ && link_->engine != nullptr, "a pass was named after its iteration had ended");
    if (micro_batch >= micro_batches_)
      throw usage_error{error_text{} << "chunkmem: micro-batch " << micro_batch
                                     << " of an iteration that was begun with " << micro_batches_
                                     << " micro-batches (they count from 0)"};
    link_->micro_batches.name(micro_batch);
    if (!real_) return;
    link_->engine->schedule().enter_pass(during, static_cast<std::uint16_t>(micro_batch));
    link_->engine->external_memory().sample();
  }

  /// It was begun by the manager that made this tensor.
  [[nodiscard]] bool is_of(tensor_handle wanted) const noexcept { return wanted.owner == link_->owner(); }

  /// Ends it now. @throws std::bad_alloc   no room for a changed record: the one before it stays, if there is one
  /// @throws usage_error   it was begun with more micro-batches than were named: it has ended
  void end()
  {
    if (finish(true)) link_->micro_batches.expect_complete();
  }

 private:
  /// @return   it had not ended before
  bool finish(bool complete)
  {
    if (over_ || link_->engine == nullptr) return false;
    over_ = true;
    link_->micro_batches.end();
    if (!real_) return true;
    link_->engine->external_memory().end_iteration();
    link_->engine->schedule().end(complete && link_->micro_batches.is_complete());
    return true;
  }

  owner_link<Engine>* link_;
  std::uint32_t micro_batches_;
  int exceptions_;
  bool real_;
  bool over_ = false;
};

}  // namespace chunkmem::inline v0
