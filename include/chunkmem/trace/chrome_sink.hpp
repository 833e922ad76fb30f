// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/posix_file.hpp>
#include <chunkmem/trace/trace_sink.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {
namespace trace {

/// The events of a run, kept until they are saved. The user owns it; a chrome_sink adds to it.
///
///     chrome_trace events;             // given to a chrome_sink, and outlives its manager
///     events.describe(m.residency());  // after some iterations
///     save(events, "run.json");
///
/// Room for all events is reserved at once. Events past the bound are counted and not kept, so the trace shows the
/// start of a run. Cost: 32 bytes per event kept.
///
/// @threads   one caller
class chrome_trace {
 public:
  static constexpr std::size_t default_bound = 65'536;

  /// @param bound   most events that are kept
  explicit chrome_trace(std::size_t bound = default_bound) : bound_{bound} { events_.reserve(bound); }

  void add(const trace_event& event) noexcept
  {
    if (events_.size() < bound_) {
      events_.push_back(event);
    } else {
      ++dropped_;
    }
  }

  /// Adds facts that a picture needs next to the events: the device's capacity, the size of a frame, and the tensors of
  /// each chunk.
  /// @param places   a manager's `residency()`   @throws std::bad_alloc   nothing is described
  template <class Snapshot>
    requires requires(const Snapshot& places) {
      places.tiers[tier::device].capacity.count(), places.frame.count(), places.tensors, places.lists;
    }
  void describe(const Snapshot& places)
  {
    std::map<std::uint32_t, std::string> names;
    for (const auto& tensor : places.tensors) {
      std::string& text = names[tensor.chunk];
      if (text.size() >= longest_name) continue;
      text.append(text.empty() ? "" : ", ").append(tensor.name);
      text.append(" (").append(places.lists[tensor.list]).append(")");
    }
    names_ = std::move(names);
    capacity_ = places.tiers[tier::device].capacity.count();
    frame_ = places.frame.count();
  }

