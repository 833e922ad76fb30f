// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_handles.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/cuda_tasks.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// A stream and how far everybody is with it.
///
///     cuda_lane<Api> lane{session};
///     const std::uint64_t value = ++lane.given;
///     if (!order.record(lane.point(value), lane.stream())) lane.finished(value);  // the calling thread has waited
///
/// The event of value v is entry v modulo 256 of a ring. Where a later value has taken the entry over, a wait for the
/// earlier one waits for the later: more than was asked, never less, and no cycle, since both lie in the past of
/// whoever asks. Cost: 256 events of the runtime and 40 KiB, made at once.
template <cuda_api Api>
class cuda_lane {
 public:
  using stream_type = typename Api::stream_type;
  using event_type = typename Api::event_type;

  static constexpr std::uint64_t ring = 256;

  /// @throws device_error   the runtime gives no stream or no events; what was made is destroyed
  explicit cuda_lane(cuda_session<Api>& session) : stream_{session} { make_events(session); }
  cuda_lane(cuda_session<Api>& session, stream_type foreign) : stream_{session, foreign} { make_events(session); }

  [[nodiscard]] stream_type stream() const noexcept { return stream_.get(); }
  [[nodiscard]] event_type point(std::uint64_t value) const noexcept { return points_[value % ring].get(); }

  /// The last value that was recorded with the event of `value`.
  [[nodiscard]] std::uint64_t latest(std::uint64_t value) const noexcept { return given - (given - value) % ring; }

  /// The calling thread knows that everything up to `value` is over.
  void finished(std::uint64_t value) noexcept
  {
    if (value > done) done = value;
  }

  /// Up to here no stream has to wait.
  [[nodiscard]] std::uint64_t ordered() const noexcept { return done > covered ? done : covered; }

  std::uint64_t given = 0;     ///< values recorded so far
  std::uint64_t done = 0;      ///< up to here it is over, as the calling thread knows; but for what waits in a graph
  std::uint64_t covered = 0;   ///< up to here every other stream is ordered after it already
  std::uint64_t captured = 0;  ///< from `covered` to here it was written into a graph that was not launched yet
  cuda_tasks tasks;
  std::uint64_t marks[cuda_tasks::room / cuda_tasks::part] = {};  ///< values recorded after each part of the tasks

 private:
  void make_events(cuda_session<Api>& session)
  {
    points_.reserve(ring);
    for (std::uint64_t i = 0; i < ring; ++i) points_.emplace_back(session);
  }

  cuda_stream<Api> stream_;
  std::vector<cuda_event<Api>> points_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
