// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/replaced_file.hpp>
#include <chunkmem/trace/trace_event.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

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

  /// Ends the file. Errors of earlier writes are thrown here. @throws io_error   the file is not whole;
  /// usage_error   this is a forked child, which leaves the file to its parent
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
/// no allocation of ours.
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

}  // namespace trace
}  // namespace chunkmem::inline v0
