// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/tier.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

/// The kinds of events that a manager sends to a trace sink.
enum class trace_event_kind : std::uint8_t {
  load,        ///< a chunk is copied to the device
  write_back,  ///< a chunk is copied to the host
  evict,       ///< a chunk gave up its device frames
  discard,     ///< a chunk gave up its device frames without a copy: its bytes are dead, or overwritten on the host
  lease,       ///< bytes were leased
  lease_end,   ///< leased bytes came back
  iteration,   ///< an iteration ended; `bytes` is its number
  divergence,  ///< an access was not the recorded one
  replan,      ///< the actions of the next iteration were computed again
  claim,       ///< a chunk took device frames without a copy: its bytes are overwritten
  forward,     ///< the trainer named a forward pass; `bytes` is the number of its micro-batch
  backward,    ///< the trainer named a backward pass; `bytes` is the number of its micro-batch
  update,      ///< an optimizer's step begins
};

inline constexpr std::size_t happening_count = 13;

/// `bytes` of such an event is a number, and no size.
[[nodiscard]] constexpr bool is_numbered(trace_event_kind what) noexcept
{
  return what == trace_event_kind::iteration || what == trace_event_kind::forward || what == trace_event_kind::backward;
}

[[nodiscard]] constexpr std::string_view name_of(trace_event_kind what) noexcept
{
  constexpr std::string_view names[happening_count] = {"load",      "write_back", "evict",      "discard", "lease",
                                                       "lease_end", "iteration",  "divergence", "replan",  "claim",
                                                       "forward",   "backward",   "update"};
  return names[static_cast<std::size_t>(what)];
}

/// One event. Fixed size, no pointers: fit for rings and files.
///
///     struct my_sink {
///       void record(const trace_event& event) noexcept { std::fputs(name_of(event.what).data(), stderr); }
///     };
struct trace_event {
  trace_event_kind what = trace_event_kind::load;
  tier from = tier::host;
  tier to = tier::device;
  chunk_id chunk = chunk_id::none;
  std::uint64_t bytes = 0;
  std::uint64_t begin = 0;  ///< when it was enqueued, backend time [ns]
  std::uint64_t end = 0;    ///< when the enqueue returned, backend time [ns]
};

static_assert(std::is_trivially_copyable_v<trace_event> && sizeof(trace_event) == 32);

/// Receives each event when it happens.
///
/// Laws: `record` never throws and never calls the manager back. It may be called for every copy, so keep it short.
template <class Sink>
concept trace_sink = names_itself<Sink> && std::same_as<typename Sink::policy_kind, sink_kind> &&
                     requires(Sink sink, const trace_event& event) {
                       {
                         sink.record(event)
                       } noexcept;
                     };

namespace trace {

/// The default: keeps nothing and compiles to nothing.
///
///     manager<backend::host_arena, trace::null_sink> m{memory};  // the same type as manager<backend::host_arena>
struct null_sink {
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "null_sink";
  void record(const trace_event&) noexcept {}
};

static_assert(trace_sink<null_sink>);

}  // namespace trace

/// A sink that can recall the last events, for the details of errors.
///
/// Laws: `recall(most)` gives at most that many lines, the oldest first, each with its end; it changes nothing.
/// It is not empty after events were recorded, and its last line is the newest event.
template <class Sink>
concept recalling_sink = trace_sink<Sink> && requires(const Sink sink, std::size_t most) {
  {
    sink.recall(most)
  } -> std::same_as<std::string>;
};

}  // namespace chunkmem::inline v0
