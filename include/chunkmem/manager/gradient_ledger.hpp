#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

/// Which gradients of this step are finished, and what their norms are. Not for users: see manager.
class gradient_ledger {
 public:
  void reset(std::size_t parameters) { notes_.resize(parameters); }

  /// @throws usage_error   the gradient was declared done in this step
  void expect_open(std::uint32_t parameter) const
  {
    expects(!notes_[parameter].done, "a gradient was asked for after gradient_done: its norm is taken already (take the step, or drop it)");
  }
  /// A pin on a gradient was given out for writing.
  void note_opened() noexcept { ++opened_; }
  [[nodiscard]] std::uint64_t opened() const noexcept { return opened_; }  ///< so many times
  void finish(std::uint32_t parameter) noexcept { notes_[parameter].done = true; }
  /// @param measure   of all its elements as they are stored
  void finish(std::uint32_t parameter, const gradient_measure& measure) noexcept { notes_[parameter] = {measure, true, true}; }
  void forget(std::uint32_t parameter) noexcept { notes_[parameter] = {}; }

  /// @return   null where it was not measured
  [[nodiscard]] const gradient_measure* measure_of(std::uint32_t parameter) const noexcept
  {
    return notes_[parameter].measured ? &notes_[parameter].measure : nullptr;
  }

  /// A rehearsal starts with nothing finished and leaves everything as it was.
  void begin_rehearsal()
  {
    kept_ = notes_;
    notes_.assign(notes_.size(), {});
  }
  void end_rehearsal() noexcept { notes_.swap(kept_); }

 private:
  struct note {
    gradient_measure measure;
    bool done = false;
    bool measured = false;
  };

  std::vector<note> notes_;  // by parameter, in the order of declaration
  std::vector<note> kept_;
  std::uint64_t opened_ = 0;
};

}  // namespace chunkmem::inline v0
