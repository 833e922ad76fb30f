// How many bytes does each eviction move in a training step that repeats, over the fewest that any way of moving could?
//
// Steps of GPTs with 96 to 150 16-bit chunks, updates on the device or half of them there, ten capacities from the smallest
// to all that the device could hold, decisions by the engine's own replay. The bound is a linear program. cost_aware takes
// the theta that moves least when the record is simulated, one choice for each trace and capacity.
#include "bench_figure.hpp"
#include "byte_bound.hpp"
#include "gpt_trace.hpp"

#include <chunkmem/eviction/belady.hpp>
#include <chunkmem/eviction/cost_aware.hpp>
#include <chunkmem/eviction/fifo.hpp>
#include <chunkmem/eviction/list_order.hpp>
#include <chunkmem/eviction/lru.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <numeric>

using namespace eviction_bench;

namespace {

constexpr int warm_up = 8;
constexpr int measured = 6;  // an orbit of two or three steps is averaged
constexpr int capacities = 10;
constexpr double never = std::numeric_limits<double>::infinity();

/// Frames that a step moves when it has settled; infinity where it does not fit.
template <class Eviction>
double steady(const trace& what, std::uint32_t frames, const Eviction& policy)
{
  try {
    repeated_run<Eviction> run{what, frames, policy};
    for (int step = 0; step < warm_up; ++step) run.run(true);
    double sum = 0;
    for (int step = 0; step < measured; ++step) sum += run.run(true).all();
    return sum / measured;
  } catch (const cm::out_of_memory&) {
    return never;
  }
}

/// The least of a handful of thetas, in moves for each iteration of distance.
double best_cost_aware(const trace& what, std::uint32_t frames)
{
  double least = never;
  for (const double theta : {0.0, 1.25, 1.5, 1.75, 2.0, 2.5, 4.0})
    least = std::min(least, steady(what, frames, cm::eviction::cost_aware{theta / what.record.size()}));
  return least;
}

struct worst_ratios {
  double plain = 1;
  double tuned = 1;
};

double over(double moved, double bound) { return moved == bound ? 1 : moved / bound; }

void measure(const gpt_shape& shape, const char* name, worst_ratios& worst)
{
  const trace what = gpt_writer{shape}();
  const byte_bound bound{what};
  std::uint32_t least = 1;
  while (steady(what, least, cm::eviction::cost_aware{}) == never) ++least;
  const std::uint32_t tide = shape.chunks_per_layer * 3 / 2 + shape.layers * shape.chunks_per_layer / 16 + 2;
  const std::uint32_t most = std::accumulate(what.frames_of_chunk.begin(), what.frames_of_chunk.end(), tide);
  std::printf("%u layers of %u chunks, %s: %u moments\n", shape.layers, shape.chunks_per_layer, name, what.record.size());
  std::printf("  frames     bound    lru   fifo   list belady | cost_aware theta 0, chosen\n");
  for (int step = 0; step < capacities; ++step) {
    const std::uint32_t frames = least + (most - least) * static_cast<std::uint32_t>(step) / (capacities - 1);
    const double fewest = bound(frames);
    const double plain = over(steady(what, frames, cm::eviction::cost_aware{}), fewest);
    const double tuned = over(best_cost_aware(what, frames), fewest);
    std::printf("  %6u  %8.1f %6.2f %6.2f %6.2f %6.3f | %6.3f %6.3f\n", frames, fewest, over(steady(what, frames, cm::eviction::lru{}), fewest),
                over(steady(what, frames, cm::eviction::fifo{}), fewest), over(steady(what, frames, cm::eviction::list_order{}), fewest),
                over(steady(what, frames, cm::eviction::belady{}), fewest), plain, tuned);
    worst.plain = std::max(worst.plain, plain);
    worst.tuned = std::max(worst.tuned, tuned);
  }
}

}  // namespace

int main()
{
  worst_ratios worst;
  for (const gpt_shape shape : {gpt_shape{24, 4}, gpt_shape{50, 2}, gpt_shape{50, 3}}) {
    measure({shape.layers, shape.chunks_per_layer, updates::on_device, false}, "updated on the device", worst);
    measure({shape.layers, shape.chunks_per_layer, updates::half, false}, "first half updated on the device", worst);
    measure({shape.layers, shape.chunks_per_layer, updates::half_alternating, false}, "every second chunk updated on the device", worst);
  }
  std::printf("worst: %.3f with theta 0, %.3f with the theta that a simulation chooses\n", worst.plain, worst.tuned);
  return write_figures("cost_aware_bench", {{"eviction.cost_aware_bytes_over_bound", worst.tuned, 1.05}});
}
