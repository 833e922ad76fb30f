// SPDX-License-Identifier: Apache-2.0
// How long does it take to plan retention, and how does that time grow?
//
// Steps of GPTs with 10^4 chunks and 10^3 accesses at ten capacities, updates on the device and half of them there,
// each planned five times; random traces of 4 x 10^4 gaps; the same step with each access recorded separately, as a
// manager does; and 10^5 chunks. Also printed: bytes over the plan's own certificate.
#include "../median.hpp"
#include "planning_figures.hpp"

#include <chunkmem/transfer/retention_solution.hpp>
#include <support/oracles/retention_trace.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using bench::median;
namespace tr = chunkmem::transfer;

/// Seconds of some runs, from the input to the plan.
std::vector<double> measure(const std::string& name, const support::retention_trace& what, int runs)
{
  std::vector<double> seconds;
  tr::retention_solution plan;
  std::size_t gaps = 0;
  std::size_t rows = 0;
  for (int run = 0; run < runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const tr::retention_problem problem{what.input()};
    plan = tr::plan_retention(problem);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    gaps = problem.intervals().size();
    rows = problem.room().size();
  }
  std::printf("%-34s %7zu chunks %7zu accesses %7zu gaps %7zu rows: %7.3f s, %.4f of its certificate\n", name.c_str(),
              what.chunk_bytes.size(), what.device_bytes.size(), gaps, rows, median(seconds),
              static_cast<double>(plan.moved_bytes) / plan.certified_bytes);
  std::fflush(stdout);
  return seconds;
}

/// The same trace with an access for each use.
support::retention_trace one_at_a_time(const support::retention_trace& what)
{
  support::retention_trace made{what.chunk_bytes, {}, {}, what.repeats};
  for (const auto& it : what.uses) {
    made.use(it.chunk, static_cast<std::uint32_t>(made.device_bytes.size()), it.kind);
    made.device_bytes.push_back(what.device_bytes[it.begin]);
  }
  return made;
}

}  // namespace

int main()
{
  std::vector<double> gpt;
  for (const std::uint32_t out_of : {1U, 2U})
    for (int step = 0; step < 10; ++step) {
      const support::retention_trace what = support::gpt_retention_trace({250, 10, 500, 1, out_of}, 0.02 + 0.1 * step);
      const std::vector<double> seconds =
          measure(out_of == 1 ? "GPT, updates on the device" : "GPT, half of them", what, 5);
      gpt.insert(gpt.end(), seconds.begin(), seconds.end());
    }
  // Where all fits without half the work there is nothing to plan: the median is over the runs that took any time.
  std::erase_if(gpt, [](double seconds) { return seconds < 0.02; });
  std::vector<double> rolled;
  for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    support::dice random{7};
    const std::vector<double> seconds =
        measure("random, sizes 1 and 2", support::roll_large_trace(random, 10'000, 1'000, 40'000, share), 3);
    rolled.insert(rolled.end(), seconds.begin(), seconds.end());
  }
  for (const double share : {0.1, 0.5})
    measure("GPT, an index for each access", one_at_a_time(support::gpt_retention_trace({250, 10, 500, 1, 1}, share)),
            3);
  for (const std::uint32_t layers : {25U, 80U, 250U, 790U, 2'500U})
    measure("GPT, growth", support::gpt_retention_trace({layers, 10, 2 * layers, 1, 1}, 0.3), 1);
  std::printf("medians: GPT %.3f s, random %.3f s\n", median(gpt), median(rolled));
  return transfer_bench::write_figures("planning_seconds_bench",
                                       {{"transfer.planning_seconds_1e4_by_1e3", median(gpt), "s", "<=", 1},
                                        {"transfer.planning_seconds_random_4e4_gaps", median(rolled), "s", "<=", 3}});
}
