// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/trace/recalling_sink.hpp>
#include <chunkmem/trace/trace_event.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {
namespace trace {

/// The last events of a run. The user owns it; a ring_sink adds to it. Room for all is taken at once.
///
///     for (std::size_t age = 0; age < ring.size(); ++age) std::cout << name_of(ring.last(age).what) << '\n';
class event_ring {
 public:
  /// @throws usage_error   no room for a single event
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
    expects(age < size(), "an event of a ring that it does not hold");
    return events_[static_cast<std::size_t>((seen_ - 1 - age) % events_.size())];
  }

 private:
  std::vector<trace_event> events_;
  std::uint64_t seen_ = 0;
};

/// One line for each event, the oldest first. Print them with an error.
/// @param most   lines; where there are more events, the last ones are taken
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

/// Keeps the last events, for the time when something goes wrong.
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
