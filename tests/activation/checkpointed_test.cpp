// SPDX-License-Identifier: Apache-2.0

#include "checkpointed_runs.hpp"

#include <support/count_allocations.hpp>

namespace checkpointed_test {

using namespace checkpointed_runs;
using cm::backend::host_arena_options;

namespace {

/// Its clock advances by a microsecond at each read, and its waits take no time, so measured times and plans do not
/// depend on the machine.
struct counted_clock : arena {
  using arena::arena;
  mutable std::uint64_t reads = 0;
  [[nodiscard]] std::uint64_t now() const noexcept { return 1000 * ++reads; }
  [[nodiscard]] cm::wait_total waited(cm::wait_cause) const noexcept { return {}; }
};

/// Its clock stands still, and each read of its waits adds a millisecond: every measured time is negative.
struct waiting_clock : arena {
  using arena::arena;
  mutable std::uint64_t looks = 0;
  [[nodiscard]] static std::uint64_t now() noexcept { return 0; }
  [[nodiscard]] cm::wait_total waited(cm::wait_cause) const noexcept { return {0, 1'000'000 * ++looks}; }
};
static_assert(cm::measuring_backend<counted_clock> && cm::measuring_backend<waiting_clock>);

}  // namespace

TEST_CASE("training has the bits of one that keeps all activations, under every plan", "[activation]")
{
  run_matrix<arena>(false, host_arena_options{});
}

TEST_CASE("the device holds no more than a rehearsal of the step proves, under every plan", "[activation]")
{
  std::uint32_t number = 0;
  for (const std::string_view planner : any_planner::names) {
    if (support::sanitized && number++ % 2 != 0) continue;  // the matrix has the others
    const setting how{.planner = planner};
    const cm::bytes smallest = smallest_of<arena>(how, host_arena_options{});
    rig<arena> it{how, host_arena_options{.device_capacity = smallest, .host_capacity = plenty}};
    INFO("planner " << planner);
    CHECK(it.run.rehearse().smallest_device == smallest);
    const std::string difference = reference().difference(it.run.train(steps));
    CHECK(difference == "");
    CHECK(it.m.report().peak[cm::tier::device] <= smallest);
  }
}

TEST_CASE("micro-batches add their gradients up under every plan", "[activation]")
{
  for (const std::string_view planner : {"swap_all", "recompute_all", "karma", "rotor"}) {
    INFO("planner " << planner);
    if (support::sanitized && (planner == "recompute_all" || planner == "karma")) continue;
    const setting how{.planner = planner, .micro_batches = 2};
    const cm::bytes smallest = smallest_of<arena>(how, host_arena_options{});
    actions seen{};
    run_and_compare<arena>(how, host_arena_options{.device_capacity = smallest, .host_capacity = plenty}, seen);
  }
  const std::string difference = reference(1).difference(reference(2));
  CHECK(difference != "");
}

TEST_CASE("a network without times measures its blocks in the first iteration and plans before the second one",
          "[activation]")
{
  // A search is slow under a sanitizer, and no other case made this plan before. The thread sanitizer has a planner
  // without a search.
  const std::string_view planner = support::thread_sanitized ? "swap_all" : support::sanitized ? "rotor" : "planned";
  for (const bool rehearsed : {false, true}) {
    rig<counted_clock> it{{.planner = planner, .knows_times = false},
                          host_arena_options{.device_capacity = plenty, .host_capacity = plenty}};
    if (rehearsed) it.run.rehearse();
    it.run.initialise();
    it.run.step(0);
    CHECK(it.run.network().plan().planner == "recompute_all");
    for (std::uint32_t now = 1; now < steps; ++now) it.run.step(now);
    CHECK(it.run.network().plan().planner != "recompute_all");
    for (const act::chain_block& block : it.run.network().chain().blocks) {
      INFO(block.name);
      CHECK(block.forward_seconds > 0);
      CHECK(block.backward_seconds > 0);
    }
    const std::string difference = reference().difference(it.run.collect());
    CHECK(difference == "");
    CHECK(it.m.report().divergences == 1);
  }
}

TEST_CASE("a network whose measured times are all shorter than its waits goes on under every plan", "[activation]")
{
  for (const std::string_view planner : any_planner::names) {
    if (support::sanitized && planner != "swap_all" && planner != "rotor") continue;
    INFO("planner " << planner);
    rig<waiting_clock> it{{.planner = planner, .knows_times = false},
                          host_arena_options{.device_capacity = plenty, .host_capacity = plenty}};
    it.run.initialise();
    for (std::uint32_t now = 0; now < steps; ++now) it.run.step(now);
    const std::string difference = reference().difference(it.run.collect());
    CHECK(difference == "");
  }
}

TEST_CASE("after its first iterations a step makes no plan and allocates nothing", "[activation]")
{
  std::uint32_t number = 0;
  for (const std::string_view planner : {"keep_all", "swap_all", "recompute_all", "karma", "rotor"})
    for (const bool rehearsed : {false, true}) {
      if (support::sanitized && rehearsed != (number++ / 2 % 2 == 1)) continue;  // one of the two, by turns
      INFO("planner " << planner << (rehearsed ? ", rehearsed" : ""));
      constexpr std::uint32_t settled = 4;
      const setting how{.planner = planner};
      const cm::bytes smallest = smallest_of<arena>(how, host_arena_options{});
      const cm::bytes device = cm::align_up(cm::bytes{smallest.count() * 3 / 2}, frame);
      rig<arena> it{how, host_arena_options{.device_capacity = device, .host_capacity = plenty}};
      if (rehearsed) it.run.rehearse();
      it.run.initialise();
      for (std::uint32_t now = 0; now < settled; ++now) it.run.step(now);
      const cm::report before = it.m.report();
      const auto allocations = support::allocations_so_far();
      for (std::uint32_t now = settled; now < settled + 4; ++now) it.run.step(now);
      const auto asked = support::allocations_so_far() - allocations;
      const cm::report after = it.m.report();
      CHECK(after.divergences == 0);
      CHECK(after.abandoned_plans == 0);
      CHECK(after.replans == before.replans);
      if (support::counts_allocations) CHECK(asked.all() == 0);
    }
}

}  // namespace checkpointed_test
