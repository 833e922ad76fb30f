// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/local_threads.hpp>

#include <support/count_allocations.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <conformance/communicator.hpp>
#include <support/catch.hpp>
#include <support/rank_threads.hpp>
#include <support/sanitized.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <type_traits>

namespace local_threads_test {

using namespace chunkmem;
using backend::host_arena;
using collective::local_threads;
using collective::shares;
using collective::thread_group;
using stage = support::thread_harness::stage;

static_assert(communicator<local_threads, host_arena>);
static_assert(!std::is_copy_constructible_v<local_threads>);

constexpr backend::host_arena_options room{.device_capacity = 1_MiB, .host_capacity = 1_MiB};

TEST_CASE("local_threads moves and adds bytes as a communicator does, for 1 to 8 ranks", "[collective]")
{
  support::thread_harness harness;
  if (support::sanitized) harness.worlds = {1, 2, 3, 5, 8};
  conformance::communicator_moves_bytes(harness);
}

TEST_CASE("local_threads plays a random schedule as vectors do", "[collective]")
{
  conformance::communicator_plays_schedules(support::thread_harness{}, 1, support::sanitized ? 30 : 300);
}

TEST_CASE("local_threads plays many random schedules as vectors do", "[collective][.slow]")
{
  for (std::uint64_t seed = 2; seed < 40; ++seed)
    conformance::communicator_plays_schedules(support::thread_harness{}, seed, 400);
}

TEST_CASE("local_threads fails on all ranks, before bytes change", "[collective]")
{
  conformance::communicator_fails_for_all(support::thread_harness{.worlds = {2, 3, 8}});
}

TEST_CASE("nobody passes a barrier before all have come to it", "[collective]")
{
  for (const std::uint32_t ranks : {2U, 5U}) {
    std::atomic<std::uint32_t> came{0};
    const auto complaints = support::thread_harness{}.run(ranks, [&](stage& this_stage) {
      bool holds = true;
      for (std::uint32_t round = 1; round <= 50; ++round) {
        this_stage.backend.launch(this_stage.stream, [&] { ++came; });
        this_stage.ranks.barrier(this_stage.backend, this_stage.stream, round);
        this_stage.backend.launch(this_stage.stream,
                                  [&holds, &came, least = round * ranks] { holds = holds && came >= least; });
      }
      this_stage.finish();
      this_stage.expect(holds, "a barrier did not hold");
    });
    for (const std::string& complaint : complaints) CHECK(complaint == "");
  }
}

TEST_CASE("work of a rank outlives its communicator and its group", "[collective]")
{
  std::vector<support::rank_bytes> all(3, support::rank_bytes(300));
  auto group = std::make_unique<thread_group>(3U);
  std::atomic<int> joined{0};
  std::atomic<bool> is_open{false};
  std::atomic<int> good{0};
  std::thread remover{[&] {
    while (joined != 3) std::this_thread::yield();
    group.reset();
    is_open = true;
  }};
  support::on_ranks(3, [&](std::uint32_t rank) {
    host_arena memory{room};
    std::optional<local_threads> ranks{std::in_place, *group, rank_id{rank}};
    std::byte* const place = memory.allocate(tier::device, 300_B);
    memory.fill(place, std::byte(rank), 300_B);
    memory.launch(agent::to_device, [&] {
      while (!is_open) std::this_thread::yield();
    });
    for (int i = 0; i < 9; ++i) ranks->broadcast(memory, agent::to_device, place, 300_B, rank_id{2}, 0);
    ranks.reset();
    ++joined;
    memory.wait(agent::host, memory.record(agent::to_device));
    good += static_cast<int>(place[299] == std::byte{2});
  });
  remover.join();
  CHECK(good == 3);
}

TEST_CASE("agents of the caller meet as well as agents that are threads", "[collective]")
{
  const auto complaints = support::thread_harness{}.run(4, [](stage& this_stage) {
    this_stage.stream = this_stage.rank() % 2 == 0 ? agent::compute : agent::to_host;
    conformance::plays_schedule(this_stage, 77, 40);
  });
  for (const std::string& complaint : complaints) CHECK(complaint == "");
}

TEST_CASE("mistakes of one rank are refused before anything is given to an agent", "[collective]")
{
  const thread_group group{2};
  host_arena memory{room};
  local_threads ranks{group, rank_id{1}};
  std::byte place[64]{};
  std::vector<std::uint64_t> words(3);
  const auto parts = shares::of(64_B, 2);
  CHECK_THROWS_AS((local_threads{group, rank_id{2}}), usage_error);
  CHECK_THROWS_AS((local_threads{group, rank_id{1}}), usage_error);
  CHECK_THROWS_AS(ranks.all_gather(memory, agent::to_host, place, shares::of(64_B, 3), 0), usage_error);
  CHECK_THROWS_AS(ranks.all_gather(memory, agent::to_host, place, {.whole = 64, .each = 16, .ranks = 2}, 0),
                  usage_error);
  CHECK_THROWS_AS(ranks.all_gather(memory, agent::to_host, nullptr, parts, 0), usage_error);
  CHECK_THROWS_AS(ranks.all_reduce(memory, agent::to_host, place, parts, {.type = dtype::int32}, 0), usage_error);
  CHECK_THROWS_AS(ranks.reduce_scatter(memory, agent::to_host, place, shares::of(62_B, 2), {}, 0), usage_error);
  CHECK_THROWS_AS(ranks.all_reduce(memory, agent::to_host, place, {.whole = 64, .each = 33, .ranks = 2}, {}, 0),
                  usage_error);
  CHECK_THROWS_AS(ranks.broadcast(memory, agent::to_host, place, 64_B, rank_id{2}, 0), usage_error);
  CHECK_THROWS_AS(ranks.send(memory, agent::to_host, place, 64_B, rank_id{1}, 0), usage_error);
  CHECK_THROWS_AS(ranks.receive(memory, agent::to_host, place, 64_B, rank_id{2}, 0), usage_error);
  CHECK_THROWS_AS(ranks.exchange(std::vector<std::uint64_t>(1), words), usage_error);
  CHECK_NOTHROW(ranks.check());
  CHECK(memory.record(agent::to_host).value == 0);
}

TEST_CASE("local_threads allocates nothing while it works", "[collective]")
{
  if constexpr (!support::counts_allocations) SKIP("a sanitizer owns the allocation functions");
  std::uint64_t seen = 1;
  const auto complaints = support::thread_harness{}.run(3, [&](stage& this_stage) {
    std::byte* const place = this_stage.backend.allocate(tier::device, 1_KiB);
    std::uint64_t all[3];
    const std::uint64_t mine[1] = {this_stage.rank()};
    const auto parts = shares::of(1_KiB, 3);
    this_stage.ranks.exchange(mine, all);  // all three have allocated what they need
    const auto before = support::allocations_so_far();
    for (std::uint32_t i = 0; i < 50; ++i) {
      this_stage.ranks.all_gather(this_stage.backend, this_stage.stream, place, parts, i);
      this_stage.ranks.all_reduce(this_stage.backend, this_stage.stream, place, parts, {}, i);
      this_stage.ranks.broadcast(this_stage.backend, this_stage.stream, place, 1_KiB, rank_id{1}, i);
      this_stage.ranks.barrier(this_stage.backend, this_stage.stream, i);
      this_stage.ranks.exchange(mine, all);
    }
    this_stage.finish();
    this_stage.ranks.exchange(mine, all);
    if (this_stage.rank() == 0) seen = (support::allocations_so_far() - before).all();
    this_stage.ranks.exchange(mine, all);
  });
  for (const std::string& complaint : complaints) CHECK(complaint == "");
  CHECK(seen == 0);
}

}  // namespace local_threads_test
