// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/posix_file.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

// csv_sink writes a table, counter_sink counts, and ring_sink keeps the last events. Each adds to an object that the
// user owns: csv_file, counter_totals, event_ring.

namespace chunkmem::inline v0 {
namespace trace {

/// A table of events in a file, one line for each. The user owns it; a csv_sink adds to it.
///
///     csv_file file{"run.csv"};  // given to a csv_sink, and outlives its manager
///     file.close();              // throws if a line is missing
///
/// Columns: `what` (the kind of the event), chunk (empty where there is none), bytes (of an iteration: its number),
/// from, to, begin and end in nanoseconds.
class csv_file {
 public:
  /// A new file, which takes the name at once; never through a link: see replaced_file. @throws io_error   it cannot be
  /// made
  explicit csv_file(const std::string& path) : file_{path, "a table of events", replaced_file::naming::at_once}
  {
    file_.write("what,chunk,bytes,from,to,begin_ns,end_ns\n");
  }

  void add(const trace_event& event) noexcept
  {
    char line[160];
    char chunk[16] = "";
    if (event.chunk != chunk_id::none)
      std::snprintf(chunk, sizeof chunk, "%lu", static_cast<unsigned long>(index_of(event.chunk)));
    std::snprintf(line, sizeof line, "%.*s,%s,%llu,%.*s,%.*s,%llu,%llu\n", length(name_of(event.what)),
                  name_of(event.what).data(), chunk, number(event.bytes), length(name_of(event.from)),
                  name_of(event.from).data(), length(name_of(event.to)), name_of(event.to).data(), number(event.begin),
                  number(event.end));
    file_.write(line);
  }

  /// Ends the file. Errors of earlier writes are thrown here. @throws io_error   the file is incomplete; usage_error
  /// this is a forked child, which leaves the file to its parent
  void close() { file_.finish(); }

 private:
  [[nodiscard]] static int length(std::string_view text) noexcept { return static_cast<int>(text.size()); }
  [[nodiscard]] static unsigned long long number(std::uint64_t value) noexcept { return value; }

  replaced_file file_;
};

/// Writes each event to a table that spreadsheets and data frames open.
///
/// Passed by value, it points to a file that the user keeps. Good for looking at a whole run with other programs; poor
/// where steps are timed: it formats a line for each event. Cost: some hundred nanoseconds and 60 characters per event;
/// no allocation in chunkmem.
///
/// Use:
///
///     trace::csv_file file{"run.csv"};                                         // outlives the manager
///     cm::manager<memory_type, trace::csv_sink> m{memory, options, trace::csv_sink{file}};
///     ...
///     file.close();                                                            // throws if a line is missing
///
/// @threads   one caller per file
class csv_sink {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "csv_sink";

  /// @param file   outlives the sink and its copies
  explicit csv_sink(csv_file& file) noexcept : file_{&file} {}

  void record(const trace_event& event) noexcept { file_->add(event); }

 private:
  csv_file* file_;
};

static_assert(trace_sink<csv_sink>);

/// Sums of the events so far. The user owns it; a counter_sink adds to it.
///
///     const std::uint64_t loads = totals[trace_event_kind::load].count;
class counter_totals {
 public:
  struct total {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  ///< 0 for events whose number is no size: see is_numbered
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

/// One line for each kind of event that happened: its name, count and bytes.
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

/// The last events of a run. The user owns it; a ring_sink adds to it. All memory is allocated at once.
///
///     for (std::size_t age = 0; age < ring.size(); ++age) std::cout << name_of(ring.last(age).what) << '\n';
class event_ring {
 public:
  /// @throws usage_error   `room` is 0
  explicit event_ring(std::size_t room) : events_(room) { expects(room > 0, "a ring of no events"); }

  void add(const trace_event& event) noexcept
  {
    events_[static_cast<std::size_t>(seen_ % events_.size())] = event;
    ++seen_;
  }

  [[nodiscard]] std::size_t size() const noexcept
  {
    return seen_ < events_.size() ? static_cast<std::size_t>(seen_) : events_.size();
  }
  /// The number of all events so far, overwritten ones included.
  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  /// @param age   0 is the newest; below size()
  [[nodiscard]] const trace_event& last(std::size_t age) const
  {
    expects(age < size(), "the ring does not hold this event");
    return events_[static_cast<std::size_t>((seen_ - 1 - age) % events_.size())];
  }

 private:
  std::vector<trace_event> events_;
  std::uint64_t seen_ = 0;
};

/// One line for each event, the oldest first. Print them with an error.
/// @param most   lines; the last events where there are more
[[nodiscard]] inline std::string to_string(const event_ring& ring, std::size_t most = SIZE_MAX)
{
  std::string text;
  for (std::size_t age = std::min(ring.size(), most); age-- > 0;) {
    const trace_event& event = ring.last(age);
    text.append(name_of(event.what));
    if (event.chunk != chunk_id::none) text.append(" of chunk ").append(std::to_string(index_of(event.chunk)));
    text.append(is_numbered(event.what) ? ", number " : ", bytes ").append(std::to_string(event.bytes));
    text.append(", from ").append(name_of(event.from)).append(" to ").append(name_of(event.to)).append("\n");
  }
  return text;
}

/// Keeps the last events, for errors.
///
/// Passed by value, it points to a ring that the user keeps: `catch (const chunkmem::error&)` prints it, or finds it in
/// the error's details (manager_options::error_details). Good for a run of any length. Poor for a picture of a whole
/// run (see chrome_sink, csv_sink). Cost: one store of 32 bytes per event; no allocation.
///
/// Use:
///
///     trace::event_ring ring{64};                                              // outlives the manager
///     cm::manager<memory_type, trace::ring_sink> m{memory, {.error_details = true}, trace::ring_sink{ring}};
///     catch (const cm::error& error) { std::cerr << error.what() << error.details(); }   // with the last events
///
/// @threads   one caller per ring
class ring_sink {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "ring_sink";

  /// @param ring   outlives the sink and its copies
  explicit ring_sink(event_ring& ring) noexcept : ring_{&ring} {}

  void record(const trace_event& event) noexcept { ring_->add(event); }
  [[nodiscard]] std::string recall(std::size_t most) const { return to_string(*ring_, most); }

 private:
  event_ring* ring_;
};

static_assert(recalling_sink<ring_sink>);

}  // namespace trace
}  // namespace chunkmem::inline v0
