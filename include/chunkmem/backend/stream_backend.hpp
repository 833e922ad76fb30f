// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Has a capacity for each tier.
template <class Backend>
concept limits_tiers = requires(const Backend& backend, tier where) {
  {
    backend.capacity(where)
  } -> std::same_as<bytes>;
};

/// Allocates the memory of a tier. Called at set-up only: a manager divides it into frames.
template <class Backend>
concept allocates_tiers = requires(Backend& backend, tier where, std::byte* place, bytes size) {
  {
    backend.allocate(where, size)
  } -> std::same_as<std::byte*>;
  {
    backend.release(where, place)
  } noexcept;
};

/// Copies and fills, done when the call returns.
template <class Backend>
concept copies_bytes = requires(Backend& backend, std::byte* to, const std::byte* from, bytes size) {
  backend.copy(to, from, size);
  backend.fill(to, std::byte{}, size);
};

/// Where bytes live.
///
/// Laws: `allocate` gives memory aligned to `tensor_alignment`, or throws `out_of_memory` with nothing changed, and
/// never lets a tier hold more than `capacity`; `release` takes back exactly what `allocate` gave; the contents of
/// fresh memory are unspecified; `host_addressable` says whether the calling thread may read and write the device tier.
template <class Backend>
concept memory_backend = limits_tiers<Backend> && allocates_tiers<Backend> && copies_bytes<Backend> && requires {
  {
    Backend::host_addressable
  } -> std::convertible_to<bool>;
};

/// Whether copies carry bytes. A backend without bytes has `static constexpr bool has_bytes = false`: nothing may be
/// computed on it.
template <class Backend>
[[nodiscard]] consteval bool has_bytes() noexcept
{
  if constexpr (requires { Backend::has_bytes; })
    return Backend::has_bytes;
  else
    return true;
}

/// A stream or the calling thread: an index, not a closed set. Every backend has the first four; `adopt` adds others.
///
/// Work of one agent happens in the order it was given; work of two agents happens in any order that their waits allow.
enum class agent : std::uint8_t {
  host,       ///< the calling thread
  compute,    ///< the backend's own compute stream
  to_device,  ///< copies towards the device
  to_host,    ///< copies towards the host
};

inline constexpr std::size_t built_in_agents = 4;
inline constexpr std::size_t max_agents = 8;

/// A point in the work of one agent, after all work that it was given before. Value 0 is always reached.
///
///     const event done = memory.record(agent::to_device);
///     memory.wait(agent::compute, done);
///
/// Values grow with each record of a source. An event is plain data and is never freed.
struct event {
  std::uint64_t value = 0;
  agent source = agent::host;
};

namespace detail {

/// Does nothing. A named type, since nvcc does not accept a lambda in a requirement.
struct idle_work {
  void operator()() const noexcept {}
};

}  // namespace detail

/// Enqueues on agents.
template <class Backend>
concept enqueues_work = requires(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent stream) {
  backend.copy(to, from, size, stream);
  backend.fill(to, std::byte{}, size, stream);
  backend.launch(stream, detail::idle_work{});
};

/// Orders agents against each other.
template <class Backend>
concept orders_agents = requires(Backend& backend, agent stream, event point) {
  {
    backend.record(stream)
  } -> std::same_as<event>;
  backend.wait(stream, point);
};

/// A memory backend whose copies and kernels run on agents.
///
/// Laws:
/// 1. `copy(to, from, size, stream)`, `fill` and `launch(stream, fn)` enqueue and return; with `agent::host` they are
///    done when they return. They throw `device_error` with nothing enqueued. `fn` is nothrow-movable and at most 128
///    bytes.
/// 2. `record(stream)` is an event that covers all work of `stream` so far; `record(agent::host)` is reached
///    immediately.
/// 3. `wait(stream, e)`: later work of `stream` starts after `e`. It blocks the caller only where `stream` is
///    `agent::host`.
/// 4. Work starts in the order of enqueueing, for each agent; a wait names only an event that was recorded before, so
/// no
///    cycle of waits can be built.
/// 5. `adopt()` gives one more agent, or throws `usage_error` when `max_agents` are in use.
/// 6. `now()` is time for reports [ns]. No decision of a manager reads it, or asks whether an event is reached, so
///    every backend decides alike.
/// 7. `throttled()` counts how often an enqueue had to wait for room in a queue.
/// Destroying a backend finishes or drops its queued work without touching memory given back before.
template <class Backend>
concept stream_backend = memory_backend<Backend> && enqueues_work<Backend> && orders_agents<Backend> &&
                         requires(Backend& backend, const Backend& view) {
                           {
                             backend.adopt()
                           } -> std::same_as<agent>;
                           {
                             view.agents()
                           } -> std::same_as<std::size_t>;
                           {
                             view.now()
                           } -> std::same_as<std::uint64_t>;
                           {
                             view.throttled()
                           } -> std::same_as<std::uint64_t>;
                         };

