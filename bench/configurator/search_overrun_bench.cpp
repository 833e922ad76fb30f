// SPDX-License-Identifier: Apache-2.0
// By how long does a search exceed its limit?
//
// Two threads search for five seconds: for Llama-2-70B with a batch of a million rows, which has plans of a million
// micro-batches, and for the models of 529.6 and 1,008 billion parameters on 2,520 and 3,072 devices.
#include "../transfer/planning_figures.hpp"
#include "dgx_nodes.hpp"
#include "published_plans.hpp"

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>

namespace {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using configurator_bench::dgx;

/// @return   the seconds above the limit
double overrun(const char* name, const cluster& whole, const trained_model& model, std::uint64_t rows)
{
  constexpr double limit = 5;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [=] { return std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count(); };
  const pipeline::interruption stop{[=] { return seconds() > limit; }};
  const plan_search_result found =
      find_plans(whole, model, {.rows = rows, .schedules = {}}, {.threads = 2, .best = 1, .stop = stop});
  const double over = seconds() - limit;
  std::printf("%8s: %.2f s above %.0f s, %llu plans, %llu simulated\n", name, over, limit,
              static_cast<unsigned long long>(found.plans), static_cast<unsigned long long>(found.simulated));
  std::fflush(stdout);
  return over;
}

}  // namespace

int main()
{
  double longest = overrun("70B", dgx(4, 40_GiB), {workload::shape_of("Gemini LLaMA", "70b")}, std::uint64_t{1} << 20);
  for (const published_plans::published_plan& it : published_plans::table)
    if (it.devices > 2'000)
      longest = std::max(longest, overrun(it.name, dgx(it.devices / 8, 80_GiB), model_of(it), it.rows));
  return transfer_bench::write_figures("search_overrun_bench",
                                       {{"plan.search_overrun_seconds", longest, "s", "<=", 1}});
}
