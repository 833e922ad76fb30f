// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/update_split_search.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace update_split_search_test {

using namespace chunkmem;
using planner::search_update_split;
using transfer::update_bound;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const update_bound weak_cores{{2e9, 1e12, 25e9, 25e9, 0}};  // 0.47 of all is best

}  // namespace

TEST_CASE("where the simulation says what the bound says, the bound's split is taken", "[planner]")
{
  const auto found =
      search_update_split(weak_cores, 128, [](std::uint32_t streamed) { return weak_cores.seconds(streamed / 128.0); });
  CHECK(found.best.streamed == std::lround(weak_cores.best().device_share * 128));
  CHECK(found.best.seconds == weak_cores.seconds(found.best.streamed / 128.0));
  CHECK(found.pure_seconds() == std::min(weak_cores.seconds(0), weak_cores.seconds(1)));
}

TEST_CASE("no simulation, however strange, makes the choice slower than a pure split", "[planner]")
{
  std::mt19937 random{23};
  for (int round = 0; round < 1'000; ++round) {
    const auto chunks = static_cast<std::uint32_t>(1 + random() % 200);
    const double resident = round % 4 == 0 ? 0.01 * static_cast<double>(random() % 101) : 0;
    const update_bound bound{{2e9, 1e12, 25e9, 25e9, round % 2 == 0 ? 40e9 : 0}, resident};
    std::set<std::uint32_t> asked;
    std::vector<double> seconds(chunks + 1);
    for (double& it : seconds) it = random() % 7 == 0 ? infinity : 1 + static_cast<double>(random() % 1'000);
    const auto found = search_update_split(bound, chunks, [&](std::uint32_t streamed) {
      REQUIRE(streamed <= chunks);
      REQUIRE(asked.insert(streamed).second);
      return seconds[streamed];
    });
    REQUIRE(asked.size() == found.trials.size());
    REQUIRE(asked.size() <= 9);
    REQUIRE(found.trials.front().streamed == 0);
    REQUIRE(found.trials.back().streamed <= chunks * (1 - resident) + 1e-6);
    REQUIRE(found.trials.back().streamed + 1 > chunks * (1 - resident) - 1e-6);
    REQUIRE(found.best.seconds <= found.pure_seconds());
    REQUIRE(found.pure_seconds() == std::min(seconds[0], seconds[found.trials.back().streamed]));
    for (const auto& it : found.trials) {
      REQUIRE(it.seconds == seconds[it.streamed]);
      REQUIRE((it.seconds > found.best.seconds || it.streamed >= found.best.streamed || it.seconds == infinity));
    }
    REQUIRE(std::is_sorted(found.trials.begin(), found.trials.end(),
                           [](auto& left, auto& right) { return left.streamed < right.streamed; }));
  }
}

TEST_CASE("a simulation whose best lies beside the bound's is followed there", "[planner]")
{
  const auto found =
      search_update_split(weak_cores, 128, [](std::uint32_t streamed) { return std::abs(streamed - 40.0) + 1; });
  CHECK(std::abs(found.best.streamed - 40.0) <= 5);  // 30, 60 and 15 first, then middles: 45, 37 or 38
}

TEST_CASE("what fits nowhere is told as infinity, and no chunks are refused", "[planner]")
{
  const auto found = search_update_split(weak_cores, 8, [](std::uint32_t) { return infinity; });
  CHECK(found.best.seconds == infinity);
  CHECK_THROWS_AS(search_update_split(weak_cores, 0, [](std::uint32_t) { return 1.0; }), usage_error);
}

}  // namespace update_split_search_test
