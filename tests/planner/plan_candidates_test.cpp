// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/plan_candidates.hpp>

#include <support/catch.hpp>

#include "random_workload.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace plan_candidates_test {

using namespace chunkmem;
using namespace chunkmem::planner;

TEST_CASE("sizes of chunks are few, fit the ranks, and leave forty of them where there is that much", "[planner]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    const workload::transformer_shape shape = planner_test::random_shape(dice);
    const std::uint64_t ranks = dice.between(1, 5);
    CAPTURE(seed, ranks);
    const std::vector<std::uint64_t> found = chunk_candidates(shape, ranks);
    REQUIRE(found.size() >= 1);
    REQUIRE(found.size() <= 4);
    CHECK(std::set<std::uint64_t>{found.begin(), found.end()}.size() == found.size());
    for (const std::uint64_t size : found) {
      const std::uint64_t unit = ranks == 1 ? 256 : 8'192;
      CHECK(size % unit == 0);
      CHECK(size > 0);
      CHECK((size == unit || size * 40 * ranks <= workload::parameters_of(shape)));
    }
    CHECK(found == chunk_candidates(shape, ranks));
  }
}

TEST_CASE("the sizes are those of the largest matrix and its parts", "[planner]")
{
  const workload::transformer_shape shape{
      workload::transformer_style::gpt, 20, 256, 4, 4, 1'024, 500, 256, 32, 32, true};
  const std::vector<std::uint64_t> found = chunk_candidates(shape, 1);
  REQUIRE(found.size() >= 3);
  CHECK(found[0] == 256 * 1'024);
  CHECK(found[1] == 128 * 1'024);
  CHECK(found[2] == 64 * 1'024);
  const std::vector<std::uint64_t> of_rank = chunk_candidates(shape, 3);
  CHECK(of_rank[0] == 90'112);  // 262,144 over three, up to 8,192
  CHECK(of_rank[1] == 49'152);
}

TEST_CASE("over many nodes there are larger chunks as well, at least five of them", "[planner]")
{
  const workload::transformer_shape shape{
      workload::transformer_style::gpt, 20, 256, 4, 4, 1'024, 500, 256, 32, 32, true};
  const std::vector<std::uint64_t> found = chunk_candidates(shape, 16);
  CHECK(std::set<std::uint64_t>{found.begin(), found.end()}.size() == found.size());
  const auto most = [](const std::vector<std::uint64_t>& sizes) { return *std::ranges::max_element(sizes); };
  CHECK(most(found) * 16 * 40 > workload::parameters_of(shape));
  CHECK(most(found) * 16 * 5 <= workload::parameters_of(shape));
  CHECK(most(chunk_candidates(shape, 8)) * 8 * 40 <= workload::parameters_of(shape));
}

TEST_CASE("the device updates at least what the host has no room for", "[planner]")
{
  CHECK(least_device_groups(10, 256, bytes{10 * 14 * 256}, 14) == 0);
  CHECK(least_device_groups(10, 256, bytes{10 * 14 * 256 - 1}, 14) == 1);
  CHECK(least_device_groups(10, 256, bytes{3 * 14 * 256}, 14) == 7);
  CHECK(least_device_groups(10, 256, bytes{}, 14) == 10);
  CHECK(least_device_groups(10, 256, bytes{UINT64_MAX}, 14) == 0);
  CHECK(least_device_groups(10, 256, bytes{10 * 14 * 256}, 16) == 2);
}

}  // namespace plan_candidates_test
