// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/peer_groups.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// Why a wait that takes operations of other ranks into account is over.
///
///     if (peers.wait(is_over) == peer_wait::lost) session.raise();
enum class peer_wait : std::uint8_t {
  free,   ///< no operation of peers is on a stream
  over,   ///< the awaited work is done
  ended,  ///< either of them, since the groups ended during the wait: the bytes of their operations did not arrive
  lost,   ///< an operation of groups that ended stays on a stream
};

/// Operations of groups of ranks on the streams of a device, and the waits of the host while they run.
///
///     peer_work<Api> peers{session, groups};
///     peers.make_room(lane), give_the_operation(), peers.given(lane, stream, deadline);
///     if (peers.wait([&] { return is_over(point); }) == peer_wait::lost) session.raise();
///     synchronize(point);
///
/// An event follows the last operation of each stream. A wait of the host first polls until the awaited work is over,
/// or no operation with other ranks is on a stream. The plain wait that follows lasts no longer than this rank's own
/// work. Where the operations do not leave the streams, their groups end (see peer_groups), and where an abort
/// does not take an operation off its stream, the session is lost. A failed call of the runtime that is not sticky
/// makes no wait longer. Cost: an event for each operation; a wait costs one compare where no operation is on a stream,
/// else polls.
///
/// @threads   one caller at a time
template <cuda_api Api>
class peer_work {
 public:
  using stream_type = typename Api::stream_type;
  using clock = peer_groups::clock;
  static constexpr std::uint32_t all_lanes = ~std::uint32_t{};

  peer_work(cuda_session<Api>& session, peer_groups& groups) noexcept : session_{&session}, groups_{&groups} {}
  peer_work(const peer_work&) = delete;
  peer_work& operator=(const peer_work&) = delete;

  /// Whether an operation of a failed group stayed on its stream.
  [[nodiscard]] bool has_lost() const noexcept { return has_lost_; }

  /// Makes the event of a stream. @pre the device is current. @throws device_error   the runtime gives no event
  void make_room(std::size_t lane)
  {
    if (all_[lane].point == nullptr) all_[lane].point = std::make_unique<cuda_event<Api>>(*session_);
  }
  /// Notes an enqueued operation. The wait for earlier work of its stream counts towards its deadline. @pre make_room
  void given(std::size_t lane, stream_type stream, std::chrono::nanoseconds deadline) noexcept
  {
    operation& it = all_[lane];
    it.stream = stream;
    it.is_marked = mark(it);
    it.deadline = deadline;
    pending_ |= 1U << lane;
  }

  /// Waits until `is_over()`, or until no operation of peers is on one of these streams.
  /// @param lanes   a bit for each
  template <std::predicate IsOver>
  [[nodiscard]] peer_wait wait(const IsOver& is_over, std::uint32_t lanes = all_lanes) noexcept
  {
    if ((pending_ & lanes) == 0 || !made_in_.is_here()) [[likely]]
      return peer_wait::free;
    const bool were_well = !groups_->failure().has_value();
    const auto start = clock::now();
    auto next_look = start;
    for (bool ended = false;; pause(start)) {
      if (!session_->may_call()) return peer_wait::free;  // the next call returns the error
      if (is_over()) return ended ? peer_wait::ended : peer_wait::over;
      const auto now = clock::now();
      if (now < next_look) continue;
      next_look = now + std::chrono::milliseconds{1};
      if ((pending_now() & lanes) == 0) return ended ? peer_wait::ended : peer_wait::free;
      if (has_lost_) return peer_wait::lost;
      const peer_groups::found found = groups_->look(start, deadline(), now);
      ended = were_well && found != peer_groups::found::well;
      if (found == peer_groups::found::lost) return lose();
    }
  }
  /// Waits until no operation of peers is on these streams. False: one stays there.
  [[nodiscard]] bool wait_for_all(std::uint32_t lanes = all_lanes) noexcept
  {
    return wait([] { return false; }, lanes) != peer_wait::lost;
  }
  /// Call this before the calling thread waits for an event, or for a stream. @throws comm_error   groups ended
  /// meanwhile; device_error   the session is lost
  void hold(typename Api::event_type point)
  {
    hold_until([&] {
      bool is_over = false;
      const auto ask = [&](const Api& api) { return api.query_event(point, is_over); };
      return session_->attempt("cudaEventQuery", ask) == 0 && is_over;
    });
  }
  void hold()
  {
    hold_until([] { return false; });
  }

