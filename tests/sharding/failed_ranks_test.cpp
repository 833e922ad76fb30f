// SPDX-License-Identifier: Apache-2.0
// No wrong bytes: every way to read bytes over ranks, where the other ranks are dead, silent or make another call.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/nccl.hpp>

#include <support/catch.hpp>
#include <support/counting_ranks.hpp>
#include <support/fake_device.hpp>
#include <support/fake_nccl.hpp>
#include <support/figures.hpp>
#include <support/lone_reader.hpp>
#include <support/rank_threads.hpp>

#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace failed_ranks_test {

using namespace chunkmem;
using namespace chunkmem::literals;
using support::lone::outcome;
using support::lone::peers;

using nccl_type = support::counting<collective::nccl<support::fake_nccl, collective::local_threads>>;
using rig_of_threads = support::lone::rig<backend::host_arena, collective::local_threads>;
using rig_of_gpus = support::lone::rig<support::fake_device, nccl_type>;

/// Where no rank is silent, none may be late on a slow machine; and a silent one is waited for in every combination.
std::uint64_t deadline_of(peers how, int tries)
{
  return how == peers::silent ? 100'000'000U << (2 * tries) : 60'000'000'000U;
}

/// Two ranks as threads of one combination, each with a backend of its own.
outcome try_threads(std::size_t which, peers how)
{
  outcome found;
  for (int tries = 0; tries < 4; ++tries) {  // a machine that stands still may make the ranks late before
    const collective::thread_group group{2, {.deadline = deadline_of(how, tries)}};
    std::latch through{1};
    bool is_prepared[2] = {};
    support::on_ranks(2, [&](std::uint32_t rank) {
      backend::host_arena memory{{.device_capacity = 2_MiB, .host_capacity = 4_MiB, .async_compute = true}};
      collective::local_threads ranks{group, rank_id{rank}};
      try {
        const outcome mine =
            support::lone::fail_reader(memory, ranks, which, how, is_prepared[rank], [&] { through.wait(); });
        if (rank == 0) found = mine;
      } catch (const std::exception& error) {
        if (rank == 0) found.other_error = error.what();
      }
      if (rank == 0) through.count_down();
    });
    if (is_prepared[0] && is_prepared[1]) break;
  }
  return found;
}

/// The same with a GPU each that is threads, over NCCL that is threads. @param agreed   NCCL's calls are not compared
///   one by one: the calling thread is not held up where a rank is missing, and the stream is
outcome try_gpus(std::size_t which, peers how, bool agreed)
{
  outcome found;
  for (int tries = 0; tries < 4; ++tries) {
    const std::uint64_t deadline = deadline_of(agreed ? peers::silent : how, tries);  // a stream hears of it by that
    const collective::thread_group threads{2, {.deadline = deadline}};
    const auto world = std::make_shared<support::fake_nccl_world>(2);
    std::latch through{1};
    bool is_prepared[2] = {};
    support::on_ranks(2, [&](std::uint32_t rank) {
      support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
      support::fake_device gpu{{.device_capacity = 2_MiB, .host_capacity = 4_MiB}, runtime};
      collective::local_threads control{threads, rank_id{rank}};
      try {
        collective::nccl<support::fake_nccl, collective::local_threads> group{
            control, collective::nccl_options{.deadline = deadline},
            support::fake_nccl{world, runtime, static_cast<int>(rank), {}}};
        group.agreed(agreed);
        nccl_type ranks{group};
        const outcome mine =
            support::lone::fail_reader(gpu, ranks, which, how, is_prepared[rank], [&] { through.wait(); });
        if (rank == 0) found = mine;
      } catch (const std::exception& error) {
        if (rank == 0) found.other_error = error.what();
      }
      if (rank == 0) through.count_down();
    });
    if (is_prepared[0] && is_prepared[1]) break;
  }
  return found;
}

struct totals {
  std::uint64_t combinations = 0;
  std::uint64_t with_wrong_bytes = 0;
};

