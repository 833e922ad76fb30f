// Does a step take as long on real threads with real waits as backend::simulated says?
//
// A small training step on a host_arena whose copies, kernels and updates sleep for what a cost table says, and on
// backend::simulated with the same table: bound by the links, by compute and by updates on the host, with copies ahead of demand
// and with a plan. Nine runs of each in turn; the medians of simulated over real step times, the lowest and the highest of all.
#include "../transfer/planning_figures.hpp"
#include "small_job.hpp"
#include "throttled_arena.hpp"

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/transfer/no_prefetch.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

namespace cm = chunkmem;
using namespace simulator_bench;

constexpr int warm_up = 4;  // the first iteration records, the second may plan again
constexpr int runs = 9;
constexpr std::uint64_t millisecond = 1'000'000;
constexpr cm::backend::link_cost one_way{.latency_nanoseconds = 20'000, .bytes_per_second = 0.5e9};
constexpr cm::backend::cost_table costs{
    .to_device = one_way, .to_host = one_way, .within_device = one_way, .within_host = one_way, .launch_nanoseconds = 0};

/// Bytes per second that a copy within memory moves: the links are to be a tenth of it or less.
double memory_rate()
{
  std::vector<char> from(std::size_t{64} << 20, 'x');
  std::vector<char> to(from.size());
  std::vector<double> seconds;
  for (int turn = 0; turn < 7; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    from[static_cast<std::size_t>(turn)] = to.back();
  }
  std::ranges::sort(seconds);
  return static_cast<double>(from.size()) / seconds[seconds.size() / 2];
}

struct range {
  double lowest = 1e9;
  double highest = 0;
  bool moves_alike = true;
  std::uint64_t shortest = UINT64_MAX;
};

template <class... Policies>
void measure(std::string_view name, const job_shape& shape, range& all)
{
  const cm::bytes device = (shape.device_chunks + 1) * layer_bytes;
  const cm::bytes host = (2 * layers + 4) * layer_bytes;
  throttled_arena threads{{.device_capacity = device, .host_capacity = host, .async_compute = true}, costs};
  cm::backend::simulated clocks{{.device_capacity = device, .host_capacity = host, .costs = costs, .host_runs_ahead = true}};
  small_job<throttled_arena, Policies...> real{threads, shape};
  small_job<cm::backend::simulated, Policies...> simulated{clocks, shape};
  std::vector<double> over;
  std::vector<double> real_milliseconds;
  std::uint64_t said = 0;
  for (int run = -warm_up; run < runs; ++run) {
    threads.begin_afresh();
    const std::uint64_t took = real.step();
    said = simulated.step();
    if (run < 0) continue;
    over.push_back(static_cast<double>(said) / static_cast<double>(took));
    real_milliseconds.push_back(static_cast<double>(took) / millisecond);
  }
  std::ranges::sort(over);
  std::ranges::sort(real_milliseconds);
  const double median = over[runs / 2];
  const cm::report one = real.report();
  const cm::report other = simulated.report();
  all.moves_alike = all.moves_alike && one.loaded == other.loaded && one.written_back == other.written_back;
  all.shortest = std::min(all.shortest, said);
  all.lowest = std::min(all.lowest, median);
  all.highest = std::max(all.highest, median);
  std::printf("%-28s simulated %7.2f ms, real %7.2f ms (%.2f to %.2f): %.4f (%.4f to %.4f); %llu MiB up, %llu MiB down\n", name.data(),
              static_cast<double>(said) / millisecond, real_milliseconds[runs / 2], real_milliseconds.front(), real_milliseconds.back(),
              median, over.front(), over.back(), static_cast<unsigned long long>(one.loaded.count() >> 20),
              static_cast<unsigned long long>(one.written_back.count() >> 20));
  std::fflush(stdout);
}

}  // namespace

int main()
{
  std::printf("a copy within memory: %.1f GB/s; links: %.1f GB/s each way\n", memory_rate() / 1e9, one_way.bytes_per_second / 1e9);
  range all;
  const job_shape links{.forward = millisecond, .backward = 2 * millisecond, .update = 3 * millisecond, .device_chunks = 6};
  const job_shape compute{.forward = 4 * millisecond, .backward = 8 * millisecond, .update = millisecond, .device_chunks = 12};
  const job_shape updates{.forward = 2 * millisecond, .backward = 4 * millisecond, .update = 7 * millisecond, .device_chunks = 12};
  measure<cm::transfer::no_prefetch>("on demand, links", links, all);
  measure<cm::transfer::lookahead>("lookahead, links", links, all);
  measure<cm::transfer::lookahead>("lookahead, compute", compute, all);
  measure<cm::transfer::lookahead>("lookahead, updates", updates, all);
  measure<cm::transfer::planned>("planned, links", links, all);
  measure<cm::transfer::planned>("planned, compute", compute, all);
  if (!all.moves_alike) std::printf("the two do not move the same bytes: they do not decide alike\n");
  if (all.shortest < 200 * millisecond) std::printf("a step is shorter than 200 ms: noise counts for more than it should\n");
  const int missed = transfer_bench::write_figures("throttled_arena_bench",
                                                   {{"backend.simulated_over_throttled_arena", all.lowest, "", ">=", 0.9},
                                                    {"backend.simulated_over_throttled_arena", all.highest, "", "<=", 1.1}});
  return all.moves_alike && all.shortest >= 200 * millisecond ? missed : 1;
}