 private:
  struct operation {
    std::unique_ptr<cuda_event<Api>> point;  ///< after the last operation, if that is marked
    stream_type stream{};
    std::chrono::nanoseconds deadline{};
    bool is_marked = false;
  };

  template <class IsOver>
  void hold_until(const IsOver& is_over)
  {
    const peer_wait found = wait(is_over);
    if (found == peer_wait::lost) session_->raise();
    if (found == peer_wait::ended)
      if (const auto why = groups_->failure()) throw comm_error{*why};
  }
  [[nodiscard]] bool mark(operation& it) noexcept
  {
    const auto call = [&](const Api& api) { return api.record_event(it.point->get(), it.stream); };
    return session_->attempt("cudaEventRecord", call) == 0;
  }
  /// Queries the events. An event that could not be recorded is recorded now.
  [[nodiscard]] std::uint32_t pending_now() noexcept
  {
    for (std::size_t lane = 0; lane < all_.size(); ++lane) {
      operation& it = all_[lane];
      if ((pending_ >> lane & 1U) == 0) continue;
      if (!it.is_marked) it.is_marked = mark(it);
      bool is_over = false;
      const auto ask = [&](const Api& api) { return api.query_event(it.point->get(), is_over); };
      if (it.is_marked && session_->attempt("cudaEventQuery", ask) == 0 && is_over) pending_ &= ~(1U << lane);
    }
    return pending_;
  }
  /// The shortest deadline of the pending operations: one late group ends all.
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept
  {
    auto shortest = std::chrono::nanoseconds::max();
    for (std::size_t lane = 0; lane < all_.size(); ++lane)
      if ((pending_ >> lane & 1U) != 0) shortest = std::min(shortest, all_[lane].deadline);
    return shortest;
  }
  static void pause(clock::time_point start) noexcept
  {
    if (clock::now() - start < std::chrono::microseconds{100})
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds{20});
  }
  [[nodiscard]] peer_wait lose() noexcept
  {
    has_lost_ = true;
    session_->lose(device_error{
        error_text{} << "chunkmem: an operation of a group of ranks that ended is still on a stream of the device, and "
                        "its abort did not take it off (what the device holds stays with this process: end it)",
        device_fault{.number = 0, .is_sticky = true, .call = session_->calls()}});
    return peer_wait::lost;
  }

  cuda_session<Api>* session_;
  peer_groups* groups_;
  std::array<operation, max_agents> all_{};  ///< by agent
  std::uint32_t pending_ = 0;                ///< a bit for each
  bool has_lost_ = false;
  own_process made_in_;
};

/// Orders work by events of the runtime, even where a call fails.
///
///     cuda_order<Api> order{session};
///     if (order.record(point, earlier) && !order.follow(later, point)) (void)order.finish(point, earlier);
///
/// Where an event cannot be recorded, the calling thread waits for the stream instead; where a stream cannot be made to
/// wait, the caller is told and waits itself; where waiting for an event fails, it waits for the stream. Each is
/// counted as a recovery. Only where that fails too is the session lost: the state of the work is then unknown. While a
/// graph is captured there is nothing to wait for, so the call is made a second time; a second failure is an error.
/// Cost: that of the call.
/// @threads   one caller at a time
template <cuda_api Api>
class cuda_order {
 public:
  using stream_type = typename Api::stream_type;
  using event_type = typename Api::event_type;

  cuda_order(cuda_session<Api>& session, peer_work<Api>& peers) noexcept : session_{&session}, peers_{&peers} {}

  [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }
  void capturing(bool is) noexcept { is_capturing_ = is; }

  /// Records an event. False: the calling thread has waited for the stream instead.
  /// @throws device_error   no order was made
  [[nodiscard]] bool record(event_type point, stream_type on_stream)
  {
    const auto call = [=](const Api& api) { return api.record_event(point, on_stream); };
    if (make("cudaEventRecord", call) == 0) [[likely]]
      return true;
    begin_recovery();
    wait_for(on_stream);
    return false;
  }

