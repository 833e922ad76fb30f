#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/owner_link.hpp>
#include <chunkmem/tensor/access.hpp>

#include <cstdint>
#include <exception>

namespace chunkmem::inline v0 {

/// One step of a loop: recorded the first time, followed afterwards.
///
/// Ends with its scope. Where an exception ends it, its record stays as it was. `end()` does the same and may throw.
template <class Engine>
class iteration {
 public:
  /// @param real   false in a rehearsal, where nothing begins
  iteration(owner_link<Engine>& link, std::uint32_t micro_batches, bool real) noexcept
      : link_{&link}, micro_batches_{micro_batches}, exceptions_{std::uncaught_exceptions()}, real_{real}
  {
    ++link.holders;
  }
  iteration(const iteration&) = delete;
  iteration& operator=(const iteration&) = delete;
  ~iteration()
  {
    try {
      finish(std::uncaught_exceptions() <= exceptions_);
    } catch (...) {  // no room for a changed record: the one before it stays, if there is one
    }
    if (--link_->holders == 0 && link_->engine == nullptr) delete link_;
  }

  /// From here on the trainer is in this pass of this micro-batch.
  /// @throws usage_error   there is no such micro-batch, or the iteration is over; and what a source of watch_others throws
  void pass(chunkmem::pass during, std::uint32_t micro_batch = 0)
  {
    expects(!over_ && link_->engine != nullptr, "a pass was named after its iteration had ended");
    if (micro_batch >= micro_batches_)
      throw usage_error{error_text{} << "chunkmem: micro-batch " << micro_batch << " of an iteration that was begun with " << micro_batches_
                                     << " micro-batches (they count from 0)"};
    if (!real_) return;
    link_->engine->enter_pass(during, static_cast<std::uint16_t>(micro_batch));
    link_->engine->others().sample();
  }

  /// Ends it now. @throws std::bad_alloc   no room for a changed record: the one before it stays, if there is one
  void end() { finish(true); }

 private:
  void finish(bool complete)
  {
    if (over_) return;
    over_ = true;
    if (!real_ || link_->engine == nullptr) return;
    link_->engine->others().end_iteration();
    link_->engine->end_iteration(complete);
  }

  owner_link<Engine>* link_;
  std::uint32_t micro_batches_;
  int exceptions_;
  bool real_;
  bool over_ = false;
};

}  // namespace chunkmem::inline v0
