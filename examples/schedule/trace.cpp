// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include "rows.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace schedule_example {

namespace pipeline = chunkmem::pipeline;

namespace {

/// Text in quotes. A schedule's name may have any bytes.
std::string json_string(std::string_view text)
{
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter >= ' ' && letter <= '~' ? letter : '?';
  }
  return out + '"';
}

/// Microseconds, with decimals for nanoseconds.
std::string micro_text(std::int64_t nanoseconds)
{
  const std::string rest = std::to_string(1000 + nanoseconds % 1000);
  return std::to_string(nanoseconds / 1000) + "." + rest.substr(1);
}

class chrome_text {
 public:
  explicit chrome_text(const simulation& it) : it_{it}, bars_{bars_of(it)} {}

  [[nodiscard]] std::string text()
  {
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    metadata("process_name", 1, "\"name\":" + json_string(title_of(it_)));
    for (std::uint32_t stage = 0; stage < it_.plan.stage_count(); ++stage) {
      add_bars(stage, false, " runs");
      add_links(stage);
      add_bars(stage, true, " updates");
    }
    text_.erase(text_.size() - 2);  // the comma of the last event
    return text_ + "\n]}\n";
  }

 private:
  // Perfetto treats process 0 and thread 0 as those of an idle processor.
  static constexpr std::string_view process = ",\"pid\":1,\"tid\":";

  void metadata(std::string_view name, std::uint32_t track, const std::string& arguments)
  {
    text_ += "{\"name\":" + json_string(name) + ",\"ph\":\"M\"" + std::string{process} + std::to_string(track) +
             ",\"args\":{" + arguments + "}},\n";
  }
  void add_track(const std::string& name)
  {
    ++track_;
    metadata("thread_name", track_, "\"name\":" + json_string(name));
    metadata("thread_sort_index", track_, "\"sort_index\":" + std::to_string(track_));
  }
  void add_event(const pipeline::operation& step, double begin, double end)
  {
    const std::int64_t from = std::llround(begin * 1e9);
    const std::int64_t length = std::llround(end * 1e9) - from;
    if (length <= 0) return;
    const std::uint32_t number = step.kind == pipeline::operation_kind::update ? step.version : step.micro_batch;
    text_ += "{\"name\":\"" + std::string{pipeline::name_of(step.kind)} + " " + std::to_string(number) +
             "\",\"ph\":\"X\"" + std::string{process} + std::to_string(track_) + ",\"ts\":" + micro_text(from) +
             ",\"dur\":" + micro_text(length) + ",\"args\":{\"part\":" + std::to_string(step.part) +
             ",\"micro_batch\":" + std::to_string(step.micro_batch) + ",\"version\":" + std::to_string(step.version) +
             "}},\n";
  }

  void add_bars(std::uint32_t stage, bool aside, const std::string& what)
  {
    const auto belongs = [&](const bar& each) { return each.stage == stage && each.is_aside == aside; };
    if (aside && std::ranges::none_of(bars_, belongs)) return;
    add_track("stage " + std::to_string(stage) + what);
    for (const bar& each : bars_)
      if (belongs(each)) add_event(each.step, each.begin, each.end);
  }

  struct send {
    pipeline::operation step{};
    pipeline::step_time time{};
  };
  /// The sends of a stage, in the order of their begins. Overlapping sends have a track each: a trace cannot show two
  /// concurrent events on one track.
  void add_links(std::uint32_t stage)
  {
    std::vector<send> sends;
    for (std::size_t index = 0; index < it_.plan.stages[stage].size(); ++index) {
      const pipeline::step_time& time = it_.times.steps[stage][index];
      if (pipeline::sends(it_.plan.stages[stage][index].kind) && time.end > time.begin)
        sends.push_back({it_.plan.stages[stage][index], time});
    }
    std::ranges::stable_sort(sends, {}, [](const send& each) { return each.time.begin; });
    std::string name = "stage " + std::to_string(stage) + " link";
    for (std::uint32_t number = 2; !sends.empty(); ++number) {
      add_track(name);
      name = "stage " + std::to_string(stage) + " link " + std::to_string(number);
      std::vector<send> others;
      double free = 0;
      for (const send& each : sends) {
        if (each.time.begin < free) {
          others.push_back(each);
          continue;
        }
        add_event(each.step, each.time.begin, each.time.end);
        free = each.time.end;
      }
      sends = std::move(others);
    }
  }

  const simulation& it_;
  std::vector<bar> bars_;
  std::uint32_t track_ = 0;
  std::string text_;
};

}  // namespace

std::string trace_of(const simulation& it)
{
  return chrome_text{it}.text();
}

}  // namespace schedule_example
