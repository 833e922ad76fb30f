// SPDX-License-Identifier: Apache-2.0
#include <step_bound/ring_chain.hpp>

#include "../planner/random_workload.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <vector>

namespace ring_chain_test {

using chunkmem::planner::act;
using chunkmem::planner::parameter_groups;
using chunkmem::planner::training_script;
using step_bound::ring_chain;

TEST_CASE("a chain of rings is not below compute or rings, nor above both one after the other", "[step_bound]")
{
  support::dice dice{31};
  for (int round = 0; round < 300; ++round) {
    const auto shape = planner_test::random_shape(dice);
    const auto setup = planner_test::random_setup(dice);
    const parameter_groups groups{shape, setup, dice.between(200, 5'000)};
    const training_script script{groups, setup.recomputes_layers, 1e9, static_cast<std::uint32_t>(dice.between(3, 5))};
    std::vector<std::uint64_t> rings;
    for (std::uint32_t group = 0; group < groups.groups(); ++group) rings.push_back(dice.below(100'000));
    std::uint64_t busy = 0;
    for (const act& it : script.acts())
      busy += (it.gathers ? rings[it.id] : 0) + (it.makes_gradient ? rings[it.id] : 0);
    const std::uint64_t found = ring_chain(script, rings);
    REQUIRE(found >= script.nanoseconds());
    REQUIRE(found >= busy);
    REQUIRE(found <= busy + script.nanoseconds());
    REQUIRE(ring_chain(script, std::vector<std::uint64_t>(groups.groups(), 0)) == script.nanoseconds());
  }
}

TEST_CASE("one group is gathered, computed with and scattered, one after the other", "[step_bound]")
{
  const chunkmem::workload::transformer_shape shape{
      chunkmem::workload::transformer_style::gpt, 2, 64, 4, 4, 256, 500, 64, 32, 32, false};
  const parameter_groups groups{shape, {}, 1 << 20};
  const training_script script{groups, true, 1e9};
  CHECK(ring_chain(script, std::vector<std::uint64_t>{12'345}) == script.nanoseconds() + 2 * 12'345);
}

}  // namespace ring_chain_test
