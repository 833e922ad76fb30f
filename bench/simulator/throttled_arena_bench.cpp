// SPDX-License-Identifier: Apache-2.0
// Does a step take as long on real threads with real waits as on backend::simulated?
//
// A small training step on a host_arena whose copies, kernels and updates sleep for the time of a cost table, and on
// backend::simulated with the same table: bound by the links, by compute and by updates on the host, with copies ahead
// of demand and with a plan. Nine runs of each in turn; the medians of simulated over real step times, the lowest and
// the highest of all. A real copy has to be over long before its planned time is: no link is faster than a tenth of the
// measured copy rate of this machine's memory. Where that is less than 0.5 GB/s everything is slowed down alike; below
// a tenth of it nothing is measured.
#include "../median.hpp"
#include "../transfer/planning_figures.hpp"
#include "small_job.hpp"

#include <support/throttled_arena.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

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
using support::throttled_arena;

constexpr int warm_up = 4;  // the first iteration records, the second may plan again
constexpr int runs = 9;
constexpr std::uint64_t millisecond = 1'000'000;
constexpr double fastest_link = 0.5e9;  // bytes per second
constexpr double most_slowness = 10;

/// The factor by which links are slower than 0.5 GB/s; all other rates have the same factor.
struct pace {
  double slowness = 1;

  [[nodiscard]] cm::backend::cost_table costs() const
  {
    const cm::backend::link_cost one_way{.latency_nanoseconds = scaled(20'000),
                                         .bytes_per_second = fastest_link / slowness};
    return {.to_device = one_way,
            .to_host = one_way,
            .within_device = one_way,
            .within_host = one_way,
            .launch_nanoseconds = 0};
  }
  [[nodiscard]] job_shape of(const job_shape& wanted) const
  {
    return {scaled(wanted.forward), scaled(wanted.backward), scaled(wanted.update), wanted.device_chunks};
  }
  [[nodiscard]] std::uint64_t scaled(std::uint64_t nanoseconds) const
  {
    return static_cast<std::uint64_t>(static_cast<double>(nanoseconds) * slowness);
  }
};

/// The rate of a copy within memory [bytes/s].
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
  return static_cast<double>(from.size()) / bench::median(seconds);
}

struct range {
  double lowest = 1e9;
  double highest = 0;
  bool moves_alike = true;
  std::uint64_t shortest = UINT64_MAX;
};

template <class... Policies>
void measure(std::string_view name, const job_shape& wanted, const pace& how, range& all)
{
  const job_shape shape = how.of(wanted);
  const cm::backend::cost_table costs = how.costs();
  const cm::bytes device = (shape.device_chunks + 1) * layer_bytes;
  const cm::bytes host = (2 * layers + 4) * layer_bytes;
  throttled_arena threads{{.device_capacity = device, .host_capacity = host, .async_compute = true}, costs};
  cm::backend::simulated clocks{
      {.device_capacity = device, .host_capacity = host, .costs = costs, .host_runs_ahead = true}};
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
  std::printf(
      "%-28s simulated %7.2f ms, real %7.2f ms (%.2f to %.2f): %.4f (%.4f to %.4f); %llu MiB up, %llu MiB down\n",
      name.data(), static_cast<double>(said) / millisecond, real_milliseconds[runs / 2], real_milliseconds.front(),
      real_milliseconds.back(), median, over.front(), over.back(),
      static_cast<unsigned long long>(one.loaded.count() >> 20),
      static_cast<unsigned long long>(one.written_back.count() >> 20));
  std::fflush(stdout);
}

}  // namespace

int main()
{
  const double memory = memory_rate();
  const pace how{std::max(1.0, 10 * fastest_link / memory)};
  std::printf("a copy within memory: %.2f GB/s; links: %.3f GB/s each way\n", memory / 1e9,
              how.costs().to_device.bytes_per_second / 1e9);
  if (!(how.slowness <= most_slowness)) {
    std::printf(
        "memory copies less than %.2f GB/s, and links of a tenth of that would take too long: nothing was measured\n",
        10 * fastest_link / most_slowness / 1e9);
    return 1;
  }
  range all;
  const job_shape links{
      .forward = millisecond, .backward = 2 * millisecond, .update = 3 * millisecond, .device_chunks = 6};
  const job_shape compute{
      .forward = 4 * millisecond, .backward = 8 * millisecond, .update = millisecond, .device_chunks = 12};
  const job_shape updates{
      .forward = 2 * millisecond, .backward = 4 * millisecond, .update = 7 * millisecond, .device_chunks = 12};
  measure<cm::transfer::no_prefetch>("on demand, links", links, how, all);
  measure<cm::transfer::lookahead>("lookahead, links", links, how, all);
  measure<cm::transfer::lookahead>("lookahead, compute", compute, how, all);
  measure<cm::transfer::lookahead>("lookahead, updates", updates, how, all);
  measure<cm::transfer::planned>("planned, links", links, how, all);
  measure<cm::transfer::planned>("planned, compute", compute, how, all);
  if (!all.moves_alike) std::printf("the two do not move the same bytes: they do not decide alike\n");
  if (all.shortest < 200 * millisecond)
    std::printf("a step is shorter than 200 ms: noise counts for more than it should\n");
  const int missed = transfer_bench::write_figures(
      "throttled_arena_bench", {{"backend.simulated_over_throttled_arena", all.lowest, "", ">=", 0.9},
                                {"backend.simulated_over_throttled_arena", all.highest, "", "<=", 1.1}});
  return all.moves_alike && all.shortest >= 200 * millisecond ? missed : 1;
}