  /// Later work of a stream follows an event. False: the calling thread has to wait for the event instead.
  /// @throws device_error   no order was made
  [[nodiscard]] bool follow(stream_type later, event_type point)
  {
    const auto call = [=](const Api& api) { return api.wait_event(later, point); };
    if (make("cudaStreamWaitEvent", call) == 0) [[likely]]
      return true;
    begin_recovery();
    return false;
  }

  /// The calling thread waits for an event. False: it has waited for all of the event's stream instead.
  /// @throws device_error   the session is lost; comm_error   groups of ranks with work on the streams ended meanwhile
  [[nodiscard]] bool finish(event_type point, stream_type source)
  {
    peers_->hold(point);
    session_->count_synchronization();
    const auto call = [=](const Api& api) { return api.synchronize_event(point); };
    if (session_->attempt("cudaEventSynchronize", call) == 0) [[likely]]
      return true;
    begin_recovery();
    wait_for(source);
    return false;
  }

 private:
  template <class Call>
  [[nodiscard]] int make(std::string_view function, const Call& call) noexcept
  {
    return is_capturing_ ? session_->insist(function, call) : session_->attempt(function, call);
  }

  void begin_recovery()
  {
    if (is_capturing_ || !session_->may_call()) session_->raise();
    session_->count_recovery();
  }

  void wait_for(stream_type all)
  {
    peers_->hold();
    if (session_->synchronize(all)) return;
    session_->lose();
    session_->raise();
  }

  cuda_session<Api>* session_;
  peer_work<Api>* peers_;
  bool is_capturing_ = false;
};

/// The capture of work into a graph: begins on one stream, forks to others, and joins them again at its end.
///
///     cuda_capture<Api> capture{session, order};
///     capture.begin(origin);                                 // from here on `origin` captures
///     bool is_whole = capture.connect(origin, edge, other);  // and `other`, from here on
///     is_whole = capture.connect(other, edge, origin) && capture.end(graph) && is_whole;
///     if (!is_whole) capture.leave();
///
/// A capture always ends: where its work is lost, the streams leave the capture all the same, and work as before. Calls
/// that fail with an error that is not sticky are made a second time, since no caller could make them again. Cost: two
/// calls to begin and to end, three for each other stream.
/// @threads   one caller at a time; a capture ends on the thread where it began
template <cuda_api Api>
class cuda_capture {
 public:
  using stream_type = typename Api::stream_type;
  using event_type = typename Api::event_type;
  using graph_type = typename Api::graph_type;

  cuda_capture(cuda_session<Api>& session, cuda_order<Api>& order) noexcept : session_{&session}, order_{&order} {}

  [[nodiscard]] bool is_on() const noexcept { return order_->is_capturing(); }

  /// @throws usage_error   a capture is running; nothing was changed and the capture goes on
  void require_none(std::string_view what) const
  {
    if (!is_on()) [[likely]]
      return;
    throw usage_error{error_text{} << "chunkmem: this cannot be captured: " << what
                                   << " (move it before begin_capture or after end_capture)"};
  }

  /// @throws usage_error   no capture is running that began on this thread
  void require_own() const
  {
    if (!is_on() || owner_ != std::this_thread::get_id())
      throw usage_error{"no capture ends here: call begin_capture() before, on the same thread"};
  }

  /// @throws device_error   no capture has begun
  void begin(stream_type origin)
  {
    session_->require("cudaStreamBeginCapture", [&](const Api& api) { return api.begin_capture(origin); });
    origin_ = origin;
    owner_ = std::this_thread::get_id();
    order_->capturing(true);
  }

  /// Makes one more stream capture from here on or, at the end, joins it again. False: a call failed.
  [[nodiscard]] bool connect(stream_type from, event_type edge, stream_type to) noexcept
  {
    const auto mark = [&](const Api& api) { return api.record_event(edge, from); };
    const auto follow = [&](const Api& api) { return api.wait_event(to, edge); };
    return session_->insist("cudaEventRecord", mark) == 0 && session_->insist("cudaStreamWaitEvent", follow) == 0;
  }

