// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/trace/trace_event.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace chunkmem::inline v0 {
namespace trace {

/// Sums of the events so far. The user owns it; a counter_sink adds to it.
///
///     const std::uint64_t loads = totals[trace_event_kind::load].count;
class counter_totals {
 public:
  struct total {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  ///< stays 0 where the number of an event is no size: see is_numbered
  };

  [[nodiscard]] const total& operator[](trace_event_kind what) const noexcept
  {
    return totals_[static_cast<std::size_t>(what)];
  }

  void add(const trace_event& event) noexcept
  {
    total& sum = totals_[static_cast<std::size_t>(event.what)];
    ++sum.count;
    if (!is_numbered(event.what)) sum.bytes += event.bytes;
  }

  void reset() noexcept { totals_ = {}; }

 private:
  std::array<total, happening_count> totals_{};
};

/// One line for each kind of event that happened: its name, how often, how many bytes.
[[nodiscard]] inline std::string to_string(const counter_totals& totals)
{
  std::string text;
  for (std::size_t i = 0; i < happening_count; ++i) {
    const auto what = static_cast<trace_event_kind>(i);
    if (totals[what].count == 0) continue;
    text.append(name_of(what)).append(" ").append(std::to_string(totals[what].count)).append(" times, ");
    text.append(std::to_string(totals[what].bytes)).append(" B\n");
  }
  return text;
}

/// Adds up events, and keeps no single event.
///
/// Passed by value, it points to totals that the user keeps and reads at any time between two calls of the manager.
/// Good for tests and for watching a long run; poor for finding out when something happened (see chrome_sink).
/// Cost: two additions per event.
///
/// Use:
///
///     trace::counter_totals totals;                                            // outlives the manager
///     cm::manager<memory_type, trace::counter_sink> m{memory, options, trace::counter_sink{totals}};
///     ... totals[trace_event_kind::load].bytes                                 // at any time
///
/// @threads   one caller per totals
class counter_sink {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "counter_sink";

  /// @param totals   outlives the sink and its copies
  explicit counter_sink(counter_totals& totals) noexcept : totals_{&totals} {}

  void record(const trace_event& event) noexcept { totals_->add(event); }

 private:
  counter_totals* totals_;
};

static_assert(trace_sink<counter_sink>);

}  // namespace trace
}  // namespace chunkmem::inline v0