/// A stream backend that can capture its work as a graph, and launch the graph any number of times.
///
/// Laws:
/// 1. From `begin_capture()` to `end_capture()` the work of all agents but `agent::host` is captured and not done.
///    Earlier work is ordered before it.
/// 2. Work that cannot be captured throws `usage_error` with nothing changed, and the capture goes on: work of
///    `agent::host`, its waits, callables that run on the host, memory, new agents.
/// 3. `end_capture()` returns the captured work; it throws `device_error` where that is lost.
/// 4. `launch(graph)` enqueues the graph: after all earlier work of every agent, and before all later work of any
/// agent.
///    Events recorded before, in a capture or not, are reached when the graph is done.
/// 5. A graph may be destroyed while it runs, and outlives its backend only as a dead handle.
template <class Backend>
concept graph_backend =
    stream_backend<Backend> && requires(Backend& backend, const Backend& view, typename Backend::graph_type& graph) {
      requires std::movable<typename Backend::graph_type>;
      backend.begin_capture();
      {
        backend.end_capture()
      } -> std::same_as<typename Backend::graph_type>;
      backend.launch(graph);
      {
        view.is_capturing()
      } -> std::same_as<bool>;
    };

/// Why the calling thread waits, or a stream of kernels waits for a copy.
enum class wait_cause : std::uint8_t {
  demand_miss,  ///< for a load, for the room of a load, or of a stream for the write-back of bytes that it overwrites
  optimizer_input,  ///< for bytes on their way to the host
  throttle,         ///< for room in a queue of the backend
  other,            ///< of the calling thread, for agents that only read bytes that it overwrites: none on one agent
};

inline constexpr std::size_t wait_causes = 4;

/// Waits of one cause that blocked.
///
///     const wait_total misses = memory.waited(wait_cause::demand_miss);
struct wait_total {
  std::uint64_t count = 0;
  std::uint64_t nanoseconds = 0;
  bool operator==(const wait_total&) const = default;
};

/// A stream backend that knows which waits blocked, and for how long. Only reports ask it.
///
/// Laws:
/// 1. `wait(stream, e, why)` orders as `wait(stream, e)`. Whether the event is already reached changes only the totals.
/// 2. `waited(why)` has the waits of that cause that blocked `stream`: the calling thread, or the stream on its thread
///    or clock. `waited(wait_cause::throttle)` has the enqueues that blocked. Totals never fall. Without `waited` a
///    manager measures the calling thread's waits around `wait`, and counts each of them; see hazard_tracker.
template <class Backend>
concept measuring_backend = stream_backend<Backend> &&
                            requires(Backend& backend, const Backend& view, agent stream, event point, wait_cause why) {
                              backend.wait(stream, point, why);
                              {
                                view.waited(why)
                              } -> std::same_as<wait_total>;
                            };

namespace backend {

/// Mistakes of a caller that every stream backend refuses in the same words. Cost: one or two compares each.

/// @throws usage_error   `stream` is no agent of a backend with `agents` of them
constexpr void require_agent(agent stream, std::size_t agents)
{
  if (index_of(stream) < agents) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: no such agent: index " << index_of(stream) << ", the backend has "
                                 << agents << " (use one of the built-in agents or one that adopt() gave)"};
}

/// @throws usage_error   a null address, where the size is not 0
constexpr void require_places(const std::byte* to, const std::byte* from, bytes size)
{
  if (size == bytes{} || (to != nullptr && from != nullptr)) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: copy or fill at a null address: " << size.count()
                                 << " B (pass memory that allocate() gave)"};
}

/// A wait for an event that was never recorded could close a cycle of waits: a deadlock.
/// @throws usage_error   `point` lies after everything that its source was `given`
constexpr void require_recorded(event point, std::uint64_t given)
{
  if (point.value <= given) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: wait for an event that was never recorded: value " << point.value
                                 << " of agent " << index_of(point.source) << ", the last possible is " << given
                                 << " (record the event first, on this backend)"};
}

/// @throws usage_error   `max_agents` are in use
constexpr void require_room_for_agent(std::size_t agents)
{
  if (agents < max_agents) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: no agent is left to adopt: " << agents << " of " << max_agents
                                 << " are in use (share a stream between its users)"};
}

}  // namespace backend
}  // namespace chunkmem::inline v0
