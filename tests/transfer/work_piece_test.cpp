// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/work_piece.hpp>

#include <support/catch.hpp>

#include <array>
#include <cstdint>

namespace work_piece_test {

using namespace chunkmem;
using transfer::compute_clock;
using transfer::work_piece;

TEST_CASE("compute is counted through the iterations before and after", "[transfer][reachable]")
{
  const std::array<std::uint64_t, 3> moments{10, 20, 30};
  const compute_clock clock{moments};
  CHECK(clock.moments() == 3);
  CHECK(clock.whole() == 60);
  double expected = -180;
  for (std::int64_t moment = -9; moment < 9; ++moment) {
    CHECK(clock.at(moment) == expected);
    expected += static_cast<double>(moments[static_cast<std::size_t>((moment + 9) % 3)]);
  }
}

TEST_CASE("of what a piece follows the latest moment counts, of what it precedes the earliest time",
          "[transfer][reachable]")
{
  const std::array<std::uint64_t, 3> moments{10, 20, 30};
  const compute_clock clock{moments};
  work_piece it;
  clock.follow(it, -1, 5);
  CHECK((it.from == -1 && it.ready == 5));
  clock.follow(it, -2, 500);  // an earlier moment
  CHECK((it.from == -1 && it.ready == 5));
  clock.follow(it, -1, 7);
  CHECK((it.from == -1 && it.ready == 7));
  clock.follow(it, 0, 0);
  CHECK((it.from == 0 && it.ready == 10));
  clock.precede(it, 4, 0);
  CHECK((it.to == 4 && it.due == 70));
  clock.precede(it, 5, 10);
  CHECK((it.to == 4 && it.due == 70));
  clock.precede(it, 5, 50);
  CHECK((it.to == 5 && it.due == 40));
}

}  // namespace work_piece_test
