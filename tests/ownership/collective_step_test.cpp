// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/ownership/ownership_policy.hpp>

#include <support/catch.hpp>

namespace collective_step_test {

using namespace chunkmem;
using collective::operation;
using collective::ring_traffic;
using collective::shares;
using ownership::collective_step;
using ownership::collective_steps;
using ownership::process_group;
using ownership::rank_world;

TEST_CASE("a step knows what each place of its process group sends and receives", "[ownership]")
{
  const shares parts = shares::of(bytes{1'000}, 4);  // 256, 256, 256, 232
  collective_step step{.parts = parts, .root = 1};
  const auto moved = [&](operation what, std::uint32_t place) {
    step.what = what;
    return step.traffic(place);
  };
  CHECK(moved(operation::all_gather, 3) == ring_traffic{744, 768});
  CHECK(moved(operation::reduce_scatter, 3) == ring_traffic{768, 744});
  CHECK(moved(operation::all_reduce, 3) == ring_traffic{1'512, 1'512});
  CHECK(moved(operation::broadcast, 1) == ring_traffic{1'000, 0});
  CHECK(moved(operation::broadcast, 0) == ring_traffic{0, 1'000});
  CHECK(moved(operation::send, 3) == ring_traffic{232, 0});
  CHECK(moved(operation::receive, 1) == ring_traffic{0, 744});
  CHECK(moved(operation::barrier, 1) == ring_traffic{0, 0});
}

TEST_CASE("steps add up, each for the rank's place in its process group", "[ownership]")
{
  const rank_world world{4, 2};
  const collective_steps steps{{collective_step{.among = process_group::node, .parts = shares::of(bytes{512 + 100}, 2)},
                                collective_step{.among = process_group::across, .parts = shares::of(bytes{300}, 2)}},
                               2};
  // place 0 of its node, 1 of its process group across
  CHECK(steps.traffic(rank_id{2}, world) == ring_traffic{512 + 44, 100 + 256});
  CHECK(steps.traffic(rank_id{1}, world) == ring_traffic{100 + 256, 512 + 44});
  CHECK(collective_steps{}.traffic(rank_id{1}, world) == ring_traffic{});
  CHECK(steps.end() - steps.begin() == 2);
}

}  // namespace collective_step_test
