// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// Remembers the first error that a device does not recover from, and refuses everything after it.
///
/// A sticky fault ends a manager. So does every error of an event: the end of a running copy is then unknown, and the
/// next use of its bytes could be silently wrong. Cost: nothing until an error is thrown.
/// @code
/// device_health health;
/// health.starting([&] { backend.copy(to, from, size, who); });         // throws with nothing started
/// const event done = health.ordering([&] { return backend.record(who); });  // an error here ends the manager
/// health.expect_alive();
/// @endcode
class device_health {
 public:
  /// @param notice   called once, with `listener`, when the device is lost
  explicit device_health(void (*notice)(void*) noexcept = nullptr, void* listener = nullptr) noexcept
      : notice_{notice}, listener_{listener}
  {
  }
  device_health(const device_health&) = delete;

  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }

  /// @throws device_error   the first cause, if there was one
  void expect_alive() const
  {
    if (is_lost_) [[unlikely]]
      throw cause_;
  }

  /// Runs a call that either starts work or throws with nothing started.
  template <class Work>
  decltype(auto) starting(Work&& work)
  {
    try {
      return std::forward<Work>(work)();
    } catch (const device_error& error) {
      if (error.fault().is_sticky) lose(error);
      throw;
    }
  }

  /// Runs a call that orders other work: its failure cannot be undone.
  template <class Work>
  decltype(auto) ordering(Work&& work)
  {
    try {
      return std::forward<Work>(work)();
    } catch (const device_error& error) {
      lose(error);
      throw device_error{cause_};
    }
  }

 private:
  /// A transient error ends the manager too where it lost the order of work; its message then says so.
  [[gnu::noinline, gnu::cold]] void lose(const device_error& error) noexcept
  {
    if (is_lost_) return;
    cause_ = error;
    if (!error.fault().is_sticky)
      cause_ = device_error{
          error_text{}
              << "chunkmem: the order of work on the device is lost (make the manager anew, from a checkpoint): "
              << error.what(),
          {.number = error.fault().number, .is_sticky = true, .call = error.fault().call}};
    is_lost_ = true;
    if (notice_ != nullptr) notice_(listener_);
  }

  void (*notice_)(void*) noexcept;
  void* listener_;
  bool is_lost_ = false;
  device_error cause_{error_text{}};
};

/// The arenas of a manager: one allocation in each tier of the backend, made once and given back at the end.
///
/// `allocate()` takes the whole capacity of each tier. `release()`, which the destructor calls, waits for all agents
/// before memory goes back, because a copy could still write there.
/// Cost: one allocation for each tier that has a capacity.
template <stream_backend Backend>
class arena_set {
 public:
  /// Both outlive this object. @param health   is notified of every error of the backend
  arena_set(Backend& backend, device_health& health) noexcept : backend_{&backend}, health_{&health} {}
  arena_set(const arena_set&) = delete;
  ~arena_set() { release(); }

  [[nodiscard]] per_tier<bytes> capacities() const
  {
    per_tier<bytes> result;
    for (const tier where : all_tiers) result[where] = backend_->capacity(where);
    return result;
  }

  /// Guarantee: strong. @throws out_of_memory, device_error   a tier could not be allocated
  void allocate()
  {
    const per_tier<bytes> size = capacities();
    try {
      for (const tier where : all_tiers)
        if (size[where] > bytes{})
          begin_[where] = health_->starting([&] { return backend_->allocate(where, size[where]); });
    } catch (...) {
      release();
      throw;
    }
  }
  /// Begins of the arenas; null in a tier that was not allocated.
  [[nodiscard]] const per_tier<std::byte*>& begins() const noexcept { return begin_; }

  /// Waits until all agents have done their work. An error of an agent is reported by its next use.
  void wait_for_agents() noexcept
  {
    for (unsigned who = 1; who < backend_->agents(); ++who) wait_for(static_cast<agent>(who));
  }
  /// As above, for the agents that every backend has. Adopted agents may wait for other ranks, for example a link whose
  /// receive began early.
  void wait_for_own_agents() noexcept
  {
    for (unsigned who = 1; who < built_in_agents; ++who) wait_for(static_cast<agent>(who));
  }
  /// As above, for one agent.
  void wait_for(agent who) noexcept
  {
    if (who == agent::host) return;
    try {
      backend_->wait(agent::host, backend_->record(who));
    } catch (...) {  // a device that is going away cannot be waited for; its memory goes with it
    }
  }

