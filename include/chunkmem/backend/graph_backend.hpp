// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// A stream backend that can write down what it is given, as a graph, and do it again as often as it is told.
///
/// Laws:
/// 1. From `begin_capture()` to `end_capture()` the work of all agents but `agent::host` is written down and not done.
///    What was given before is ordered before it.
/// 2. What cannot be written down throws `usage_error` with nothing changed, and the capture goes on: work of
///    `agent::host`, waits of it, callables that run on the host, memory, new agents.
/// 3. `end_capture()` gives all that was written down; it throws `device_error` where that is lost.
/// 4. `launch(graph)` enqueues it: after all that every agent was given, and before all that any agent is given later.
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

}  // namespace chunkmem::inline v0
