// SPDX-License-Identifier: Apache-2.0
// How many bytes does each eviction policy move in a training step that repeats, over the fewest that are possible?
//
// Steps of GPTs with 96 to 150 16-bit chunks, updates on the device or half of them there, ten capacities from the
// smallest to the one that holds everything, decisions by the engine's own replay. The bound is a linear program.
// cost_aware takes the theta that a manager chooses when it makes its first plan, and is compared with theta 0.
#include "../transfer/managed_run.hpp"
#include "../transfer/planning_figures.hpp"
#include "byte_bound.hpp"
#include "gpt_trace.hpp"

#include <chunkmem/eviction/evictions.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace eviction_bench;

namespace {

constexpr int capacities = 10;

struct worst_ratios {
  double plain = 1;
  double tuned = 1;
};

double over(double moved, double bound)
{
  return moved == bound ? 1 : moved / bound;
}

/// Frames of all chunks that are ever used on the device, and of the peak of leases.
std::uint32_t all_resident(const trace& what)
{
  std::vector<bool> counted(what.chunks());
  std::uint32_t frames = 0;
  std::uint64_t leased = 0;
  for (std::uint32_t now = 0; now < what.record.size(); ++now) {
    const cm::access_entry& entry = what.record.entries()[now];
    std::uint64_t here = 0;
    for (std::uint32_t index = 0; index <= now; ++index)
      if (cm::is_lease(what.record.entries()[index].kind) && what.record.details()[index].until > now)
        here += what.record.details()[index].bytes;
    leased = std::max(leased, here);
    if (!cm::is_access(entry.kind) || cm::place_of(entry.kind) != cm::memory_location::device || counted[entry.slot])
      continue;
    counted[entry.slot] = true;
    frames += what.frames_of_chunk[entry.slot];
  }
  return frames + static_cast<std::uint32_t>((leased + frame_bytes - 1) / frame_bytes);
}

/// @param table   the frames moved are written there for tools/plot.py, with those of the transfer policy `planned`; or
///   null
void measure(const gpt_shape& shape, const char* name, worst_ratios& worst, std::FILE* table)
{
  const trace what = gpt_writer{shape}();
  const byte_bound bound{what};
  std::uint32_t least = 1;
  while (steady(what, least, cm::eviction::cost_aware{0.0}).frames == never) ++least;
  const std::uint32_t most = all_resident(what);
  std::printf("%u layers of %u chunks, %s: %u accesses\n", shape.layers, shape.chunks_per_layer, name,
              what.record.size());
  std::printf("  frames     bound    lru   fifo   list belady | cost_aware theta 0, chosen\n");
  for (int step = 0; step < capacities; ++step) {
    const std::uint32_t frames = least + (most - least) * static_cast<std::uint32_t>(step) / (capacities - 1);
    const double fewest = bound(frames);
    const double plain = over(steady(what, frames, cm::eviction::cost_aware{0.0}).frames, fewest);
    const double moved[] = {
        steady(what, frames, cm::eviction::lru{}).frames, steady(what, frames, cm::eviction::fifo{}).frames,
        steady(what, frames, cm::eviction::list_order{}).frames, steady(what, frames, cm::eviction::belady{}).frames,
        steady(what, frames, cm::eviction::cost_aware{}).frames};
    const double tuned = over(moved[4], fewest);
    std::printf("  %6u  %8.1f %6.2f %6.2f %6.2f %6.3f | %6.3f %6.3f\n", frames, fewest, over(moved[0], fewest),
                over(moved[1], fewest), over(moved[2], fewest), over(moved[3], fewest), plain, tuned);
    if (table != nullptr) {
      std::fprintf(table, "%u layers of %u chunks; %s,%u,%.2f", shape.layers, shape.chunks_per_layer, name, frames,
                   fewest);
      for (const double frames_moved : moved) std::fprintf(table, ",%.2f", frames_moved);
      transfer_bench::managed_run<cm::eviction::cost_aware, cm::transfer::planned> planned{what, frames, {}};
      std::fprintf(table, ",%.2f\n", planned.settled(warm_up, measured));
    }
    worst.plain = std::max(worst.plain, plain);
    worst.tuned = std::max(worst.tuned, tuned);
  }
}

}  // namespace

/// Given the name of a file, also writes the moved frames there.
int main(int count, char** arguments)
{
  std::FILE* const table = count > 1 ? std::fopen(arguments[1], "w") : nullptr;
  if (count > 1 && table == nullptr) return std::fprintf(stderr, "%s cannot be written\n", arguments[1]), 2;
  if (table != nullptr) std::fprintf(table, "model,frames,bound,lru,fifo,list_order,belady,cost_aware,planned\n");
  worst_ratios worst;
  for (const gpt_shape shape : {gpt_shape{24, 4}, gpt_shape{50, 2}, gpt_shape{50, 3}}) {
    measure({shape.layers, shape.chunks_per_layer, updates::on_device, false}, "updated on the device", worst, table);
    measure({shape.layers, shape.chunks_per_layer, updates::half, false}, "first half updated on the device", worst,
            table);
    measure({shape.layers, shape.chunks_per_layer, updates::half_alternating, false},
            "every second chunk updated on the device", worst, table);
  }
  std::printf("worst: %.3f with theta 0, %.3f with the theta that a manager chooses\n", worst.plain, worst.tuned);
  if (table != nullptr && std::fclose(table) != 0) return 2;
  return transfer_bench::write_figures("cost_aware_bench",
                                       {{"eviction.cost_aware_bytes_over_bound", worst.tuned, "", "<=", 1.05}});
}