  /// Ends the capture. False: the captured work is lost, and streams may still be capturing; then call `leave`.
  [[nodiscard]] bool end(graph_type& graph) noexcept
  {
    const auto call = [&](const Api& api) { return api.end_capture(origin_, graph); };
    int number = session_->attempt("cudaStreamEndCapture", call);
    if (!has_ended(number)) number = session_->attempt("cudaStreamEndCapture", call);
    order_->capturing(!has_ended(number));
    return number == 0;
  }

  /// Ends the capture and discards its work. Loses the session where that fails.
  void leave() noexcept
  {
    if (!is_on()) return;
    graph_type graph{};
    (void)end(graph);
    if (is_on()) session_->lose();
    order_->capturing(false);
    if (graph != graph_type{})
      (void)session_->attempt("cudaGraphDestroy", [&](const Api& api) { return api.destroy_graph(graph); });
  }

 private:
  /// Whether no stream captures any more after this answer: ended, ended as invalid, ended as not joined.
  [[nodiscard]] static bool has_ended(int number) noexcept { return number == 0 || number == 901 || number == 904; }

  cuda_session<Api>* session_;
  cuda_order<Api>* order_;
  stream_type origin_{};
  std::thread::id owner_;
};

/// The callables that a stream has yet to run on the host: a ring of 256.
///
///     cuda_tasks tasks;
///     void* const place = tasks.put(std::move(task));  // where not is_full()
///     if (launch(&cuda_tasks::run, place)) tasks.keep(); else tasks.take_back();
///
/// The runtime gets the address of one slot for each callable. After an error that ends CUDA the runtime may or may not
/// still run one, so memory with callables that were not run is then kept for good, and their captures are not
/// destroyed. The memory stays reachable, so that a leak checker does not report it. Cost: no allocation after
/// construction; one atomic increment for each callable that ran.
///
/// @threads   `run` on any one thread at a time; the rest one caller
class cuda_tasks {
 public:
  static constexpr std::uint64_t room = 256;
  static constexpr std::uint64_t part = 64;  ///< this many slots are freed at a time

  /// @throws device_error   the system gives no memory
  cuda_tasks()
  {
    if (shared_ == nullptr) {
      throw device_error{error_text{} << "chunkmem: no memory for the queue of a stream: "
                                      << std::uint64_t{sizeof(shared)}
                                      << " B requested (free memory, or adopt fewer agents)"};
    }
  }
  cuda_tasks(const cuda_tasks&) = delete;
  cuda_tasks& operator=(const cuda_tasks&) = delete;
  ~cuda_tasks()
  {
    if (finished() == given_) {
      delete shared_;
      return;
    }
    shared_->next_kept = kept_.load();
    while (!kept_.compare_exchange_weak(shared_->next_kept, shared_)) {
    }
  }

  [[nodiscard]] std::uint64_t given() const noexcept { return given_; }
  [[nodiscard]] std::uint64_t finished() const noexcept { return shared_->finished.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_full() const noexcept { return given_ - finished() >= room; }

  /// Puts a callable into the next slot and returns the argument of `run`. Call `keep` once a stream has it, else
  /// `take_back`.
  /// @pre   not is_full()
  [[nodiscard]] void* put(inline_task&& task) noexcept
  {
    slot& next = shared_->slots[given_ % room];
    next.finished = &shared_->finished;
    next.task = std::move(task);
    return &next;
  }
  void keep() noexcept { ++given_; }
  void take_back() noexcept { shared_->slots[given_ % room].task.reset(); }

  /// The runtime calls this function. @param place   the slot of the task
  static void run(void* place) noexcept
  {
    slot& mine = *static_cast<slot*>(place);
    mine.task();
    mine.task.reset();
    mine.finished->fetch_add(1, std::memory_order_release);  // last: the slot belongs to the caller again
  }

 private:
  struct slot {
    inline_task task;
    std::atomic<std::uint64_t>* finished = nullptr;
  };
  struct shared {
    std::atomic<std::uint64_t> finished{0};
    std::array<slot, room> slots;
    shared* next_kept = nullptr;
  };

  /// Tasks that streams of lost devices may still run. It is a global: a runtime may call them after the last backend
  /// has ended, so no object could own them. They are added once for each lost backend, and never freed.
  static inline std::atomic<shared*> kept_{nullptr};

  shared* shared_ = ::new (std::nothrow) shared;
  std::uint64_t given_ = 0;
};

/// A stream, and the progress of its work as the calling thread and other streams know it.
///
///     cuda_lane<Api> lane{session};
///     const std::uint64_t value = ++lane.given;
///     if (!order.record(lane.point(value), lane.stream())) lane.finished(value);  // the calling thread has waited
///
/// The event of value v is entry v modulo 256 of a ring. If a later value uses the same entry, a wait for the earlier
/// value waits for the later one. Such a wait can be too long, but never too short. It makes no cycle: both values were
/// recorded before the wait. Cost: 256 events of the runtime and 40 KiB, all made in the constructor.
template <cuda_api Api>
class cuda_lane {
 public:
  using stream_type = typename Api::stream_type;
  using event_type = typename Api::event_type;

