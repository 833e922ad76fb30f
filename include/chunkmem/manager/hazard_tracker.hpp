// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/measuring_backend.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/wait_cause.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/device_health.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace detail {

/// Work of this manager alone: whoever has waited for it has all that there is to know.
struct no_ranks {
  template <class Backend>
  void await(Backend&, event) const noexcept
  {
  }
  void check() const noexcept {}
};

}  // namespace detail

/// Who touched a frame last: for each agent the stamp of its last use. Stamps of the host agent are not needed, since
/// what it did is done when anything else is enqueued. 72 bytes.
///
///     frame_hazards frame;
///     tracker.stamp(agent::compute, frame, true);
///     tracker.follow(agent::to_host, frame, frame.writers, wait_cause::other);
struct frame_hazards {
  std::uint64_t last[max_agents] = {};
  std::uint8_t users = 0;    ///< agents with a stamp, as bits
  std::uint8_t writers = 0;  ///< those of them that wrote

  /// Whoever follows this follows the uses of both frames.
  void merge(const frame_hazards& other) noexcept
  {
    for (unsigned source = 0; source < max_agents; ++source)
      if (other.last[source] > last[source]) last[source] = other.last[source];
    users |= other.users;
    writers |= other.writers;
  }
};

/// Makes agents wait for each other, and remembers what each already knows.
///
///     hazard_tracker<Backend> tracker{backend, health};
///     tracker.follow(agent::compute, frame, frame.writers, wait_cause::demand_miss);  // before the stream reads it
///     tracker.stamp(agent::compute, frame, false);                                    // when it was given that work
///
/// A copy agent is stamped with the event of each copy. Other streams are stamped with their epoch, a number that costs
/// nothing; it becomes an event only when somebody must wait for it, so that a release records none. The last events
/// are remembered: who follows an early use does not wait for what was enqueued since, where the calling thread runs
/// ahead. The happens-before rules: a reader follows all writers, a writer follows all users, on each frame. Waits of
/// the calling thread are added up, and those of streams of kernels for copies: by a measuring_backend. Where the
/// backend is none, by its clock around each wait of the calling thread. Two other kinds are no stalls and are not
/// told. Copy agents wait beside the step; and a stream that waits for another stream of kernels does so for the
/// trainer. Cost: one test of a byte where there is nothing to wait for; else one compare for each agent in it.
template <stream_backend Backend>
class hazard_tracker {
 public:
  hazard_tracker(Backend& backend, device_health& health) : backend_{&backend}, health_{&health}, recorded_(max_agents)
  {
    for (std::uint64_t& epoch : epoch_) epoch = 1;
  }

  /// Later work of `stream` follows all agents in `mask` that used this frame.
  /// @param ranks   whose work these uses may depend on. The calling thread waits through its `await(backend, event)`
  ///   first, and asks its `check()` behind the wait: where that throws, the uses stay, and the next try asks again
  template <class Ranks = detail::no_ranks>
  void follow(agent stream, frame_hazards& frame, std::uint8_t mask, wait_cause cause, Ranks&& ranks = {})
  {
    const auto self = static_cast<unsigned>(stream);
    for (unsigned source = 1; source < max_agents; ++source)
      if ((mask >> source & 1) != 0 && source != self && known_[self][source] < frame.last[source])
        wait(stream, static_cast<agent>(source), frame.last[source], cause, ranks);
    if (stream != agent::host || mask == 0) return;
    ranks.check();
    forget(frame, mask);
  }

  /// `stream` used the frame with the work it was given so far.
  void stamp(agent stream, frame_hazards& frame, bool wrote) noexcept
  {
    if (stream == agent::host) return;
    if (wrote) forget_followed(stream, frame);
    set(frame, stream, epoch_[static_cast<unsigned>(stream)], wrote);
  }

  /// `stream` is a copy agent that just copied into or out of a frame; call once for each copy, then `stamp_copy`.
  [[nodiscard]] event copied(agent stream)
  {
    return health_->ordering([&] { return backend_->record(stream); });
  }
  static void stamp_copy(event point, frame_hazards& frame, bool wrote) noexcept
  {
    if (wrote) frame = frame_hazards{};  // the copy followed all who used it before
    set(frame, point.source, point.value, wrote);
  }

  /// Everything that this agent does is stamped by `copied` and `stamp_copy`; so it is for the two of the manager's own
  /// copies.
  void add_copy_agent(agent stream) noexcept { copy_agents_ |= 1U << static_cast<unsigned>(stream); }

