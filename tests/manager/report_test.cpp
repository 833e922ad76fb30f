// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/report.hpp>

#include <manager/numbered_report.hpp>
#include <support/catch.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>

namespace report_test {

using namespace chunkmem;

TEST_CASE("a report as text has a line for each field", "[manager]")
{
  report it;
  const auto expected = report_rig::fill(it);
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
