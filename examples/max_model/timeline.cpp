// SPDX-License-Identifier: Apache-2.0
#include "timeline.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace max_model {
namespace {

/// Writes spans, with times since the begin of the first one.
class span_writer {
 public:
  span_writer(std::ostream& out, const planner::training_timeline& line) : out_{out}
  {
    for (const planner::timed_copy& it : line.copies) see(it.begin, it.end);
    for (const auto* works : {&line.computing, &line.gathering})
      for (const planner::timed_work& it : *works) see(it.begin, it.begin + it.nanoseconds);
    for (const planner::timed_update& it : line.updating) see(it.begin, it.begin + it.nanoseconds);
    out_ << "kind,track,begin_seconds,end_seconds,bytes\n";
  }

  void level(std::string_view track, std::uint64_t begin, std::uint64_t end, std::uint64_t size)
  {
    write("level", track, begin, end, size);
  }
  void chunk(std::string_view track, std::uint64_t begin, std::uint64_t end, std::uint64_t size)
  {
    if (begin <= end) write("chunk", track, begin, end, size);
  }
  void work(std::string_view track, std::uint64_t begin, std::uint64_t end, std::uint64_t size)
  {
    write("work", track, begin, end, size);
  }
  void phase(std::string_view name, std::uint64_t begin, std::uint64_t end)
  {
    if (begin < end) write("phase", name, begin, end, 0);
  }
  [[nodiscard]] std::uint64_t first() const { return first_; }
  [[nodiscard]] std::uint64_t last() const { return last_; }

 private:
  void see(std::uint64_t begin, std::uint64_t end)
  {
    first_ = std::min(first_, begin);
    last_ = std::max(last_, end);
  }
  void write(std::string_view kind, std::string_view track, std::uint64_t begin, std::uint64_t end, std::uint64_t size)
  {
    out_ << kind << "," << track << "," << static_cast<double>(begin - first_) * 1e-9 << ","
         << static_cast<double>(end - first_) * 1e-9 << "," << size << "\n";
  }

  std::ostream& out_;
  std::uint64_t first_ = UINT64_MAX;
  std::uint64_t last_ = 0;
};

/// The times when each moved chunk was on the device. A chunk whose first event is an eviction was there from the
/// beginning.
void write_residency(span_writer& spans, const planner::training_timeline& line)
{
  struct news {
    std::uint64_t time;
    bool arrives;
    std::uint64_t size;
  };
  std::map<std::uint32_t, std::vector<news>> of_chunk;
  for (const planner::timed_copy& it : line.copies)
    if (it.to == chunkmem::tier::device) of_chunk[it.chunk].push_back({it.end, true, it.bytes});
  for (const planner::timed_departure& it : line.departures) of_chunk[it.chunk].push_back({it.time, false, 0});
  for (auto& [chunk, all] : of_chunk) {
    std::ranges::stable_sort(all, {}, &news::time);
    const std::string name = std::to_string(chunk);
    std::uint64_t since = all.front().arrives ? UINT64_MAX : spans.first();
    std::uint64_t size = 0;
    for (const news& it : all) {
      if (it.arrives) size = it.size;
      if (it.arrives && since == UINT64_MAX) since = it.time;
      if (it.arrives || since == UINT64_MAX) continue;
      spans.chunk(name, since, std::min(it.time, spans.last()), size);
      since = UINT64_MAX;
    }
    if (since != UINT64_MAX) spans.chunk(name, since, spans.last(), size);
  }
}

/// Updates may begin before the backward pass is over: the last phase is the rest of them after it.
void write_phases(span_writer& spans, const planner::training_timeline& line)
{
  if (line.computing.empty()) return;
  const std::uint64_t over = line.computing.back().begin + line.computing.back().nanoseconds;
  spans.phase("forward", spans.first(), line.backward);
  spans.phase("backward", line.backward, over);
  spans.phase("update", over, spans.last());
}

}  // namespace

void write_timeline(std::ostream& out, const planner::training_forecast& run)
{
  out.precision(12);
  const planner::training_timeline& line = run.timeline;
  span_writer spans{out, line};
  spans.level("device/capacity", spans.first(), spans.last(), run.capacity[chunkmem::tier::device].count());
  spans.level("host/capacity", spans.first(), spans.last(), run.capacity[chunkmem::tier::host].count());
  for (std::size_t index = 0; index < line.computing.size(); ++index) {
    const planner::timed_work& it = line.computing[index];
    const std::uint64_t end = index + 1 < line.computing.size() ? line.computing[index + 1].begin : spans.last();
    spans.level("device/chunks", it.begin, end, it.device_bytes - it.leased_bytes);
    spans.level("device/activations and gathered weights", it.begin, end, it.leased_bytes);
    spans.level("host/chunks", it.begin, end, it.host_bytes);
  }
  write_residency(spans, line);
  write_phases(spans, line);
  for (const planner::timed_work& it : line.computing) spans.work("compute", it.begin, it.begin + it.nanoseconds, 0);
  for (const planner::timed_update& it : line.updating)
    spans.work(it.place == chunkmem::memory_location::host ? "host updates" : "compute", it.begin,
               it.begin + it.nanoseconds, 0);
  for (const planner::timed_work& it : line.gathering) spans.work("ranks", it.begin, it.begin + it.nanoseconds, 0);
  for (const planner::timed_copy& it : line.copies)
    spans.work(it.to == chunkmem::tier::device ? "to device" : "to host", it.begin, it.end, it.bytes);
}

}  // namespace max_model