  /// Frees the arenas after all agents are done.
  void release() noexcept
  {
    bool any = false;
    for (const tier where : all_tiers) any = any || begin_[where] != nullptr;
    if (!any) return;
    wait_for_agents();
    for (const tier where : all_tiers)
      if (std::byte* const arena = std::exchange(begin_[where], nullptr); arena != nullptr)
        backend_->release(where, arena);
  }

 private:
  Backend* backend_;
  device_health* health_;
  per_tier<std::byte*> begin_;
};

namespace detail {

/// Work of this manager alone: a wait for it is enough.
struct no_ranks {
  template <class Backend>
  void await(Backend&, event) const noexcept
  {
  }
  void check() const noexcept {}
};

}  // namespace detail

/// The last uses of a frame: for each agent the stamp of its last use. The host agent needs no stamp, since its work is
/// done when other work is enqueued. 72 bytes.
///
///     frame_hazards frame;
///     tracker.stamp(agent::compute, frame, true);
///     tracker.follow(agent::to_host, frame, frame.writers, wait_cause::other);
struct frame_hazards {
  std::uint64_t last[max_agents] = {};
  std::uint8_t users = 0;    ///< agents with a stamp, as bits
  std::uint8_t writers = 0;  ///< the agents among them that wrote

  /// Adds the uses of another frame.
  void merge(const frame_hazards& other) noexcept
  {
    for (unsigned source = 0; source < max_agents; ++source)
      if (other.last[source] > last[source]) last[source] = other.last[source];
    users |= other.users;
    writers |= other.writers;
  }
};

/// Makes agents wait for each other, and remembers which waits each agent has done already.
///
///     hazard_tracker<Backend> tracker{backend, health};
///     tracker.follow(agent::compute, frame, frame.writers, wait_cause::demand_miss);  // before the stream reads it
///     tracker.stamp(agent::compute, frame, false);                                    // when it has that work
///
/// A copy agent is stamped with the event of each copy. Other streams are stamped with their epoch, a number that costs
/// nothing; it becomes an event only when an agent must wait for it, so that a release records none. The last events
/// are remembered: an agent that follows an early use does not wait for later work, where the calling thread runs
/// ahead. The happens-before rules: a reader follows all writers, a writer follows all users, on each frame. Waits of
/// the calling thread are added up, and waits of kernel streams for copies: by a measuring_backend, else by the
/// backend's clock around each wait of the calling thread. Waits of copy agents and side agents, and waits of one
/// kernel stream for another, are no stalls and are not counted. Cost: one test of a byte where there is nothing to
/// wait for; else one compare for each agent in it.
template <stream_backend Backend>
class hazard_tracker {
 public:
  hazard_tracker(Backend& backend, device_health& health) : backend_{&backend}, health_{&health}, recorded_(max_agents)
  {
    for (std::uint64_t& epoch : epoch_) epoch = 1;
  }

  /// Later work of `stream` follows all agents in `mask` that used this frame.
  /// @param ranks   work of ranks that these uses may depend on. The calling thread waits through `ranks.await(backend,
  ///   event)` and then calls `ranks.check()`: where it throws, the uses stay, and the next call checks again
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

  /// `stream` used the frame with its work so far.
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
    if (wrote) frame = frame_hazards{};  // the copy followed all earlier users
    set(frame, point.source, point.value, wrote);
  }

  /// All work of this agent is stamped by `copied` and `stamp_copy`, as for the two copy agents of the manager.
  void add_copy_agent(agent stream) noexcept { copy_agents_ |= 1U << static_cast<unsigned>(stream); }
  /// This agent works while the step runs, so its waits are no stalls.
  void add_side_agent(agent stream) noexcept { side_agents_ |= 1U << static_cast<unsigned>(stream); }

  /// The waits of the calling thread and of kernel streams, by cause; for reports alone.
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

  /// The calling thread waited, so these uses are over for all agents.
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
    const bool is_beside = ((copy_agents_ | side_agents_) >> static_cast<unsigned>(stream) & 1U) != 0;
    if (is_beside || (is_stream && !is_copy_agent(point.source))) return backend_->wait(stream, point);
    // a write-back still reads what it overwrites
    if (is_stream && cause == wait_cause::other) cause = wait_cause::demand_miss;
    if constexpr (measuring_backend<Backend>) {
      if (!is_stream) ranks.await(*backend_, point);
      backend_->wait(stream, point, cause);
    } else {
      const std::uint64_t begin = is_stream ? 0 : backend_->now();
      if (!is_stream) ranks.await(*backend_, point);
      backend_->wait(stream, point);
      if (is_stream) return;  // its end is unknown
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
  unsigned side_agents_ = 0;
};

}  // namespace chunkmem::inline v0