  static constexpr std::uint64_t ring = 256;

  /// @throws device_error   the runtime gives no stream or no events; nothing is left behind
  explicit cuda_lane(cuda_session<Api>& session, int priority = 0) : stream_{session, priority}
  {
    make_events(session);
  }
  cuda_lane(cuda_session<Api>& session, stream_type foreign) : stream_{session, foreign} { make_events(session); }

  [[nodiscard]] stream_type stream() const noexcept { return stream_.get(); }
  [[nodiscard]] event_type point(std::uint64_t value) const noexcept { return points_[value % ring].get(); }

  /// The last value that was recorded with the event of `value`.
  [[nodiscard]] std::uint64_t latest(std::uint64_t value) const noexcept { return given - (given - value) % ring; }

  /// Notes that everything up to `value` is over.
  void finished(std::uint64_t value) noexcept
  {
    if (value > done) done = value;
  }

  /// The value up to which no stream has to wait.
  [[nodiscard]] std::uint64_t ordered() const noexcept { return done > covered ? done : covered; }

  std::uint64_t given = 0;     ///< values recorded so far
  std::uint64_t done = 0;      ///< work up to here is over, as the calling thread knows; except captured work
  std::uint64_t covered = 0;   ///< up to here every other stream is ordered after it already
  std::uint64_t captured = 0;  ///< work from `covered` to here is in a graph that was not launched yet
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

/// The agents of a CUDA backend: a stream each, and the order between them, captured or not.
///
///     cuda_streams<Api> streams{session, groups};
///     const agent mine = streams.adopt(nullptr);
///     streams.wait(agent::compute, streams.record(mine));  // later work of compute follows that of `mine`
///
/// A *cover* orders all streams after everything given so far, with one event for all: around a graph, since events
/// that were recorded while capturing mean nothing outside of it. No wait asks whether an event is reached:
/// `is_reached` is for callers whose wait has a deadline. Where groups of ranks have work on the streams, every wait of
/// the host ends by their deadline (see peer_groups). Cost: one call to record, one to wait, none to wait for work that
/// is known to be over; a cover is three calls for each stream.
///
/// @pre   the backend's device is current in the constructor, and where streams are adopted
/// @threads   one caller at a time; a capture ends on the thread where it began
template <cuda_api Api>
class cuda_streams {
 public:
  using stream_type = typename Api::stream_type;
  using lane = cuda_lane<Api>;

  /// @throws device_error   the runtime gives no streams or events; nothing is left behind
  /// @param beside   the priority of all streams but that of compute and that of the calling thread
  cuda_streams(cuda_session<Api>& session, peer_groups& groups, int beside = 0)
      : session_{&session},
        groups_{&groups},
        beside_{beside},
        peers_{session, groups},
        order_{session, peers_},
        capture_{session, order_},
        own_{session},
        cover_{session},
        edge_{session}
  {
    for (std::size_t i = 1; i < built_in_agents; ++i)
      lanes_[i] = std::make_unique<lane>(session, i == index_of(agent::compute) ? 0 : beside);
  }
  cuda_streams(const cuda_streams&) = delete;
  cuda_streams& operator=(const cuda_streams&) = delete;

  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return throttled_; }
  [[nodiscard]] bool is_capturing() const noexcept { return capture_.is_on(); }