  /// What blocked the calling thread or a stream of kernels, by cause; for reports alone.
  [[nodiscard]] wait_total waited(wait_cause cause) const noexcept
  {
    if constexpr (measuring_backend<Backend>)
      return backend_->waited(cause);
    else if (cause == wait_cause::throttle)
      return {backend_->throttled(), 0};
    else
      return waited_[static_cast<unsigned>(cause)];
  }

 private:
  [[nodiscard]] bool is_copy_agent(agent stream) const noexcept
  {
    return (copy_agents_ >> static_cast<unsigned>(stream) & 1U) != 0;
  }

  static void set(frame_hazards& frame, agent stream, std::uint64_t stamp, bool wrote) noexcept
  {
    const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(stream));
    frame.last[static_cast<unsigned>(stream)] = stamp;
    frame.users |= bit;
    if (wrote) frame.writers |= bit;
  }

  /// Drops the uses that `stream` follows already, before its write is noted. An agent that follows this write follows
  /// those uses too. If they stayed, a reader would wait for the last read of a stream that wrote the frame long ago.
  /// Uses by copy agents stay; `stamp_copy` drops them.
  void forget_followed(agent stream, frame_hazards& frame) const noexcept
  {
    const auto self = static_cast<unsigned>(stream);
    unsigned others = frame.users & ~(1U << self) & ~copy_agents_;
    for (; others != 0; others &= others - 1) {
      const auto source = static_cast<unsigned>(std::countr_zero(others));
      if (known_[self][source] < frame.last[source]) continue;
      frame.users &= static_cast<std::uint8_t>(~(1U << source));
      frame.writers &= static_cast<std::uint8_t>(~(1U << source));
    }
  }

  /// The calling thread waited, so these are over for everybody.
  static void forget(frame_hazards& frame, std::uint8_t mask) noexcept
  {
    frame.users &= static_cast<std::uint8_t>(~mask);
    frame.writers &= static_cast<std::uint8_t>(~mask);
  }

  template <class Ranks>
  [[gnu::noinline, gnu::cold]] void wait(agent stream, agent source, std::uint64_t stamp, wait_cause cause,
                                         Ranks& ranks)
  {
    const auto at = static_cast<unsigned>(source);
    event point{stamp, source};
    std::uint64_t covered = stamp;
    if (!is_copy_agent(source)) {
      if (stamp >= epoch_[at]) {
        recorded_[at][epoch_[at] % remembered] = copied(source);
        ++epoch_[at];
      }
      covered = std::max(stamp, epoch_[at] > remembered ? epoch_[at] - remembered : 1);
      point = recorded_[at][covered % remembered];
    }
    health_->ordering([&] { wait_and_tell(stream, point, cause, ranks); });
    known_[static_cast<unsigned>(stream)][at] = covered;
  }

  template <class Ranks>
  void wait_and_tell(agent stream, event point, wait_cause cause, Ranks& ranks)
  {
    const bool is_stream = stream != agent::host;
    if (is_copy_agent(stream) || (is_stream && !is_copy_agent(point.source))) return backend_->wait(stream, point);
    // a write-back still reads what it overwrites
    if (is_stream && cause == wait_cause::other) cause = wait_cause::demand_miss;
    if constexpr (measuring_backend<Backend>) {
      if (!is_stream) ranks.await(*backend_, point);
      backend_->wait(stream, point, cause);
    } else {
      const std::uint64_t begin = is_stream ? 0 : backend_->now();
      if (!is_stream) ranks.await(*backend_, point);
      backend_->wait(stream, point);
      if (is_stream) return;  // nobody knows when it goes on
      const std::uint64_t end = backend_->now();
      wait_total& total = waited_[static_cast<unsigned>(cause)];
      ++total.count;
      total.nanoseconds += end > begin ? end - begin : 0;
    }
  }

  Backend* backend_;
  device_health* health_;
  std::uint64_t known_[max_agents][max_agents] = {};  // [stream][source]: stamps that `stream` already follows
  std::uint64_t epoch_[max_agents] = {};
  static constexpr std::uint64_t remembered = 256;
  sequence<std::array<event, remembered>> recorded_;  // by agent: the event of an epoch, in a ring
  wait_total waited_[wait_causes] = {};
  unsigned copy_agents_ = 1U << static_cast<unsigned>(agent::to_device) | 1U << static_cast<unsigned>(agent::to_host);
};

}  // namespace chunkmem::inline v0
