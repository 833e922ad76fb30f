// SPDX-License-Identifier: Apache-2.0
// What does chunkmem cost a trainer in plain loops that has memory for everything?
//
// The GPT-2 of examples/plain_loops takes each step four times in turn: with malloc, over chunks without a cap, over
// chunks without a cap but with optimizer states on the host, and over chunks on a quarter of the memory. The order
// changes from round to round. All of them call the same kernels with the same numbers, and their losses are compared.
//
// A time is the user time of all threads of the process, so it includes the copies; a step ends when its copies end.
// The figure is the ratio of two medians over all rounds after those of the warm-up; no round is left out. The bound is
// for the uncapped run with states on the device, since that is the choice for a device with room; the others are shown
// with it.
#include "../median.hpp"
#include "../transfer/planning_figures.hpp"

#include <chunk_trainer.hpp>
#include <plain_trainer.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/placement/placements.hpp>

#include <sys/resource.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using bench::median;
namespace cm = chunkmem;
using placement = cm::placement::any_placement<cm::placement::device_margin, cm::placement::optimizer_on_host>;
using memory = cm::backend::host_arena;
using manager = cm::manager<memory, placement, cm::best_fit_layout>;

constexpr double bound = 1.05;
constexpr plain_loops::model_shape model{.layers = 4, .width = 128, .heads = 4, .positions = 64};
constexpr plain_loops::batch_shape shape{.batch = 4, .context = 64};
constexpr plain_loops::training how{};
constexpr cm::manager_options settings{.chunk_bytes = cm::bytes{64 << 10}, .order = cm::tensor_order::first_use};
constexpr std::size_t warm_up = 8;
constexpr std::size_t rounds = 48;

/// A trainer over chunks with a device and a host of these sizes.
struct over_chunks {
  over_chunks(const plain_loops::token_batch& first, cm::bytes device, cm::bytes host, placement where)
      : arena{{.device_capacity = device, .host_capacity = host}}, m{arena, settings, where}, trainer{m, model, how}
  {
    trainer.declare_activations(shape);
    need = trainer.rehearse(first);
  }

  float step(const plain_loops::token_batch& batch)
  {
    const float loss = trainer.step(batch);
    for (const cm::agent copies : {cm::agent::to_device, cm::agent::to_host})
      arena.wait(cm::agent::host, arena.record(copies));
    return loss;
  }

  memory arena;
  manager m;
  plain_loops::chunk_trainer<manager> trainer;
  cm::memory_requirement need;
};

double user_seconds()
{
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec);
}

/// The times of one trainer's steps.
struct times {
  const char* name;
  std::vector<double> user;
  std::vector<double> wall;
};

template <class Step>
float timed(times& all, bool counts, Step step)
{
  const auto begin = std::chrono::steady_clock::now();
  const double user = user_seconds();
  const float loss = step();
  const double used = user_seconds() - user;
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (counts) all.user.push_back(used), all.wall.push_back(passed);
  return loss;
}

/// One step of each trainer; each round begins with another trainer. @return   all losses are equal
bool take_round(std::size_t round, const plain_loops::token_batch& batch, plain_loops::plain_trainer& plain,
                const std::array<over_chunks*, 3>& others, std::array<times, 4>& all)
{
  float losses[4];
  for (std::size_t turn = 0; turn < 4; ++turn) {
    const std::size_t which = (round % 2 == 0 ? round / 2 + turn : round / 2 + 4 - turn) % 4;
    losses[which] = timed(all[which], round >= warm_up,
                          [&] { return which == 0 ? plain.step(batch) : others[which - 1]->step(batch); });
  }
  return std::equal(losses + 1, losses + 4, losses);
}

void print(const std::array<times, 4>& all)
{
  std::printf("%-34s %10s %10s\n", "a step, median of user time", "[ms]", "ratio");
  for (const times& each : all)
    std::printf("%-34s %10.2f %10.4f\n", each.name, 1e3 * median(each.user), median(each.user) / median(all[0].user));
}

void print_wall_clock(const std::array<times, 4>& all)
{
  std::printf("wall clock, which other programs on the machine change:");
  for (const times& each : all)
    std::printf(" %.2f ms (%.3f)", 1e3 * median(each.wall), median(each.wall) / median(all[0].wall));
  std::printf("\n");
}

void print_copies(const char* name, const cm::report& report)
{
  const double steps = static_cast<double>(report.iterations) * 1048576;
  std::printf("%-34s %.2f MiB up, %.2f MiB down for each step; device peak %.2f MiB of %.2f MiB\n", name,
              static_cast<double>(report.loaded.count()) / steps,
              static_cast<double>(report.written_back.count()) / steps,
              static_cast<double>(report.peak[cm::tier::device].count()) / 1048576,
              static_cast<double>(report.capacity[cm::tier::device].count()) / 1048576);
}

}  // namespace

int main()
{
  const std::string text = plain_loops::read_text("", 1000);
  const auto batch_at = [&](std::size_t step) { return plain_loops::batch_of(text, shape, how.seed, step); };
  const placement margin{cm::placement::device_margin{}};
  constexpr cm::bytes boundless{std::uint64_t{1} << 50};
  const cm::memory_requirement need = over_chunks{batch_at(0), boundless, boundless, margin}.need;
  std::uint64_t everything = need.largest_leases.count();
  for (const cm::bytes each : need.by_role.values) everything += each.count();

  over_chunks uncapped{batch_at(0), 2 * need.everything, need.chunks, margin};
  over_chunks states_on_host{batch_at(0), 2 * need.everything, need.chunks,
                             placement{cm::placement::optimizer_on_host{}}};
  over_chunks quarter{batch_at(0), cm::bytes{everything / 4}, need.chunks, margin};
  const std::array<over_chunks*, 3> others{&uncapped, &states_on_host, &quarter};
  for (over_chunks* const each : others) each->trainer.fill();
  plain_loops::plain_trainer plain{model, how};

  std::array<times, 4> all{times{"with malloc", {}, {}}, times{"chunks, uncapped", {}, {}},
                           times{"chunks, uncapped, states on host", {}, {}}, times{"chunks, a quarter", {}, {}}};
  for (std::size_t round = 0; round < warm_up + rounds; ++round)
    if (!take_round(round, batch_at(round), plain, others, all)) return std::puts("losses differ"), 1;
  if (plain.weights() != uncapped.trainer.weights()) return std::puts("weights differ"), 1;

  print(all);
  for (std::size_t index = 0; index < others.size(); ++index)
    print_copies(all[index + 1].name, others[index]->m.report());
  print_wall_clock(all);
  const double ratio = median(all[1].user) / median(all[0].user);
  return transfer_bench::write_figures(
      "plain_loops_bench", {{"edge.plain_loops_over_chunks", ratio, "of the time with malloc", "<=", bound}});
}
