// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/report.hpp>

#include <manager/numbered_report.hpp>
#include <support/catch.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>

namespace report_json_test {

using namespace chunkmem;

TEST_CASE("a report as JSON has each field with its number", "[manager]")
{
  report it;
  const auto expected = report_rig::fill(it);
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

}  // namespace report_json_test
