// SPDX-License-Identifier: Apache-2.0
// The need of a plan, against ranks that run with that much memory, and with a chunk less.
#include <chunkmem/configurator/least_memory.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "executed_plan.hpp"

#include <cmath>
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

/// Adam, SGD, SGD with momentum in 16 bits, and an optimizer of three lists, in turn.
trainer_traits optimizer_of(std::uint64_t seed)
{
  constexpr trainer_traits all[] = {
      {}, {.states = {.lists = 0}}, {.states = {.lists = 1, .bytes_each = 2}}, {.states = {.lists = 3}}};
  return all[seed % 4];
}

}  // namespace

TEST_CASE("the states of a rank are a master and the lists of its optimizer", "[configurator]")
{
  const parallel_plan plan{.micro_batches = 2, .devices = {0}};
  for (std::uint64_t kind = 0; kind < 4; ++kind) {
    const trainer_traits trainer = optimizer_of(kind);
    CAPTURE(trainer.states.lists);
    const memory_proof proof =
        prove_memory(executed_plan::cluster_for(plan, plenty, plenty), executed_plan::work_for(plan, trainer));
    REQUIRE(proof.fits);
    CHECK(proof.stages[0].states * 2 == proof.stages[0].weights * trainer.states.bytes());
  }
}

TEST_CASE("a plan runs with the bytes that its proof names, and not with a chunk less", "[configurator]")
{
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    support::dice dice{seed};
    const parallel_plan plan = executed_plan::roll_plan(dice);
    const planned_work work = executed_plan::work_for(plan, optimizer_of(seed));
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

TEST_CASE("a rehearsal needs all the least bytes of a plan, and moves all that come and go at least", "[configurator]")
{
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    support::dice dice{seed};
    const parallel_plan plan = executed_plan::roll_plan(dice);
    const std::vector<least_memory> least =
        least_memory_of(plan, parts_of(executed_plan::small_shape(), plan), optimizer_of(seed));
    const bytes device{std::uint64_t{dice.between(1, 40)} << 14};
    const cluster whole = executed_plan::cluster_for(plan, device, plenty);
    const memory_proof proof = prove_memory(whole, executed_plan::work_for(plan, optimizer_of(seed)));
    const std::vector<moved_bytes> moved = moved_by(whole, plan, proof);
    CAPTURE(seed, plan.stages, plan.replicas, plan.zero, name_of(plan.schedule), plan.states_on_host);
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
      const stage_memory& need = proof.stages[stage];
      CAPTURE(stage);
      CHECK(least[stage].in_runs() <= need.everything - need.states - need.gathered);
      CHECK(least[stage].states <= need.states);
      CHECK(least[stage].gathered <= need.gathered);
      CHECK(least[stage].leases <= need.leases);
      CHECK(least[stage].leases <= need.smallest_device);
      if (!proof.fits) continue;
      CHECK(least[stage].beside(device) <= need.smallest_host);
      const moved_bytes few = least_moved(plan, least[stage], device);
      CHECK(few.each_step <= moved[stage].each_step);
      CHECK(few.each_run <= moved[stage].each_run);
      CHECK(few.gathered_share <= moved[stage].gathered_share + 1e-12);
    }
  }
}

TEST_CASE("few micro-batches show what all of them need, but for some chunks of a device that is too small to keep any",
          "[configurator]")
{
  constexpr pipeline::pass_seconds seconds{.forward = 1, .backward_input = 1.2, .backward_weight = 0.8};
  for (std::uint64_t seed = 1; seed <= 14; ++seed) {
    support::dice dice{seed};
    parallel_plan plan = executed_plan::roll_plan(dice);
    plan.micro_batches = few_micro_batches(plan.stages) + 2 * plan.stages;
    if (plan.schedule == schedule_kind::interleaved) plan.micro_batches -= plan.micro_batches % plan.stages;
    parallel_plan few = plan;
    if (with_few_micro_batches({.stages = 1, .micro_batches = 1'000, .schedule = plan.schedule},
                               executed_plan::small_shape())
            .micro_batches == 1'000)
      continue;  // all of them are rehearsed
    few.micro_batches -= plan.stages;
    const cluster whole = executed_plan::cluster_for(plan, plenty, plenty);
    const auto proof = [&](const parallel_plan& it) {
      return prove_memory(whole, work_of(executed_plan::small_shape(), it, seconds, 2));
    };
    const memory_proof all = proof(plan), some = proof(few);
    CAPTURE(seed, plan.stages, plan.micro_batches, few.micro_batches, name_of(plan.schedule));
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
      const stage_memory &of_all = all.stages[stage], &of_some = some.stages[stage];
      CHECK(of_all.everything == of_some.everything);
      CHECK(of_all.boundaries == of_some.boundaries);
      CHECK(of_all.leases == of_some.leases);
      const auto chunks = [&](const stage_memory& it) {
        return static_cast<double>(it.smallest_device.count()) / static_cast<double>(of_all.chunk.count());
      };
      CHECK(std::abs(chunks(of_all) - chunks(of_some)) <= 4);
    }
  }
}

TEST_CASE("a rehearsal leaves out micro-batches of a large model alone", "[configurator]")
{
  parallel_plan plan{.stages = 8, .micro_batches = 100};
  CHECK(with_few_micro_batches(plan, executed_plan::small_shape()) == plan);
  workload::transformer_shape large = executed_plan::small_shape();
  large.layers = 200;
  CHECK(with_few_micro_batches(plan, large).micro_batches == few_micro_batches(8));
  plan.schedule = schedule_kind::interleaved;
  plan.parts = 2;
  CHECK(with_few_micro_batches(plan, large).micro_batches % 8 == 100 % 8);
  plan.schedule = schedule_kind::gpipe;
  plan.parts = 1;
  plan.micro_batches = 20;
  CHECK(with_few_micro_batches(plan, large) == plan);
  plan.micro_batches = 1'000'000;
  CHECK_THROWS_WITH(with_few_micro_batches(plan, large),
                    Catch::Matchers::ContainsSubstring("1000000 micro-batches of gpipe are too many for a rehearsal"));
}

TEST_CASE("a rehearsal looks at its interruption before each step", "[configurator]")
{
  support::dice dice{4};
  const parallel_plan plan = executed_plan::roll_plan(dice);
  planned_work work = executed_plan::work_for(plan);
  int looks = 0;
  work.stop = pipeline::interruption{[&] { return ++looks == 7; }};
  CHECK_THROWS_AS(prove_memory(executed_plan::cluster_for(plan, plenty, plenty), work), pipeline::interrupted);
  CHECK(looks == 7);
}

}  // namespace memory_proof_test
