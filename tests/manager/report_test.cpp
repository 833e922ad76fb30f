// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/report.hpp>

#include <support/catch.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace report_test {

using namespace chunkmem;

namespace {

/// A report in which every number is another one, and what its fields should be called. Times are in nanoseconds.
std::map<std::string, std::uint64_t> fill(report& it)
{
  std::map<std::string, std::uint64_t> expected;
  std::uint64_t next = 101;
  const auto number = [&](const char* name) { return expected[name] = next++; };
  it.capacity[tier::device] = bytes{number("capacity_device_bytes")};
  it.capacity[tier::host] = bytes{number("capacity_host_bytes")};
  it.in_use[tier::device] = bytes{number("in_use_device_bytes")};
  it.in_use[tier::host] = bytes{number("in_use_host_bytes")};
  it.peak[tier::device] = bytes{number("peak_device_bytes")};
  it.peak[tier::host] = bytes{number("peak_host_bytes")};
  it.external_peak = bytes{number("external_peak_bytes")};
  it.loaded = bytes{number("loaded_bytes")};
  it.written_back = bytes{number("written_back_bytes")};
  it.loads = number("loads");
  it.write_backs = number("write_backs");
  it.evictions = number("evictions");
  it.waits = {number("waits_demand_miss"), number("waits_optimizer_input"), number("waits_throttle"),
              number("waits_other")};
  it.stalls = {number("waited_demand_miss_seconds"), number("waited_optimizer_input_seconds"),
               number("waited_throttle_seconds"), number("waited_other_seconds")};
  it.iterations = number("iterations");
  it.divergences = number("divergences");
  it.replans = number("replans");
  it.abandoned_plans = number("abandoned_plans");
  it.clean_starts = number("clean_starts");
  it.skipped_moves = number("skipped_moves");
  return expected;
}

}  // namespace

TEST_CASE("a report as JSON has each field with its number", "[manager]")
{
  report it;
  const auto expected = fill(it);
  const auto parsed = nlohmann::json::parse(it.json());
  REQUIRE(parsed.size() == expected.size());
  for (const auto& [name, value] : expected) {
    INFO(name);
    if (name.ends_with("_seconds"))
      CHECK(std::llround(parsed.at(name).get<double>() * 1e9) == static_cast<long long>(value));
    else
      CHECK(parsed.at(name).get<std::uint64_t>() == value);
  }
  CHECK(nlohmann::json::parse(report{}.json()).size() == expected.size());
}

TEST_CASE("a report as JSON keeps the largest numbers", "[manager]")
{
  report it;
  it.loaded = bytes{UINT64_MAX};
  CHECK(nlohmann::json::parse(it.json())["loaded_bytes"].get<std::uint64_t>() == UINT64_MAX);
}

TEST_CASE("a report as text has a line for each field", "[manager]")
{
  report it;
  const auto expected = fill(it);
  std::stringstream text;
  text << it;
  std::map<std::string, std::uint64_t> read;
  std::string name;
  for (std::string value; text >> name >> value;)
    read[name] = name.ends_with("_seconds") ? static_cast<std::uint64_t>(std::llround(std::stod(value) * 1e9))
                                            : std::stoull(value);
  CHECK(read == expected);
}

TEST_CASE("times of a report are told in seconds to the nanosecond", "[manager]")
{
  report it;
  it.stalls.demand_miss_nanoseconds = 12'000'000'034;
  CHECK_THAT(it.json(), Catch::Matchers::ContainsSubstring("\"waited_demand_miss_seconds\": 12.000000034,"));
  it.stalls = {1'000'000'000, 500'000'000, 250'000'000, 125'000'000};
  CHECK(it.stalls.seconds() == 1.875);
}

TEST_CASE("what was copied since another report is told apart from all else", "[manager]")
{
  chunkmem::report before;
  before.loads = 2;
  before.loaded = chunkmem::bytes{100};
  before.iterations = 1;
  chunkmem::report after = before;
  after.loads = 5;
  after.loaded = chunkmem::bytes{350};
  after.write_backs = 1;
  after.written_back = chunkmem::bytes{7};
  after.evictions = 4;
  after.iterations = 2;
  const chunkmem::report copied = after.copies_since(before);
  CHECK((copied.loads == 3 && copied.loaded == chunkmem::bytes{250}));
  CHECK((copied.write_backs == 1 && copied.written_back == chunkmem::bytes{7} && copied.evictions == 4));
  CHECK(copied.iterations == 0);
}

}  // namespace report_test
