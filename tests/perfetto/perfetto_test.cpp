// SPDX-License-Identifier: Apache-2.0
#include <support/catch.hpp>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perfetto_test {

using Catch::Matchers::ContainsSubstring;
using json = nlohmann::json;

namespace {

struct damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void want(bool condition, const char* what, const json& event)
{
  if (!condition) throw damage{std::string{what} + ": " + event.dump()};
}

/// Perfetto's requirements on the tracks of a trace. @return   events of each kind on each track, which are named as in
/// the file
/// @throws damage   it would be drawn wrongly, or with parts missing
std::map<std::string, std::size_t> checked(const json& all)
{
  std::map<int, std::string> names;
  std::map<int, double> now;
  std::map<int, std::vector<double>> open;  // ends of the bars that a track is in
  std::map<std::string, std::size_t> found;
  for (const json& event : all.at("traceEvents")) {
    want(event.contains("ph") && event.contains("pid") && event.contains("tid") && event.contains("name"),
         "a member is missing", event);
    const std::string phase = event.at("ph");
    const int track = event.at("tid");
    want(event.at("pid") == 1, "another process", event);
    if (phase == "M") {
      if (event.at("name") == "thread_name")
        want(names.emplace(track, event.at("args").at("name")).second, "a track is named twice", event);
      continue;
    }
    want(names.contains(track), "a track without a name", event);
    const double begin = event.at("ts");
    want(begin >= now[track], "time runs backwards on its track", event);
    now[track] = begin;
    std::vector<double>& ends = open[track];
    // a tenth of a nanosecond: the times are decimals
    while (!ends.empty() && ends.back() <= begin + 1e-4) ends.pop_back();
    if (phase == "X") {
      const double end = begin + event.at("dur").get<double>();
      want(end > begin, "a bar of no length", event);
      want(ends.empty() || end <= ends.back() + 1e-4, "two bars of a track overlap", event);
      ends.push_back(end);
    } else if (phase == "i") {
      want(event.at("s") == "t", "an instant that belongs to no track", event);
    } else {
      want(phase == "C" && event.at("args").at("bytes").is_number_unsigned(), "an event of no known kind", event);
    }
    ++found[names[track] + " " + phase];
  }
  return found;
}

constexpr const char* good = R"({"traceEvents":[{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"a"}},)"
                             R"({"name":"x","ph":"X","pid":1,"tid":1,"ts":1.0,"dur":4.0},)"
                             R"({"name":"y","ph":"X","pid":1,"tid":1,"ts":2.0,"dur":1.0},)"
                             R"({"name":"z","ph":"i","s":"t","pid":1,"tid":1,"ts":9.0}]})";

}  // namespace

// The trace is written by the ctest perfetto.trace: a training of the example gpt that evicts.
TEST_CASE("the trace of a training is one that Perfetto draws whole", "[perfetto][.trace]")
{
  const char* const folder = std::getenv("CHUNKMEM_TRACE");
  REQUIRE(folder != nullptr);
  const json trace = json::parse(std::ifstream{std::string{folder} + "/trace.json"});
  const json done = json::parse(std::ifstream{std::string{folder} + "/report.json"}).at("memory");
  const auto found = checked(trace);
  const auto on = [&](const std::string& track) {  // bars and instants: which of them, the clock says
    const auto count = [&](const char* kind) { return found.contains(track + kind) ? found.at(track + kind) : 0; };
    return count(" X") + count(" i");
  };
  CHECK(trace.at("otherData").at("dropped_events") == "0");
  CHECK(on("to device: loads") == done.at("loads"));
  CHECK(on("to host: write-backs") == done.at("write_backs"));
  CHECK(on("decisions") >= done.at("evictions").get<std::size_t>() + done.at("iterations").get<std::size_t>());
  CHECK((done.at("loads") > 0 && done.at("write_backs") > 0 && done.at("evictions") > 0));
  CHECK(on("leases") > 0);
  CHECK(found.at("to device: loads C") >= done.at("loads"));
}

TEST_CASE("the check of this test sees what Perfetto would draw wrongly", "[perfetto]")
{
  CHECK(checked(json::parse(good)) == std::map<std::string, std::size_t>{{"a X", 2}, {"a i", 1}});
  const auto broken = [](std::string_view old, const char* fresh) {
    std::string text = good;
    text.replace(text.find(old), old.size(), fresh);
    return checked(json::parse(text));
  };
  CHECK_THROWS_WITH(broken("\"ts\":2.0,\"dur\":1.0", "\"ts\":2.0,\"dur\":5.0"), ContainsSubstring("overlap"));
  CHECK_THROWS_WITH(broken("\"ts\":2.0", "\"ts\":0.5"), ContainsSubstring("backwards"));
  CHECK_THROWS_WITH(broken("\"pid\":1,\"tid\":1,\"ts\":9.0", "\"pid\":1,\"tid\":2,\"ts\":9.0"),
                    ContainsSubstring("without a name"));
  CHECK_THROWS_WITH(broken("\"dur\":4.0", "\"dur\":0.0"), ContainsSubstring("no length"));
  CHECK_THROWS_WITH(broken("\"name\":\"y\",", ""), ContainsSubstring("missing"));
  CHECK_THROWS_WITH(broken("\"ph\":\"i\"", "\"ph\":\"q\""), ContainsSubstring("no known kind"));
  CHECK_THROWS_WITH(broken("\"s\":\"t\",", "\"s\":\"g\","), ContainsSubstring("no track"));
}

}  // namespace perfetto_test