  [[nodiscard]] stream_type own() const noexcept { return own_.get(); }
  [[nodiscard]] bool has_lost_work() const noexcept { return peers_.has_lost(); }

  /// The agent's stream; the host has a stream of its own. @throws usage_error   unknown agent
  [[nodiscard]] stream_type stream(agent on_stream) const
  {
    require_agent(on_stream, agents_);
    return on_stream == agent::host ? own() : lanes_[index_of(on_stream)]->stream();
  }

  /// @throws usage_error   a graph is being captured; nothing was changed and the capture goes on
  void require_no_capture(std::string_view what) const { capture_.require_none(what); }

  /// One more agent, with a stream of its own or, where one is given, with the caller's.
  /// @throws usage_error    no agent is left, or a graph is being captured
  /// @throws device_error   the stream is not of this device, or the runtime gives no stream; nothing was changed
  agent adopt(const stream_type* foreign)
  {
    require_room_for_agent(agents_);
    require_no_capture("a new agent");
    session_->require_alive();
    auto fresh =
        foreign != nullptr ? std::make_unique<lane>(*session_, *foreign) : std::make_unique<lane>(*session_, beside_);
    // A stream of another device does not take an event of this one.
    const auto probe = [&](const Api& api) { return api.record_event(edge_.get(), fresh->stream()); };
    if (foreign != nullptr) session_->require("cudaEventRecord on the adopted stream", probe);
    if (!is_cover_over_ && !order_.follow(fresh->stream(), cover_.get())) finish_cover();
    lanes_[agents_] = std::move(fresh);
    return static_cast<agent>(agents_++);
  }

  /// @throws usage_error    unknown agent
  /// @throws device_error   the session is lost; while capturing also: nothing was recorded
  [[nodiscard]] event record(agent stream)
  {
    require_agent(stream, agents_);
    session_->require_alive();
    if (stream == agent::host) return {.value = ++host_records_, .source = stream};
    return {.value = record(*lanes_[index_of(stream)]), .source = stream};
  }

  /// @throws usage_error    unknown agent, or an event that was not recorded or that a graph has yet to reach
  /// @throws device_error   the session is lost; while capturing also: nothing was ordered
  void wait(agent stream, event point)
  {
    require_agent(stream, agents_);
    require_agent(point.source, agents_);
    if (point.source == agent::host) return require_recorded(point, host_records_);
    lane& source = *lanes_[index_of(point.source)];
    require_recorded(point, source.given);
    session_->require_alive();
    require_launched(point, source);
    if (point.source == stream || point.value <= (stream == agent::host ? source.done : source.ordered())) return;
    if (stream == agent::host) require_no_capture("a wait of the calling thread");
    if (stream == agent::host || !order_.follow(lanes_[index_of(stream)]->stream(), source.point(point.value)))
      finish(source, point.value);
  }

  /// Whether a wait of the host for this event would return immediately. False where the runtime cannot tell.
  /// @throws as wait
  [[nodiscard]] bool is_reached(event point)
  {
    require_agent(point.source, agents_);
    if (point.source == agent::host) return true;
    lane& source = *lanes_[index_of(point.source)];
    require_recorded(point, source.given);
    session_->require_alive();
    require_launched(point, source);
    if (point.value <= source.done) return true;
    require_no_capture("a wait of the calling thread");
    const bool is_covered = point.value <= source.covered;
    if (is_covered && is_cover_over_) return true;
    bool is_over = false;
    const auto ask = [&](const Api& api) {
      return api.query_event(is_covered ? cover_.get() : source.point(point.value), is_over);
    };
    return session_->attempt("cudaEventQuery", ask) == 0 && is_over;
  }

