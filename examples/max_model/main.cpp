// SPDX-License-Identifier: Apache-2.0
// The largest model that each strategy trains on a machine, and the bytes of each kind of data in it.

#include "../interruption.hpp"
#include "../output_file.hpp"
#include "../progress_line.hpp"
#include "../run_program.hpp"
#include "comparison.hpp"
#include "model_choice.hpp"
#include "options.hpp"
#include "problem.hpp"
#include "table.hpp"
#include "timeline.hpp"

#include <chunkmem/workload/files.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace max_model;

/// A file that can be written; else a sentence before the work starts.
using output_file = command_line::output_file<problem>;

void print_names()
{
  for (const workload::named_transformer& it : workload::named_transformers)
    std::printf("%s/%s\n", std::string{it.family}.c_str(), std::string{it.name}.c_str());
}

/// The progress line of a terminal, which names the current work. A signal ends the program at once, since a partial
/// result is useless.
struct progress {
  void begins(std::string_view strategy, std::uint64_t width, std::size_t number, std::size_t of)
  {
    command_line::expect_no_signal();
    now = std::string{strategy} + ", width " + std::to_string(width);
    done = number - 1;
    all = of;
    line.show(text());
  }
  void tries(std::uint64_t layers)
  {
    command_line::expect_no_signal();
    line.show(text() + ", tries " + std::to_string(layers) + " layers");
  }
  void simulates(std::string_view strategy)
  {
    command_line::expect_no_signal();
    line.show("a step of " + std::string{strategy});
  }

 private:
  using clock = std::chrono::steady_clock;
  [[nodiscard]] std::string text() const
  {
    std::string it = std::to_string(done + 1) + " of " + std::to_string(all) + ": " + now;
    const double passed = std::chrono::duration<double>(clock::now() - began).count();
    if (done > 0)
      it +=
          command_line::progress_line::left_text(passed / static_cast<double>(done) * static_cast<double>(all - done));
    return it;
  }

  command_line::progress_line line{"strategies"};
  std::string now;
  std::size_t done = 0;
  std::size_t all = 0;
  clock::time_point began = clock::now();
};

/// The iteration of the strategy planned for the given model, or a sentence why there is none.
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

std::vector<comparison_row> compare_largest(const std::vector<training_job>& jobs, const options& chosen)
{
  progress shown;
  return compare(jobs, chosen, shown);
}

/// A sentence on rows that --only-bytes leaves out. Empty: none.
std::string left_out_by(const options& chosen)
{
  if (!chosen.only_bytes) return {};
  options all = chosen;
  all.only_bytes = false;
  const bool asks_for_planned = is_asked_for(all, planned::name);
  return "left out by --only-bytes, since they are simulated: " +
         std::string{asks_for_planned ? "the strategy planned and " : ""} + "the times of a step";
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
  command_line::interruption::listen();
  if (!chosen.only_bytes) {
    progress shown;
    steps = compare_steps(job, chosen, shown);
  }
  if (timeline) {
    write_timeline(timeline->text(), planned_step(steps));
    timeline->finish();
  }
  const std::vector<comparison_row> rows = compare_largest(jobs, chosen);
  command_line::expect_no_signal();
  const std::string left_out = left_out_by(chosen);
  if (chosen.common.json) {
    print_json(stdout, job, model.name, rows, steps, left_out);
  } else {
    print_question(stdout, job, model.name);
    print_models(stdout, rows);
    if (!left_out.empty()) std::printf("%s\n", left_out.c_str());
    print_bytes(stdout, rows);
    if (!steps.empty()) print_steps(stdout, job, steps);
  }
  if (!csv) return EXIT_SUCCESS;
  write_csv(csv->text(), rows, steps);
  csv->finish();
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("max_model", [&] {
    const options chosen = parse_options(count - 1, arguments + 1);
    if (chosen.common.asks_only()) return command_line::answer("max_model", chosen.common, help_text());
    if (!chosen.lists_models) return run(chosen);
    print_names();
    return EXIT_SUCCESS;
  });
}
