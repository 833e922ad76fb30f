// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_streams.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <algorithm>
#include <vector>

namespace cuda_lane_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::tested_session;
using tested_lane = backend::cuda_lane<fake_cuda>;

TEST_CASE("a lane has one event for each of 256 values in a row", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  {
    const tested_lane one{it};
    CHECK(gpu.live().events == tested_lane::ring);
    CHECK(gpu.live().streams == 1);
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t value = 1'000; value < 1'000 + tested_lane::ring; ++value) {
      numbers.push_back(one.point(value).number);
      CHECK(one.point(value) == one.point(value + tested_lane::ring));
    }
    std::ranges::sort(numbers);
    CHECK(std::ranges::adjacent_find(numbers) == numbers.end());
  }
  under_test::check_clean(gpu);
}

TEST_CASE("the latest value of an entry is never below the one asked for", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  tested_lane one{it};
  for (const std::uint64_t given : {1u, 255u, 256u, 257u, 1'000u}) {
    one.given = given;
    for (std::uint64_t value = 1; value <= given; ++value) {
      const std::uint64_t latest = one.latest(value);
      REQUIRE(latest >= value);
      REQUIRE(latest <= given);
      REQUIRE(latest + tested_lane::ring > given);
      REQUIRE(one.point(latest) == one.point(value));
    }
  }
  one.finished(7);
  one.finished(3);
  CHECK(one.done == 7);
}

TEST_CASE("a lane that cannot be finished building leaves nothing", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call_of("create_event", 100, 2);
  CHECK_THROWS_AS(tested_lane{it}, device_error);
  under_test::check_clean(gpu);
  support::fake_stream_handle mine;
  REQUIRE(gpu.create_stream(mine) == 0);
  {
    const tested_lane foreign{it, mine};
    CHECK(foreign.stream() == mine);
  }
  CHECK(gpu.live().streams == 1);
  CHECK(gpu.live().events == 0);
}

}  // namespace cuda_lane_test
