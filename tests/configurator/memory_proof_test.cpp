// SPDX-License-Identifier: Apache-2.0
// What a plan needs, against ranks that run with so much memory, and with a chunk less.
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "executed_plan.hpp"

#include <cstdint>
#include <vector>

namespace memory_proof_test {

using namespace chunkmem;
using namespace chunkmem::configurator;

namespace {

constexpr bytes plenty{std::uint64_t{1} << 30};

std::vector<per_tier<bytes>> room_for(const memory_proof& proof)
{
  std::vector<per_tier<bytes>> room;
  for (const stage_memory& it : proof.stages) room.push_back({{it.smallest_device, plenty}});
  return room;
}

}  // namespace

TEST_CASE("a plan runs with the bytes that its proof names, and not with a chunk less", "[configurator]")
{
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    support::dice dice{seed};
    const parallel_plan plan = executed_plan::roll_plan(dice);
    const planned_work work = executed_plan::work_for(plan);
    const memory_proof proof = prove_memory(executed_plan::cluster_for(plan, plenty, plenty), work);
    CAPTURE(seed, plan.stages, plan.replicas, plan.zero, name_of(plan.schedule), plan.states_on_host);
    REQUIRE(proof.fits);
    auto room = room_for(proof);
    CHECK(executed_plan::run(work, room).ran);
    const std::uint32_t stage = dice.below(plan.stages);
    room[stage][tier::device] -= proof.stages[stage].chunk;
    const executed_plan::outcome found = executed_plan::run(work, room);
    CHECK_FALSE(found.ran);
    CHECK(found.out_of_memory == stage);
  }
}

}  // namespace memory_proof_test
