// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// A copy, or an update on the host, of one iteration: how long it takes, and between which moments it must lie.
///
/// Its like in the iteration before is one iteration of moments and of compute earlier.
struct work_piece {
  static constexpr std::int64_t never = INT64_MAX;

  double nanoseconds = 0;
  std::int64_t from = never;    ///< behind the end of this moment, or never: it waits for data of the host alone
  double ready = 0;             ///< time at which it can begin if that moment ended in time
  std::int64_t to = never;      ///< before the start of this moment, or never
  double due = 0;               ///< time at which it must have ended so that this moment begins in time
  std::int64_t leaves = never;  ///< of a write-back: from this moment on its chunk may leave the device
};

/// Time counted in compute: when a moment would begin if compute never waited.
///
/// Moments of the iterations before and after the one that begins at 0 are below 0 and from `moments()` on.
class compute_clock {
 public:
  explicit compute_clock(std::span<const std::uint64_t> moment_nanoseconds)
      : before_(moment_nanoseconds.size() + 1, 0), moments_{static_cast<std::int64_t>(moment_nanoseconds.size())}
  {
    for (std::size_t at = 0; at < moment_nanoseconds.size(); ++at)
      before_[at + 1] = before_[at] + static_cast<double>(moment_nanoseconds[at]);
  }

  [[nodiscard]] std::int64_t moments() const noexcept { return moments_; }
  /// Compute of one iteration [ns].
  [[nodiscard]] double whole() const noexcept { return before_.back(); }
  /// @return   [ns], from moment 0
  [[nodiscard]] double at(std::int64_t moment) const noexcept
  {
    const std::int64_t round = moment < 0 ? -((-moment + moments_ - 1) / moments_) : moment / moments_;
    return static_cast<double>(round) * whole() + before_[static_cast<std::size_t>(moment - round * moments_)];
  }

  /// The piece begins `later` after the end of that moment: of several the latest moment counts, then the latest time.
  void follow(work_piece& it, std::int64_t moment, double later) const noexcept
  {
    const double ready = at(moment + 1) + later;
    if (it.from != work_piece::never && (it.from > moment || (it.from == moment && it.ready >= ready))) return;
    it.from = moment;
    it.ready = ready;
  }

  /// The piece ends `earlier` before that moment begins: of several the earliest time counts.
  void precede(work_piece& it, std::int64_t moment, double earlier) const noexcept
  {
    const double due = at(moment) - earlier;
    if (it.to != work_piece::never && it.due <= due) return;
    it.to = moment;
    it.due = due;
  }

 private:
  std::vector<double> before_;
  std::int64_t moments_;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
