// SPDX-License-Identifier: Apache-2.0
// How many bytes does a plan of retention move in a training step that repeats, over the fewest that are possible, and
// compared with eviction policies? How much of that bound does the plan certify by itself?
//
// Steps of GPTs with 24 to 100 16-bit chunks, updates on the device, on the host, or half of each, states as chunks of
// one frame and of two, ten capacities from the smallest that the step can run on to the one that holds everything. The
// bound is a linear program that is independent of the planner; eviction policies run in the engine's own replay, where
// the step fits with its placement of frames. Then the same by a manager: the copies of `planned`, iteration after
// iteration, against those of `lookahead` with the same eviction policy.
#include "../eviction/byte_bound.hpp"
#include "../eviction/gpt_trace.hpp"
#include "managed_run.hpp"
#include "planning_figures.hpp"
#include "retention_of_record.hpp"

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/retention_solution.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>

using namespace eviction_bench;

namespace {

constexpr std::uint32_t capacities = 10;

struct summary {
  double over_bound = 0;  // a plan by itself
  double excess = 0;      // [largest chunks]
  double certified = 1;   // of the linear program
  int above_evictions = 0;
  int above_orbits = 0;  // evictions that do not repeat, which no plan of one iteration can follow
  int compared = 0;
  int impossible = 0;                     // below the bound, or certifying more than it
  double managed_over_bound[2] = {};      // states of one frame, and of two, from 96 16-bit chunks on
  double few_managed_over_bound[2] = {};  // with fewer
  int above_lookahead = 0;
  int managers = 0;
};

/// The copies of a manager with `planned`, and with `lookahead`, over one eviction policy.
template <class Eviction>
void manage(const trace& what, std::uint32_t frames, bool has_many, transfer_bench::solved_once::answer& solved,
            double fewest, summary& all)
{
  const double planned = transfer_bench::managed_run<Eviction, transfer_bench::solved_once>{
      what, frames,
      transfer_bench::solved_once{
          solved}}.settled(warm_up, measured);
  const double ahead =
      transfer_bench::managed_run<Eviction, cm::transfer::lookahead>{what, frames, {}}.settled(warm_up, measured);
  const std::uint32_t largest = std::ranges::max(what.frames_of_chunk);
  std::printf(" %7.4f%s", planned / fewest, planned > ahead ? "!" : " ");
  if (planned == never) return;  // as with demand paging: the step does not fit with the engine's placement of frames
  ++all.managers;
  all.above_lookahead += planned > ahead ? 1 : 0;
  double& worst = (has_many ? all.managed_over_bound : all.few_managed_over_bound)[largest - 1];
  worst = std::max(worst, planned / fewest);
}

void measure(const gpt_shape& shape, summary& all)
{
  const trace what = gpt_writer{shape}();
  const byte_bound bound{what};
  transfer_bench::retention_of_record numbers{what};
  const std::uint32_t least = numbers.least_frames();
  std::uint32_t most = 0;
  for (const std::uint32_t frames : what.frames_of_chunk) most += frames;
  const std::uint32_t largest = std::ranges::max(what.frames_of_chunk);
  const bool has_many = shape.layers * shape.chunks_per_layer >= 96;
  std::printf(
      "%u layers of %u chunks, states of %u frames: %u accesses\n  frames     bound  planned certified |    lru  "
      "belady "
      " cost_aware | managed: over lru  belady cost_aware\n",
      shape.layers, shape.chunks_per_layer, largest, what.record.size());
  for (std::uint32_t step = 0; step < capacities; ++step) {
    const std::uint32_t frames = least + (most - least) * step / (capacities - 1);
    const cm::transfer::retention_problem problem{numbers.on(frames)};
    const cm::transfer::retention_solution plan = cm::transfer::plan_retention(problem);
    const double fewest = bound(frames);
    const double moved = static_cast<double>(plan.moved_bytes) / frame_bytes;
    const double certified = plan.certified_bytes / frame_bytes;
    const settled evictions[] = {steady<cm::eviction::lru>(what, frames), steady<cm::eviction::belady>(what, frames),
                                 steady<cm::eviction::cost_aware>(what, frames)};
    std::printf("  %6u  %8.1f   %.4f   %.4f  | %6.3f  %6.3f  %6.3f  |", frames, fewest, moved / fewest,
                certified / fewest, evictions[0].frames / fewest, evictions[1].frames / fewest,
                evictions[2].frames / fewest);
    transfer_bench::solved_once::answer solved;
    manage<cm::eviction::lru>(what, frames, has_many, solved, fewest, all);
    manage<cm::eviction::belady>(what, frames, has_many, solved, fewest, all);
    manage<cm::eviction::cost_aware>(what, frames, has_many, solved, fewest, all);
    std::printf("\n");
    all.over_bound = std::max(all.over_bound, moved / fewest);
    all.excess = std::max(all.excess, (moved - fewest) / largest);
    all.certified = std::min(all.certified, certified / fewest);
    all.impossible += moved < fewest - 1e-6 * fewest || certified > fewest + 1e-6 * fewest ? 1 : 0;
    for (const settled& it : evictions) {
      all.compared += it.frames < never ? 1 : 0;
      (it.repeats ? all.above_evictions : all.above_orbits) += moved > it.frames ? 1 : 0;
    }
  }
}

}  // namespace

int main()
{
  summary all;
  for (const gpt_shape shape : {gpt_shape{24, 1}, gpt_shape{24, 4}, gpt_shape{50, 2}})
    for (const bool windows : {false, true})
      for (const updates where : {updates::on_device, updates::half, updates::half_alternating, updates::on_host})
        measure({shape.layers, shape.chunks_per_layer, where, windows}, all);
  std::printf(
      "worst plan: %.4f of the bound (excess %.2f largest chunks); certified at least %.4f; of %d evictions above %d "
      "that repeat and %d that do not\n",
      all.over_bound, all.excess, all.certified, all.compared, all.above_evictions, all.above_orbits);
  std::printf(
      "as a manager moves them: states of one frame %.4f of the bound, of two %.4f; with fewer than 96 chunks %.4f and "
      "%.4f; of %d above lookahead: %d\n",
      all.managed_over_bound[0], all.managed_over_bound[1], all.few_managed_over_bound[0],
      all.few_managed_over_bound[1], all.managers, all.above_lookahead);
  if (all.impossible > 0) std::printf("%d plans contradict the linear program\n", all.impossible);
  const int missed = transfer_bench::write_figures(
      "retention_bench",
      {{"transfer.planned_bytes_raw_one_frame", all.managed_over_bound[0], "", "<=", 1.02},
       {"transfer.planned_bytes_raw_two_frames", all.managed_over_bound[1], "", "<=", 1.05},
       {"transfer.planned_above_evictions", 1.0 * (all.above_evictions + all.above_orbits), "", "==", 0},
       {"transfer.planned_manager_above_lookahead", 1.0 * all.above_lookahead, "", "==", 0},
       {"transfer.certificate_over_linear_program", all.certified, "", ">=", 0.97}});
  return all.impossible > 0 ? 1 : missed;
}