  [[nodiscard]] std::span<const trace_event> events() const noexcept { return events_; }
  /// The names of chunks.
  [[nodiscard]] const std::map<std::uint32_t, std::string>& names() const noexcept { return names_; }
  /// Capacity of the device [bytes]; 0 before `describe`.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint64_t frame() const noexcept { return frame_; }  ///< [bytes]
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  std::size_t bound_;
  std::uint64_t dropped_ = 0;
  std::vector<trace_event> events_;
  std::map<std::uint32_t, std::string> names_;
  std::uint64_t capacity_ = 0;
  std::uint64_t frame_ = 0;
  static constexpr std::size_t longest_name = 120;  // of a chunk with many tensors
};

namespace detail {

enum class chrome_track : std::uint8_t { loads = 1, write_backs = 2, leases = 3, decisions = 4 };

[[nodiscard]] constexpr chrome_track track_of(trace_event_kind what) noexcept
{
  switch (what) {
    case trace_event_kind::load: return chrome_track::loads;
    case trace_event_kind::write_back: return chrome_track::write_backs;
    case trace_event_kind::lease:
    case trace_event_kind::lease_end: return chrome_track::leases;
    default: return chrome_track::decisions;
  }
}

/// Writes events as text; also tracks the bytes on the device, for the counters.
class chrome_writer {
 public:
  explicit chrome_writer(std::string& text) : text_{&text}
  {
    *text_ += "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  }

  void name_track(chrome_track track, std::string_view name)
  {
    open("thread_name", "M", track);
    text_->append(",\"args\":{\"name\":\"").append(name).append("\"}}");
    open("thread_sort_index", "M", track);
    text_->append(",\"args\":{\"sort_index\":").append(std::to_string(static_cast<unsigned>(track))).append("}}");
  }
  void name_process(std::string_view name)
  {
    open("process_name", "M", chrome_track::loads);
    text_->append(",\"args\":{\"name\":\"").append(name).append("\"}}");
  }

  void add(const trace_event& event)
  {
    const std::uint64_t length = event.end > event.begin ? event.end - event.begin : 0;
    open(name_of(event.what), length > 0 ? "X" : "i", track_of(event.what));
    member("ts", event.begin);
    if (length > 0) {
      member("dur", length);
    } else {
      *text_ += ",\"s\":\"t\"";
    }
    *text_ += ",\"args\":{";
    if (event.chunk != chunk_id::none) *text_ += "\"chunk\":" + std::to_string(index_of(event.chunk)) + ",";
    *text_ += is_numbered(event.what) ? "\"number\":" : "\"bytes\":";
    *text_ += std::to_string(event.bytes);
    text_->append(",\"from\":\"").append(name_of(event.from)).append("\",\"to\":\"").append(name_of(event.to));
    *text_ += "\"}}";
    count(event);
  }

  void close(const chrome_trace& trace)
  {
    *text_ += "\n],\"otherData\":{\"dropped_events\":\"" + std::to_string(trace.dropped()) + "\"";
    if (trace.capacity() > 0) {
      *text_ += ",\"device_capacity\":" + std::to_string(trace.capacity());
      *text_ += ",\"frame\":" + std::to_string(trace.frame()) + ",\"chunks\":{";
      bool first = true;
      for (const auto& [chunk, name] : trace.names()) {
        *text_ += (first ? "\"" : ",\"") + std::to_string(chunk) + "\":\"";
        quote(name);
        *text_ += "\"";
        first = false;
      }
      *text_ += "}";
    }
    *text_ += "}}\n";
  }

 private:
  /// Names come from a user. A character that JSON forbids inside a string becomes a space; quotes and backslashes are
  /// escaped.
  void quote(std::string_view name)
  {
    for (const char each : name) {
      if (each == '"' || each == '\\') *text_ += '\\';
      *text_ += static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
    }
  }
  void open(std::string_view name, std::string_view phase, chrome_track track)
  {
    *text_ += first_ ? "\n" : ",\n";
    first_ = false;
    text_->append("{\"name\":\"").append(name).append("\",\"ph\":\"").append(phase);
    *text_ += "\",\"pid\":1,\"tid\":" + std::to_string(static_cast<unsigned>(track));
  }

  // Chrome counts in microseconds; three decimals keep the nanoseconds.
  void member(std::string_view key, std::uint64_t nanoseconds)
  {
    const std::string rest = std::to_string(nanoseconds % 1000);
    text_->append(",\"").append(key).append("\":").append(std::to_string(nanoseconds / 1000)).append(".");
    text_->append(3 - rest.size(), '0').append(rest);
  }

  void count(const trace_event& event)
  {
    const bool leases = event.what == trace_event_kind::lease || event.what == trace_event_kind::lease_end;
    const bool arrives = event.what == trace_event_kind::load || event.what == trace_event_kind::claim;
    const bool moves = arrives || event.what == trace_event_kind::evict || event.what == trace_event_kind::discard;
    if (!leases && !moves) return;
    if (event.what == trace_event_kind::lease) leased_ += event.bytes;
    if (event.what == trace_event_kind::lease_end) leased_ -= event.bytes < leased_ ? event.bytes : leased_;
    if (moves) follow(event);
    open(leases ? "leased bytes" : "bytes of chunks on device", "C", track_of(event.what));
    member("ts", event.end > event.begin ? event.end : event.begin);
    *text_ += ",\"args\":{\"bytes\":" + std::to_string(leases ? leased_ : held_) + "}}";
  }

  // A chunk counts from its load, or from its claim on the device, until it leaves.
  void follow(const trace_event& event)
  {
    const auto found = resident_.find(event.chunk);
    if (found != resident_.end()) {
      held_ -= found->second;
      resident_.erase(found);
    }
    if (event.what != trace_event_kind::load && event.what != trace_event_kind::claim) return;
    resident_[event.chunk] = event.bytes;
    held_ += event.bytes;
  }

  std::string* text_;
  bool first_ = true;
  std::uint64_t leased_ = 0;
  std::uint64_t held_ = 0;
  std::map<chunk_id, std::uint64_t> resident_;
};

}  // namespace detail

/// The trace as Chrome trace JSON: chrome://tracing and https://ui.perfetto.dev open it.
///
/// There is one track each for loads to the device, write-backs to the host, leases, and decisions. Passes and updates
/// are among the decisions. Two counters follow from the events: leased bytes, and bytes of the chunks on the device.
/// The length of a bar is the time of the enqueue, not of the copy.
[[nodiscard]] inline std::string to_json(const chrome_trace& trace)
{
  using detail::chrome_track;
  std::string text;
  detail::chrome_writer writer{text};
  writer.name_process("chunkmem");
  writer.name_track(chrome_track::loads, "to device: loads");
  writer.name_track(chrome_track::write_backs, "to host: write-backs");
  writer.name_track(chrome_track::leases, "leases");
  writer.name_track(chrome_track::decisions, "decisions");
  for (const trace_event& event : trace.events()) writer.add(event);
  writer.close(trace);
  return text;
}

/// Writes the trace to a file, which replaces an older file of its name. Never writes through a link: see
/// replaced_file.
///
/// @throws io_error   the file cannot be made or written; the older file stays
inline void save(const chrome_trace& trace, const std::string& path)
{
  replace_file(path, "the trace file", to_json(trace));
}

/// Keeps each event, for a picture of a run in time.
///
/// Passed by value, it points to a trace that the user keeps and saves when the run is over. Good for a few iterations.
/// Poor for a whole training run: it keeps only the start (see counter_sink). Cost: one store of 32 bytes per event; no
/// allocation.
///
/// Use:
///
///     trace::chrome_trace events;                                              // outlives the manager
///     cm::manager<memory_type, trace::chrome_sink> m{memory, options, trace::chrome_sink{events}};
///     ...                                                                      // some iterations
///     events.describe(m.residency());
///     trace::save(events, "run.json");
///
/// @threads   one caller per trace
class chrome_sink {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "chrome_sink";

  /// @param trace   outlives the sink and its copies
  explicit chrome_sink(chrome_trace& trace) noexcept : trace_{&trace} {}

  void record(const trace_event& event) noexcept { trace_->add(event); }

 private:
  chrome_trace* trace_;
};

static_assert(trace_sink<chrome_sink>);

}  // namespace trace
}  // namespace chunkmem::inline v0
