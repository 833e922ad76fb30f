// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace trace_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using namespace schedule_example;
using chunkmem::pipeline::operation_kind;

/// The text after a key on a line, up to a comma, quote or brace.
std::string value(const std::string& line, const std::string& key)
{
  const std::string mark = "\"" + key + "\":";
  std::size_t begin = line.find(mark);
  REQUIRE(begin != std::string::npos);
  begin += mark.size();
  if (line[begin] == '"') ++begin;
  return line.substr(begin, line.find_first_of(",\"}", begin) - begin);
}

struct track {
  std::string name{};
  std::size_t events = 0;
  double free = 0;  ///< end of its last event [us]
  double busy = 0;  ///< [us]
};

/// The tracks of a trace, which has an event on each line. Events of a track follow each other and do not overlap.
std::map<int, track> tracks_of(const std::string& trace)
{
  std::map<int, track> tracks;
  std::istringstream lines{trace};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{\"name\"")) continue;
    CHECK(value(line, "pid") == "1");
    const int number = std::stoi(value(line, "tid"));
    if (value(line, "name") == "thread_name") tracks[number].name = value(line.substr(line.find("args")), "name");
    if (value(line, "ph") != "X") continue;
    track& it = tracks[number];
    CHECK(!it.name.empty());
    const double begin = std::stod(value(line, "ts"));
    const double length = std::stod(value(line, "dur"));
    CHECK(begin > it.free - 1e-4);
    CHECK(length > 0);
    it.free = begin + length;
    it.busy += length;
    ++it.events;
  }
  return tracks;
}

std::size_t count(const simulation& it, std::uint32_t stage, bool (*belongs)(operation_kind))
{
  std::size_t found = 0;
  for (const auto& step : it.plan.stages[stage]) found += belongs(step.kind);
  return found;
}
bool is_update(operation_kind kind)
{
  return kind == operation_kind::update;
}

void check_trace(const simulation& it, bool has_transfers, bool has_updates)
{
  std::map<std::string, std::size_t> events;  // by what comes after the name of the stage, without a number
  std::map<std::string, double> busy;
  for (const auto& [number, each] : tracks_of(trace_of(it))) {
    const std::size_t link = each.name.find(" link");
    const std::string name = each.name.substr(0, link == std::string::npos ? link : link + 5);
    events[name] += each.events;
    busy[name] += each.busy;
  }
  for (std::uint32_t stage = 0; stage < it.plan.stage_count(); ++stage) {
    const std::string name = "stage " + std::to_string(stage);
    const std::size_t updates = has_updates ? count(it, stage, is_update) : 0;
    CHECK(events[name + " runs"] == count(it, stage, chunkmem::pipeline::computes) + (it.updates_aside ? 0 : updates));
    CHECK(events[name + " updates"] == (it.updates_aside ? updates : 0));
    CHECK(events[name + " link"] == (has_transfers ? count(it, stage, chunkmem::pipeline::sends) : 0));
    CHECK(busy[name + " runs"] == Catch::Approx(1e6 * it.times.stages[stage].computing));
  }
}

}  // namespace

TEST_CASE("a trace has an event for each run, update and transfer that takes time", "[schedule]")
{
  for (const std::string_view name : generator_names)
    for (const double transfer : {0.0, 0.1, 1.7})
      for (const double update : {0.0, 0.5})
        for (const bool is_aside : {false, true}) {
          CAPTURE(name, transfer, update, is_aside);
          options chosen;
          chosen.schedule = name;
          chosen.shape.batches = 2;
          chosen.shape.seconds.transfer = transfer;
          chosen.update = update;
          chosen.updates_aside = is_aside;
          check_trace(simulate(chosen), transfer > 0, update > 0);
        }
}

TEST_CASE("an event has its time in microseconds and what it belongs to", "[schedule]")
{
  options chosen;
  chosen.shape.seconds = {.forward = 0.0015, .backward_input = 0.001, .backward_weight = 0.001, .transfer = 25e-9};
  const std::string trace = trace_of(simulate(chosen));
  CHECK_THAT(trace, ContainsSubstring(R"({"name":"forward 1","ph":"X","pid":1,"tid":1,"ts":1500.000,"dur":1500.000,)"
                                      R"("args":{"part":0,"micro_batch":1,"version":0}},)"));
  CHECK_THAT(trace, ContainsSubstring(R"({"name":"send_activation 0","ph":"X","pid":1,"tid":2,"ts":1500.000,)"
                                      R"("dur":0.025,"args":{"part":0,"micro_batch":0,"version":0}},)"));
}

TEST_CASE("a name with signs of JSON harms no trace", "[schedule]")
{
  simulation it = simulate({});
  it.plan.name = "a\"\\\x01";
  CHECK_THAT(trace_of(it), ContainsSubstring(R"("name":"a\"\\?: 4 stages)"));
}

}  // namespace trace_test