/// All sites with one failure, side by side: most of them wait.
template <class Rig, class Try>
void try_all(std::string_view transport, totals& all, Try one)
{
  const auto sites = support::lone::sites<Rig>();
  for (const peers how : support::lone::all_peers) {
    std::vector<outcome> found(sites.size());
    support::on_ranks(static_cast<std::uint32_t>(sites.size()),
                      [&](std::uint32_t which) { found[which] = one(which, how); });
    for (std::size_t which = 0; which < sites.size(); ++which) {
      CAPTURE(std::string{transport}, std::string{sites[which].name},
              std::string{support::lone::names_of_peers[static_cast<std::size_t>(how)]}, found[which].other_error);
      CHECK(found[which].wrong == 0);
      CHECK(found[which].was_told);
      CHECK(found[which].names_tensor);
      CHECK(found[which].other_error.empty());
      ++all.combinations;
      if (found[which].wrong != 0) ++all.with_wrong_bytes;
    }
  }
}

void write_figure(const totals& all)
{
  support::write_figures("test_sharding.failed_gathers", "build/test/bin/test_sharding [failed]",
                         {{"edge.failed_gathers_with_bytes", all.with_wrong_bytes, "count", "==", 0}});
}

TEST_CASE("a rank that reads alone is given no bytes that were not made, and is told", "[sharding][failed]")
{
  totals all;
  try_all<rig_of_threads>("threads", all, try_threads);
  try_all<rig_of_gpus>("NCCL, agreed", all, [](std::size_t which, peers how) { return try_gpus(which, how, true); });
  CHECK(all.combinations >= 2 * 3 * 14);
  write_figure(all);
}

TEST_CASE("so is one whose calls of NCCL are compared one by one", "[sharding][failed][.slow]")
{
  totals all;
  try_all<rig_of_gpus>("NCCL", all, [](std::size_t which, peers how) { return try_gpus(which, how, false); });
  CHECK(all.combinations >= 3 * 14);
}

/// Waits of the calling thread in each of four steps that read weights on it and on compute. @param host   both
std::vector<std::uint64_t> waits_of_steps(bool host)
{
  std::vector<std::uint64_t> waits;
  const collective::thread_group threads{2, {}};
  const auto world = std::make_shared<support::fake_nccl_world>(2);
  support::on_ranks(2, [&](std::uint32_t rank) {
    support::fake_cuda runtime{support::fake_cuda_options{.when = support::fake_schedule::earliest}};
    support::fake_device gpu{{.device_capacity = 2_MiB, .host_capacity = 4_MiB}, runtime};
    collective::local_threads control{threads, rank_id{rank}};
    collective::nccl<support::fake_nccl, collective::local_threads> group{
        control, {}, support::fake_nccl{world, runtime, static_cast<int>(rank), {}}};
    nccl_type ranks{group};
    rig_of_gpus it{gpu, ranks, sharding::zero_3};
    for (int step = 0; step < 6; ++step) {
      const std::uint64_t before = gpu.synchronizations();
      {
        const auto scope = it.m.iteration();
        for (const auto each : {it.weight, it.other}) {
          const auto pin = it.m.acquire(each, access::read, host ? agent::host : agent::compute);
        }
        for (const auto each : {it.other, it.weight}) it.give_gradient(each);
        (void)it.m.step(it.kernel, {.learning_rate = 0});
      }
      if (rank == 0 && step > 1) waits.push_back(gpu.synchronizations() - before);
    }
  });
  return waits;
}

TEST_CASE("a step over ranks that repeats waits for its pins of the calling thread, and no more often", "[sharding]")
{
  const std::vector<std::uint64_t> on_streams = waits_of_steps(false);
  const std::vector<std::uint64_t> on_host = waits_of_steps(true);
  CHECK(on_streams == std::vector<std::uint64_t>(4, 5));  // for sums, shares and their gradients, in the step
  CHECK(on_host == std::vector<std::uint64_t>(4, 5 + 2));
}

}  // namespace failed_ranks_test
