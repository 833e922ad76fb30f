// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/memory_backend.hpp>
#include <chunkmem/core/bytes.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Who works: an index, not a closed set. The first four are there in every backend; `adopt` adds the caller's own.
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

/// A point in the work of one agent: all that it was given before. Value 0 is always reached.
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

/// Nothing to do. A name, since nvcc takes no requirement for fulfilled that holds a lambda.
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
/// 2. `record(stream)` is an event that covers all that `stream` was given so far; `record(agent::host)` is reached at
///    once.
/// 3. `wait(stream, e)`: later work of `stream` starts after `e`. It blocks the caller only where `stream` is
///    `agent::host`.
/// 4. Work starts in the order of enqueueing, for each agent; a wait names only what was recorded before, so no cycle
///    of waits can be built.
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

}  // namespace chunkmem::inline v0
