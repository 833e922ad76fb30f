// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/trace/trace_sink.hpp>
#include <conformance/trials.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace conformance {

/// One event of each kind, and the largest numbers there are.
template <class Visitor>
void each_kind_of_event(Visitor visit)
{
  for (std::size_t i = 0; i < chunkmem::happening_count; ++i) {
    const auto what = static_cast<chunkmem::trace_event_kind>(i);
    visit(chunkmem::trace_event{.what = what, .chunk = chunkmem::chunk_id{3}, .bytes = 100, .begin = 10, .end = 20});
    visit(chunkmem::trace_event{.what = what, .bytes = UINT64_MAX, .begin = UINT64_MAX, .end = 0});
  }
}

/// One trial of the laws of trace_sink: it takes every event, as often as it comes, through any copy, and never throws.
/// It asks for `record` alone, since the compiler refuses a sink that may throw.
/// @param sink   by reference: a trial goes on where the last one ended
template <class Sink>
[[nodiscard]] std::string mistake_in_records(Sink& sink, std::uint64_t)
{
  if (!noexcept(sink.record(chunkmem::trace_event{}))) return "record may throw";
  if (std::string_view{Sink::name}.empty()) return "a policy without a name";
  Sink copied = sink;
  for (int round = 0; round < 100; ++round) {
    each_kind_of_event([&](const chunkmem::trace_event& event) { copied.record(event); });
    each_kind_of_event([&](const chunkmem::trace_event& event) { sink.record(event); });
  }
  return {};
}

inline constexpr std::uint64_t sink_trials = 10;

/// The broken law of trace_sink; empty: none.
template <class Sink>
[[nodiscard]] std::string mistake_in_trace_sink(Sink sink)
{
  return first_mistake(sink_trials, [&](std::uint64_t number) { return mistake_in_records(sink, number); });
}

/// The laws of trace_sink.
template <chunkmem::trace_sink Sink>
void trace_sink_laws(Sink sink)
{
  require_trials(sink_trials, [&](std::uint64_t number) { return mistake_in_records(sink, number); });
}

}  // namespace conformance
