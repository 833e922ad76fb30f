// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/trace/trace_sink.hpp>
#include <conformance/trace_sink.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace conformance {

/// Where another event comes after two of one kind, the last line is another one, at least for some kinds: a sink need
/// not recall all of them.
template <chunkmem::recalling_sink Sink>
[[nodiscard]] std::string mistake_in_newest_line(Sink& sink)
{
  bool has_changed = false;
  for (std::size_t index = 0; index < chunkmem::happening_count; ++index) {
    for (int times = 0; times < 2; ++times) sink.record({.what = static_cast<chunkmem::trace_event_kind>(index)});
    const std::string before = sink.recall(1);
    sink.record({.what = static_cast<chunkmem::trace_event_kind>((index + 1) % chunkmem::happening_count)});
    has_changed = has_changed || sink.recall(1) != before;
  }
  return has_changed ? "" : "the newest event is not the last line: " + sink.recall(1);
}

inline constexpr std::uint64_t recalling_trials = 21;

/// One trial of the laws of recalling_sink, for `recall(number - 1)`, after events of every kind were recorded: so many
/// whole lines at most, the last ones, the oldest first, and the same ones again.
template <chunkmem::recalling_sink Sink>
[[nodiscard]] std::string mistake_in_recalling(Sink& sink, std::uint64_t number)
{
  if (number == recalling_trials) return mistake_in_newest_line(sink);
  if (number == 1) each_kind_of_event([&](const chunkmem::trace_event& event) { sink.record(event); });
  const auto most = static_cast<std::size_t>(number - 1);
  const Sink& asked = sink;
  const std::string all = asked.recall(1'000);
  const std::string lines = asked.recall(most);
  const auto said = [&](const char* law) {
    return std::string{law} + ", of at most " + std::to_string(most) + ":\n" + lines;
  };
  if (asked.recall(1'000) != all || asked.recall(most) != lines) return said("recalling changed what is recalled");
  if (static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')) > most)
    return said("more lines than were asked for");
  if (most == 0) return lines.empty() ? "" : said("more lines than were asked for");
  if (lines.empty() || all.empty()) return said("nothing is recalled though events were recorded");
  if (lines.back() != '\n') return said("the last line has no end");
  if (!lines.ends_with(asked.recall(most - 1)) || !all.ends_with(lines))
    return said("the lines are not the last ones with the oldest first");
  return {};
}

/// The broken law of recalling_sink; empty: none.
template <chunkmem::recalling_sink Sink>
[[nodiscard]] std::string mistake_in_recalling_sink(Sink sink)
{
  std::string mistake = mistake_in_trace_sink(sink);
  if (mistake.empty())
    mistake = first_mistake(recalling_trials, [&](std::uint64_t number) { return mistake_in_recalling(sink, number); });
  return mistake;
}

/// The laws of recalling_sink, and those of trace_sink.
template <chunkmem::recalling_sink Sink>
void recalling_sink_laws(Sink sink)
{
  trace_sink_laws(sink);
  require_trials(recalling_trials, [&](std::uint64_t number) { return mistake_in_recalling(sink, number); });
}

}  // namespace conformance
