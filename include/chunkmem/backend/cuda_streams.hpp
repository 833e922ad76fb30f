// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_capture.hpp>
#include <chunkmem/backend/cuda_handles.hpp>
#include <chunkmem/backend/cuda_lane.hpp>
#include <chunkmem/backend/cuda_order.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/stream_checks.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// The agents of a CUDA backend: a stream each, and the order between them, captured or not.
///
///     cuda_streams<Api> streams{session};
///     const agent mine = streams.adopt(nullptr);
///     streams.wait(agent::compute, streams.record(mine));  // later work of compute follows that of `mine`
///
/// A *cover* orders all streams after everything given so far, with one event for all: around a graph, since what the
/// ring recorded while capturing means nothing outside of it. No wait asks whether an event is reached: `is_reached` is
/// for callers whose wait has a deadline. Cost: one call to record, one to wait, none to wait for what is known to be
/// over; a cover is three calls for each stream.
///
/// @pre   the backend's device is current where this is made, and where streams are adopted
/// @threads   one caller at a time; a capture ends on the thread where it began
template <cuda_api Api>
class cuda_streams {
 public:
  using stream_type = typename Api::stream_type;
  using lane = cuda_lane<Api>;

  /// @throws device_error   the runtime gives no streams or events; what was made is destroyed
  explicit cuda_streams(cuda_session<Api>& session)
      : session_{&session}, order_{session}, capture_{session, order_}, own_{session}, cover_{session}, edge_{session}
  {
    for (std::size_t i = 1; i < built_in_agents; ++i) lanes_[i] = std::make_unique<lane>(session);
  }
  cuda_streams(const cuda_streams&) = delete;
  cuda_streams& operator=(const cuda_streams&) = delete;

  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return throttled_; }
  [[nodiscard]] bool is_capturing() const noexcept { return capture_.is_on(); }

  [[nodiscard]] stream_type own() const noexcept { return own_.get(); }

  /// The agent's stream; that of the host is one nobody else has. @throws usage_error   unknown agent
  [[nodiscard]] stream_type stream(agent on_stream) const
  {
    require_agent(on_stream, agents_);
    return on_stream == agent::host ? own() : lanes_[index_of(on_stream)]->stream();
  }

  /// @throws usage_error   a graph is being captured; nothing was changed and the capture goes on
  void require_no_capture(std::string_view what) const { capture_.require_none(what); }

  /// One more agent, with a stream of its own or, where one is given, with the caller's.
  /// @throws usage_error    no agent is left, or a graph is being captured
  /// @throws device_error   the stream is not one of this device, or the runtime gives none; nothing was changed
  agent adopt(const stream_type* foreign)
  {
    require_room_for_agent(agents_);
    require_no_capture("a new agent");
    session_->require_alive();
    auto fresh = foreign != nullptr ? std::make_unique<lane>(*session_, *foreign) : std::make_unique<lane>(*session_);
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

  /// Whether a wait of the host for this event would end at once. A runtime that cannot say so says no.
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

  /// Waits for everything. False: the session is lost, and work may still be running.
  [[nodiscard]] bool finish_all() noexcept
  {
    for (std::size_t i = 1; i < agents_; ++i) {
      if (!session_->finish(lanes_[i]->stream())) return false;
      lanes_[i]->finished(lanes_[i]->given);
    }
    return session_->finish(own());
  }

  /// From here on, work of streams is written down. @throws device_error   nothing was written down, nothing is lost
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

  /// Gives what was written down. @throws device_error   it is lost, and with it the session
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

  /// Takes the streams out of a capture whose work nobody wants.
  void leave_capture() noexcept { capture_.leave(); }

  /// Runs a graph: after all that every agent was given, and before all that any agent is given later.
  /// @throws device_error   it was not enqueued
  void launch(typename Api::executable_type graph)
  {
    cover([&] {
      const auto start = [&](const Api& api) { return api.launch_graph(graph, compute().stream()); };
      if (session_->insist("cudaGraphLaunch", start) != 0) session_->raise();
      for (std::size_t i = 1; i < agents_; ++i)
        lanes_[i]->done = 0;  // a graph does again what may have been waited for
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

  /// Compute follows all that `it` was given.
  void join(lane& it)
  {
    if (order_.record(edge_.get(), it.stream())) {
      if (order_.follow(compute().stream(), edge_.get())) return;
      (void)order_.finish(edge_.get(), it.stream());
    }
    it.finished(it.given);
  }

  /// Does `middle` on compute after everything, and everything later after it.
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
  cuda_order<Api> order_;
  cuda_capture<Api> capture_;
  cuda_stream<Api> own_;
  cuda_event<Api> cover_;  // after everything that `covered` of the lanes says
  cuda_event<Api> edge_;   // from one stream to another, for the moment
  std::size_t agents_ = built_in_agents;
  std::uint64_t host_records_ = 0;
  std::uint64_t throttled_ = 0;
  bool is_cover_over_ = true;
  std::array<std::unique_ptr<lane>, max_agents> lanes_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
