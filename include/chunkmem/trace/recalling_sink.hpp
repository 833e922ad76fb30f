// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/trace/trace_sink.hpp>

#include <concepts>
#include <cstddef>
#include <string>

namespace chunkmem::inline v0 {

/// A sink that can tell the last events. Errors with details have these events in them.
///
/// Laws: `recall(most)` gives at most that many lines, the oldest first, each with its end; it changes nothing.
/// It is not empty after events were recorded, and its last line tells the newest event.
template <class Sink>
concept recalling_sink = trace_sink<Sink> && requires(const Sink sink, std::size_t most) {
  {
    sink.recall(most)
  } -> std::same_as<std::string>;
};

}  // namespace chunkmem::inline v0