  /// Runs a callable on an agent's stream, on a thread of the runtime.
  /// @pre   no graph is being captured, and `stream` is not the host
  /// @throws device_error   nothing was enqueued
  void enqueue(agent stream, inline_task&& task)
  {
    lane& this_lane = *lanes_[index_of(stream)];
    make_room(this_lane);
    void* const slot = this_lane.tasks.put(std::move(task));
    const auto give = [&](const Api& api) {
      return api.launch_host(
          this_lane.stream(), [](void* it) { cuda_tasks::run(it); }, slot);
    };
    if (session_->attempt("cudaLaunchHostFunc", give) != 0) [[unlikely]] {
      this_lane.tasks.take_back();
      session_->raise();
    }
    this_lane.tasks.keep();
  }

  /// Makes room to note an operation of a group of ranks. @pre the device is current
  /// @throws usage_error   unknown agent; device_error   the runtime gives no event
  void expect_peers(agent stream)
  {
    require_agent(stream, agents_);
    peers_.make_room(index_of(stream));
    if (is_capturing()) peers_.make_room(index_of(agent::compute));
  }
  /// Notes that an operation of a group of ranks was given to the agent's stream, or to a graph: no wait of the host
  /// for the operation is longer than this deadline. @pre expect_peers
  void gave_to_peers(agent stream_of, std::chrono::nanoseconds deadline) noexcept
  {
    if (is_capturing())
      captured_deadline_ = std::max(captured_deadline_, deadline);
    else
      peers_.given(index_of(stream_of), stream(stream_of), deadline);
  }
  /// Where groups failed and have all left: waits until none of their operations is on the streams.
  /// @throws device_error   an operation stays there
  void drain_peers()
  {
    if (is_capturing() || !groups_->waits_to_drain()) [[likely]]
      return;
    if (!peers_.wait_for_all()) session_->raise();
    groups_->drained();
  }

  /// Waits for everything. False: the session is lost, and work may still be running.
  [[nodiscard]] bool finish_all() noexcept
  {
    if (!peers_.wait_for_all()) return false;
    for (std::size_t i = 1; i < agents_; ++i) {
      if (!session_->finish(lanes_[i]->stream())) return false;
      lanes_[i]->finished(lanes_[i]->given);
    }
    return session_->finish(own());
  }
  /// Waits for the work that the calling thread gave to its own stream. False: as `finish_all`.
  [[nodiscard]] bool finish_own() noexcept { return hold_own() && session_->finish(own()); }
  /// Waits until no operation of other ranks is on that stream. False: as `finish_all`.
  [[nodiscard]] bool hold_own() noexcept { return peers_.wait_for_all(1U << index_of(agent::host)); }

  /// From here on, work of streams is captured. @throws device_error   no capture has begun, and nothing is lost
  void begin_capture()
  {
    require_no_capture("the beginning of another capture");
    session_->require_alive();
    cover([] {});
    capture_.begin(compute().stream());
    bool is_whole = true;
    for_others(
        [&](lane& it) { is_whole = is_whole && capture_.connect(compute().stream(), edge_.get(), it.stream()); });
    if (is_whole) return;
    const device_error cause = session_->failure();
    capture_.leave();
    throw cause;
  }

  /// Returns the captured work. @throws device_error   the work is lost, and with it the session
  [[nodiscard]] typename Api::graph_type end_capture()
  {
    session_->require_alive();
    capture_.require_own();
    typename Api::graph_type graph{};
    bool is_whole = true;
    for_others(
        [&](lane& it) { is_whole = is_whole && capture_.connect(it.stream(), edge_.get(), compute().stream()); });
    if (!is_whole || !capture_.end(graph)) {
      session_->lose();
      capture_.leave();
      session_->raise();
    }
    for (std::size_t i = 1; i < agents_; ++i) lanes_[i]->captured = lanes_[i]->given;
    return graph;
  }

  /// Ends a capture and discards its work.
  void leave_capture() noexcept { capture_.leave(); }

