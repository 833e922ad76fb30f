// SPDX-License-Identifier: Apache-2.0
// Which eviction and which transfer policy should be the defaults? Measures the bytes that each pair moves in a
// training step that repeats, and the time of its plan.
//
// Steps of GPTs with 24 to 100 16-bit chunks, updates on the device, on the host, or half of each, states as chunks of
// one frame and of two, four capacities. Bytes are those of a manager's iterations, over the fewest that any of the
// pairs moves there. Times are of this machine: they decide nothing here.
#include "../eviction/gpt_trace.hpp"
#include "../transfer/managed_run.hpp"
#include "../transfer/retention_of_record.hpp"

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <vector>

using namespace eviction_bench;

namespace {

constexpr int warm_up = 8;
constexpr int measured = 12;
constexpr std::uint32_t capacities = 4;
constexpr double never = std::numeric_limits<double>::infinity();

/// The results of one pair of policies, in each case.
struct pair_result {
  std::string_view eviction;
  std::string_view transfer;
  std::vector<double> frames;
  std::vector<double> milliseconds;  ///< of the first plan and its iteration
};

template <class Eviction, class Transfer>
void run(const trace& what, std::uint32_t frames, std::vector<pair_result>& all, std::size_t& next)
{
  if (all.size() == next) all.push_back({Eviction::name, Transfer::name, {}, {}});
  pair_result& pair = all[next++];
  const auto begin = std::chrono::steady_clock::now();
  transfer_bench::managed_run<Eviction, Transfer> managed{what, frames, {}};
  const bool is_planned = managed.settled(0, 1) < never;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  pair.milliseconds.push_back(took.count());
  pair.frames.push_back(is_planned ? managed.settled(warm_up, measured) : never);
}

template <class Transfer>
void run_evictions(const trace& what, std::uint32_t frames, std::vector<pair_result>& all, std::size_t& next)
{
  run<cm::eviction::lru, Transfer>(what, frames, all, next);
  run<cm::eviction::fifo, Transfer>(what, frames, all, next);
  run<cm::eviction::belady, Transfer>(what, frames, all, next);
  run<cm::eviction::cost_aware, Transfer>(what, frames, all, next);
}

void measure(const gpt_shape& shape, std::vector<pair_result>& all)
{
  const trace what = gpt_writer{shape}();
  const std::uint32_t least = transfer_bench::retention_of_record{what}.least_frames();
  std::uint32_t most = 0;
  for (const std::uint32_t frames : what.frames_of_chunk) most += frames;
  for (std::uint32_t step = 0; step < capacities; ++step) {
    const std::uint32_t frames = least + (most - least) * (2 * step + 1) / (2 * capacities);
    std::size_t next = 0;
    run_evictions<cm::transfer::lookahead>(what, frames, all, next);
    run_evictions<cm::transfer::planned>(what, frames, all, next);
    std::printf("%3u x %u  %u  %u %6u ", shape.layers, shape.chunks_per_layer, shape.windows ? 2U : 1U,
                static_cast<unsigned>(shape.where), frames);
    for (const pair_result& pair : all) std::printf(" %8.1f", pair.frames.back());
    std::printf("\n");
    std::fflush(stdout);
  }
}

void summarise(const std::vector<pair_result>& all)
{
  std::printf("\neviction    transfer   cases  mean of least  worst of least  best or equal  plan [ms]  longest\n");
  for (const pair_result& pair : all) {
    double sum = 0;
    double worst = 0;
    int cases = 0;
    int best = 0;
    for (std::size_t index = 0; index < pair.frames.size(); ++index) {
      double least = never;
      for (const pair_result& other : all) least = std::min(least, other.frames[index]);
      if (pair.frames[index] == never) continue;
      const double ratio = pair.frames[index] / least;
      ++cases;
      sum += std::log(ratio);
      worst = std::max(worst, ratio);
      best += ratio <= 1 ? 1 : 0;
    }
    double milliseconds = 0;
    for (const double each : pair.milliseconds) milliseconds += each;
    std::printf("%-11s %-10s %5d %14.4f %15.4f %14d %10.1f %8.1f\n", pair.eviction.data(), pair.transfer.data(), cases,
                std::exp(sum / cases), worst, best, milliseconds / static_cast<double>(pair.milliseconds.size()),
                std::ranges::max(pair.milliseconds));
  }
}

}  // namespace

int main()
{
  std::printf(
      "layers x chunks, frames of a state, updates (0 on the device, 1 half, 2 alternating, 3 on the host), frames of "
      "the device;\nframes moved by a step: lookahead with lru, fifo, belady, cost_aware, then planned with them\n");
  std::vector<pair_result> all;
  for (const gpt_shape shape : {gpt_shape{24, 1}, gpt_shape{24, 4}, gpt_shape{50, 2}})
    for (const bool windows : {false, true})
      for (const updates where : {updates::on_device, updates::half, updates::half_alternating, updates::on_host})
        measure({shape.layers, shape.chunks_per_layer, where, windows}, all);
  summarise(all);
  return 0;
}
