// SPDX-License-Identifier: Apache-2.0
// The largest model that each strategy trains on a machine, and what takes which bytes of it.

#include "../output_file.hpp"
#include "comparison.hpp"
#include "model_choice.hpp"
#include "options.hpp"
#include "problem.hpp"
#include "table.hpp"
#include "timeline.hpp"

#include <chunkmem/workload/files.hpp>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace max_model;

/// A file that can be written, or a sentence before the work starts.
using output_file = command_line::output_file<problem>;

void print_names()
{
  for (const workload::named_transformer& it : workload::named_transformers)
    std::printf("%s/%s\n", std::string{it.family}.c_str(), std::string{it.name}.c_str());
}

/// What is done now, on stderr, and about how long the rest takes where that is worth telling.
struct progress {
  using clock = std::chrono::steady_clock;
  void begins(std::string_view strategy, std::uint64_t width, std::size_t number, std::size_t of) const
  {
    std::fprintf(stderr, "%zu of %zu: %.*s, width %" PRIu64, number, of, static_cast<int>(strategy.size()),
                 strategy.data(), width);
    const double passed = std::chrono::duration<double>(clock::now() - began).count();
    const double left =
        number > 1 ? passed / static_cast<double>(number - 1) * static_cast<double>(of - number + 1) : 0;
    if (left >= 5) std::fprintf(stderr, ", about %.0f s left", left);
    std::fputc('\n', stderr);
  }
  void tries(std::uint64_t layers) const { std::fprintf(stderr, "  tries %" PRIu64 " layers\n", layers); }
  void simulates(std::string_view strategy) const
  {
    std::fprintf(stderr, "a step of %.*s\n", static_cast<int>(strategy.size()), strategy.data());
  }

  clock::time_point began = clock::now();
};

/// planned's iteration of the given model, or a sentence why there is none.
const planner::training_forecast& planned_step(const std::vector<step_row>& steps)
{
  for (const step_row& it : steps) {
    if (it.strategy != planned::name) continue;
    if (it.forecast.fits) return it.forecast;
    throw problem{"--timeline has nothing to show, since planned does not train this model (give fewer --layers): " +
                  it.forecast.why_not};
  }
  throw problem{"--timeline has nothing to show"};
}

int run(const options& chosen)
{
  const workload::transformer_file model = choose_model(chosen.model);
  training_job job{model.shape, {}, workload::read_machine(chosen.machine.string()), {}};
  job.setup = {.micro_batch = chosen.micro_batch,
               .recomputes_layers = chosen.recomputes,
               .fuses_attention = chosen.fuses_attention,
               .has_logits = chosen.has_logits};
  if (chosen.layers) job.shape.layers = *chosen.layers;
  const std::vector<training_job> jobs = at_widths(job, chosen);
  std::optional<output_file> csv;
  if (chosen.csv) csv.emplace("--csv", *chosen.csv);
  std::optional<output_file> timeline;
  if (chosen.timeline) timeline.emplace("--timeline", *chosen.timeline);
  std::vector<step_row> steps;
  if (!chosen.only_bytes) steps = compare_steps(job, chosen, progress{});
  if (timeline) {
    write_timeline(timeline->text(), planned_step(steps));
    timeline->finish();
  }
  const std::vector<comparison_row> rows = compare(jobs, chosen, progress{});
  print_question(stdout, job, model.name);
  print_models(stdout, rows);
  print_bytes(stdout, rows);
  if (!steps.empty()) print_steps(stdout, job, steps);
  if (!csv) return EXIT_SUCCESS;
  write_csv(csv->text(), rows, steps);
  csv->finish();
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments)
try {
  const options chosen = parse_options(count - 1, arguments + 1);
  if (chosen.help)
    std::fputs(help_text().c_str(), stdout);
  else if (chosen.lists_models)
    print_names();
  else
    return run(chosen);
  return EXIT_SUCCESS;
} catch (const std::exception& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "max_model: %s\n", failure.what());
  return 2;
}
