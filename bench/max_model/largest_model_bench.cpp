// SPDX-License-Identifier: Apache-2.0
// Which part of the largest possible model on a machine does the manager train?
//
// For every machine the most layers that run in virtual time, and those of the peak formula: both whole layers, of a
// width that was published for such a machine, at most 4 % of a model. For the V100 node once more with 2 GB of context
// on each device instead of 1.2: the needs of NCCL and cuBLAS are unknown before a run.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/named_transformers.hpp>
#include <planned.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace {

using namespace max_model;

struct question {
  const char* machine;
  const char* model;
};
constexpr question questions[] = {{"v100_32_node", "GPT3_18B"},   {"a100_40_node", "DS_68B"},
                                  {"a100_80_node", "DS_68B"},     {"a100_40_four_nodes", "175B"},
                                  {"a100_80_four_nodes", "175B"}, {"h100_node", "DS_68B"},
                                  {"h200_node", "DS_68B"},        {"gh200", "DS_20B"},
                                  {"rtx_4090", "GPT3_10B"}};

struct answer {
  largest_model formula;
  largest_model found;

  [[nodiscard]] double percent() const
  {
    return 100 * static_cast<double>(found.parameters()) / static_cast<double>(formula.parameters());
  }
};

constexpr bytes large_context{2'000'000'000};

answer ask(const question& what, std::uint64_t micro_batch, const assumptions& beside = {})
{
  const training_job job{workload::shape_of("PatrickStar", what.model),
                         {.micro_batch = micro_batch},
                         workload::read_machine(std::string{MAX_MODEL_MACHINES} + "/" + what.machine + ".json"),
                         beside};
  const answer it{find_largest(peak_formula{}, job), planned{}.find_largest(job, [](std::uint64_t) {})};
  const planner::training_forecast step = planned{}.fastest(it.found.job);
  std::printf("%-20s %11" PRIu64 " | %6" PRIu64 " %8.2f | %6" PRIu64
              " %8.2f | %6.2f %% of the formula, %5.1f %% of the machine; "
              "step %8.2f s, busiest %8.2f s\n",
              what.machine, micro_batch, it.formula.layers(), static_cast<double>(it.formula.parameters()) / 1e9,
              it.found.layers(), static_cast<double>(it.found.parameters()) / 1e9, it.percent(),
              100 * it.found.part_of_machine(), static_cast<double>(step.step.nanoseconds) / 1e9,
              static_cast<double>(step.step.busiest()) / 1e9);
  std::fflush(stdout);
  return it;
}

}  // namespace

int main()
{
  std::printf("%-20s %s | formula: layers, billions | simulated\n", "machine", "micro-batch");
  double worst = 100;
  double billions = 0;
  double used = 0;
  double with_large_context = 0;
  for (const question& what : questions) {
    for (const std::uint64_t micro_batch : {1U, 4U, 16U}) {
      const answer it = ask(what, micro_batch);
      worst = std::min(worst, it.percent());
      if (std::string{what.machine} != "v100_32_node") continue;
      if (micro_batch == 4) {
        billions = static_cast<double>(it.found.parameters()) / 1e9;
        const answer other = ask(what, micro_batch, {.context = large_context});
        with_large_context = static_cast<double>(other.found.parameters()) / 1e9;
      }
      if (micro_batch == 1) used = 100 * it.found.part_of_machine();
    }
  }
  return transfer_bench::write_figures(
      "largest_model_bench",
      {{"planner.peak_formula_percent", worst, "%", ">=", 98},
       {"planner.largest_model_v100_node_billions", billions, "billion", ">=", 27},
       {"planner.largest_model_v100_node_2_gb_context_billions", with_large_context, "billion", ">=", 27},
       {"planner.node_bytes_used_percent", used, "%", ">=", 85}});
}