  /// Runs a graph: after all work that agents were given so far, and before all work that they are given later.
  /// @throws device_error   the graph was not enqueued
  void launch(typename Api::executable_type graph)
  {
    cover([&] {
      const auto start = [&](const Api& api) { return api.launch_graph(graph, compute().stream()); };
      if (session_->insist("cudaGraphLaunch", start) != 0) session_->raise();
      if (captured_deadline_ > std::chrono::nanoseconds{})
        peers_.given(index_of(agent::compute), compute().stream(), captured_deadline_);
      for (std::size_t i = 1; i < agents_; ++i)
        lanes_[i]->done = 0;  // a graph repeats work that may have been waited for
    });
  }

 private:
  [[nodiscard]] lane& compute() noexcept { return *lanes_[index_of(agent::compute)]; }

  template <class Visit>
  void for_others(Visit visit)
  {
    for (std::size_t i = 1; i < agents_; ++i)
      if (i != index_of(agent::compute)) visit(*lanes_[i]);
  }

  void require_launched(event point, const lane& source) const
  {
    if (is_capturing() || point.value <= source.covered || point.value > source.captured) return;
    throw usage_error{
        error_text{} << "chunkmem: wait for an event of a captured graph that was not launched yet: value "
                     << point.value << " of agent " << index_of(point.source) << " (launch the graph first)"};
  }

  [[nodiscard]] std::uint64_t record(lane& this_lane)
  {
    if (!order_.record(this_lane.point(this_lane.given + 1), this_lane.stream()))
      this_lane.finished(this_lane.given + 1);
    return ++this_lane.given;
  }

  void finish(lane& source, std::uint64_t value)
  {
    if (value <= source.done) return;
    if (value <= source.covered) return finish_cover();
    const std::uint64_t latest = source.latest(value);
    source.finished(order_.finish(source.point(value), source.stream()) ? latest : source.given);
  }

  void finish_cover()
  {
    if (!is_cover_over_) (void)order_.finish(cover_.get(), compute().stream());
    is_cover_over_ = true;
    for (std::size_t i = 1; i < agents_; ++i) lanes_[i]->finished(lanes_[i]->covered);
  }

  /// Makes compute wait for all work that `it` was given.
  void join(lane& it)
  {
    if (order_.record(edge_.get(), it.stream())) {
      if (order_.follow(compute().stream(), edge_.get())) return;
      (void)order_.finish(edge_.get(), it.stream());
    }
    it.finished(it.given);
  }

  /// Does `middle` on compute after all earlier work, and makes all later work wait for it.
  template <class Middle>
  void cover(Middle middle)
  {
    for_others([&](lane& it) { join(it); });
    middle();
    is_cover_over_ = !order_.record(cover_.get(), compute().stream());
    for (std::size_t i = 1; i < agents_; ++i) lanes_[i]->covered = lanes_[i]->given;
    if (is_cover_over_) return finish_cover();
    for_others([&](lane& it) {
      if (!is_cover_over_ && !order_.follow(it.stream(), cover_.get())) finish_cover();
    });
  }

  /// Waits for the oldest part of the tasks where all slots are taken.
  void make_room(lane& this_lane)
  {
    constexpr std::uint64_t parts = cuda_tasks::room / cuda_tasks::part;
    const std::uint64_t part = this_lane.tasks.given() / cuda_tasks::part;
    if (this_lane.tasks.given() != 0 && this_lane.tasks.given() % cuda_tasks::part == 0)
      this_lane.marks[(part - 1) % parts] = record(this_lane);
    if (!this_lane.tasks.is_full()) [[likely]]
      return;
    ++throttled_;
    finish(this_lane, this_lane.marks[part % parts]);
  }

  cuda_session<Api>* session_;
  peer_groups* groups_;
  int beside_;
  peer_work<Api> peers_;
  cuda_order<Api> order_;
  cuda_capture<Api> capture_;
  cuda_stream<Api> own_;
  cuda_event<Api> cover_;  // after all work up to `covered` of each lane
  cuda_event<Api> edge_;   // from one stream to another, for the moment
  std::size_t agents_ = built_in_agents;
  std::uint64_t host_records_ = 0;
  std::uint64_t throttled_ = 0;
  bool is_cover_over_ = true;
  std::chrono::nanoseconds captured_deadline_{};  ///< of groups whose operations were captured; 0: none
  std::array<std::unique_ptr<lane>, max_agents> lanes_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
