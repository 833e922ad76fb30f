// SPDX-License-Identifier: Apache-2.0
// Are found plans as fast as the published ones of Megatron, and are the published ones as fast as predicted?
//
// The models of 1.7 to 1,008 billion parameters on 32 to 3,072 A100 of 80 GB. The nodes are those of hand_plans_bench:
// products reach 45 % of the peak, which is assumed and not fitted. The published plan has an all-reduce of gradients
// in 32 bits (ZeRO 0), stores attention scores, and recomputes each layer. The search has 20 seconds for each model,
// and may divide states too. Speeds are FLOP a second of a device by formula 3 of the paper, which counts recomputation
// whether or not a plan has it. The program fails where a found plan is slower than the published one by the same
// simulation. No figure is recorded: where the search found no plan, there is none to compare.
//
// Source: Narayanan et al. 2021 (arXiv 2104.04473), table 1; micro-batches and parts of a stage are those of
// examples/sc21/run_table_1.sh of NVIDIA/Megatron-LM.
#include "dgx_nodes.hpp"
#include "published_plans.hpp"

#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using namespace published_plans;

/// The FLOP of a step, per second and device.
double teraflops_of(const published_plan& it, double seconds)
{
  const auto h = static_cast<double>(it.hidden), l = static_cast<double>(it.layers);
  const double flops = 96 * static_cast<double>(it.rows) * row_tokens * l * h * h *
                       (1 + row_tokens / (6 * h) + vocabulary / (16 * l * h));
  return flops / seconds / it.devices * 1e-12;
}

parallel_plan plan_of(const published_plan& it)
{
  parallel_plan plan{.tensor = it.tensor, .stages = it.stages, .replicas = it.devices / it.tensor / it.stages};
  plan.micro_batch = it.micro_batch;
  plan.micro_batches = static_cast<std::uint32_t>(it.rows / plan.replicas / it.micro_batch);
  plan.parts = it.parts;
  plan.schedule = it.parts > 1 ? schedule_kind::interleaved : schedule_kind::one_f_one_b;
  plan.recomputes = true;
  plan.zero = 0;
  plan.devices = identity_placement(plan.ranks());
  return plan;
}

}  // namespace

int main()
{
  std::printf("%8s %28s %10s   %s\n", "model", "published: measured, predicted", "found",
              "[TFLOP/s of a device], plan");
  bool is_slower = false;
  for (const published_plan& it : table) {
    const cluster whole = configurator_bench::dgx(it.devices / 8, 80_GiB);
    const trained_model model = model_of(it);
    const double published = step_latency{whole, model}.of(plan_of(it)).step;
    const auto begin = std::chrono::steady_clock::now();
    const pipeline::interruption stop{
        [=] { return std::chrono::steady_clock::now() - begin > std::chrono::seconds{20}; }};
    const plan_search_result found =
        find_plans(whole, model, {.rows = it.rows, .schedules = {}}, {.threads = 2, .best = 1, .stop = stop});
    std::printf("%8s %12.0f %15.1f", it.name, it.teraflops, teraflops_of(it, published));
    if (found.best.empty())
      std::printf("       none\n");
    else
      std::printf(" %10.1f   %s\n", teraflops_of(it, found.best.front().time.step),
                  text_of(found.best.front().plan).c_str());
    std::fflush(stdout);
    is_slower = is_slower || (!found.best.empty() && found.best.front().time.step > published);
  }
  return is_slower ? EXIT_FAILURE : EXIT_SUCCESS;
}
