// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>

#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

namespace checks {

/// Mistakes that were found where nothing may be thrown, such as the end of a pin, until something may.
///
///     mistake_note mistakes;
///     mistakes.add(error_text{} << "chunkmem: a pin ended on another thread");  // where nothing may be thrown
///     mistakes.raise();                                                         // where it may
///
/// The first one is kept as a sentence, since others often follow from it; the rest are counted. No allocation.
class mistake_note {
 public:
  void add(const error_text& sentence) noexcept
  {
    if (count_++ == 0) first_ = sentence;
  }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// @throws usage_error   the first one that was noted; from here on nothing is noted
  void raise()
  {
    if (count_ == 0) [[likely]]
      return;
    const std::uint64_t more = std::exchange(count_, 0) - 1;
    if (more > 0) first_ << " [and " << more << " more that were found since]";
    throw usage_error{std::exchange(first_, {})};
  }

 private:
  error_text first_;
  std::uint64_t count_ = 0;
};

}  // namespace checks

}  // namespace chunkmem::inline v0
