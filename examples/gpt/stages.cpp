// SPDX-License-Identifier: Apache-2.0
#include "stages.hpp"

#include "../command_line.hpp"
#include "../interruption.hpp"
#include "../schedule/generators.hpp"
#include "checkpoints.hpp"
#include "planned_grid.hpp"
#include "problem.hpp"
#include "program.hpp"
#include "stage_session.hpp"
#include "thread_grid.hpp"

#include <chunkmem/pipeline/schedule_text.hpp>
#ifdef GPT_HAS_MPI
#include "process_grid.hpp"

#include <chunkmem/collective/mpi_session.hpp>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gpt {
namespace {

using chunkmem::pipeline::pipeline_shape;
using plan_type = chunkmem::pipeline::schedule;

[[nodiscard]] plan_type plan_from_file(const std::string& where)
{
  std::ifstream file{where};
  if (!file)
    throw problem{"--schedule '" + where + "' is neither a schedule nor a file that can be read: choose " +
                  command_line::listed(std::vector<std::string>(schedule_example::generator_names.begin(),
                                                                schedule_example::generator_names.end())) +
                  ", or name a file that examples/schedule wrote"};
  return chunkmem::pipeline::schedule_text::read(file, where);
}

/// @throws problem, chunkmem::config_error   no such schedule, or not for this model
[[nodiscard]] plan_type plan_of(const options& chosen, std::uint32_t stages)
{
  const pipeline_shape shape{.stages = stages,
                             .micro_batches = static_cast<std::uint32_t>(chosen.size.micro_batches),
                             .batches = static_cast<std::uint32_t>(chosen.steps)};
  const std::optional<plan_type> named = schedule_example::named_schedule(chosen.schedule, shape);
  plan_type plan = named ? *named : plan_from_file(chosen.schedule);
  const auto expect = [&](std::size_t found, std::size_t wanted, const char* what, const char* option) {
    if (found != wanted)
      throw problem{"the schedule '" + chosen.schedule + "' has " + std::to_string(found) + ' ' + what + ", and " +
                    option + " says " + std::to_string(wanted) + " (give the same number)"};
  };
  expect(plan.stage_count(), stages, "stages", "--stages");
  expect(plan.micro_batches, chosen.size.micro_batches, "micro-batches in a step", "--microbatches");
  expect(plan.batches, chosen.steps, "steps", "--steps");
  using kind = chunkmem::pipeline::operation_kind;
  for (const auto& steps : plan.stages)
    for (const chunkmem::pipeline::operation& step : steps)
      if (step.kind == kind::recompute || step.kind == kind::offload || step.kind == kind::reload)
        throw problem{"the schedule '" + chosen.schedule +
                      "' recomputes, offloads or reloads, which gpt decides itself (leave these steps out, and choose "
                      "--activations)"};
  if (plan.gradient_sets > 1)
    throw problem{"the schedule '" + chosen.schedule + "' has " + std::to_string(plan.gradient_sets) +
                  " sets of gradients, and gpt keeps one (give a schedule with one set)"};
  if (divides_backward(plan) && chosen.activations == activation_mode::recompute)
    throw problem{"--activations recompute cannot be combined with the schedule '" + chosen.schedule +
                  "', which divides backward runs: the second one needs the activations (choose swap)"};
  if (plan.part_count() > chosen.size.layers)
    throw problem{std::to_string(plan.part_count()) + " parts of a model with " + std::to_string(chosen.size.layers) +
                  " layers: each part needs a layer (choose fewer --stages, or more --layers)"};
  return plan;
}

/// The grid that the command line chooses.
[[nodiscard]] training_grid grid_of(const options& chosen)
{
  using namespace chunkmem::sharding;
  constexpr zero divisions[] = {zero_1, zero_2, zero_3};
  return {.plan = plan_of(chosen, static_cast<std::uint32_t>(chosen.stages)),
          .replicas = static_cast<std::uint32_t>(chosen.replicas),
          .divided = divisions[chosen.shard.value_or(3) - 1]};
}

/// Trains on threads. @return   the same on every rank
[[nodiscard]] training_result train_on_threads(const stage_setup& setup, const display* show)
{
  training_result found;
  thread_grid{setup.grid.plan, setup.grid.replicas}.run([&](thread_grid::place& here) {
    chunkmem::optimizer::thread_pool own{setup.chosen.threads.value_or(1)};
    const stage_setup mine{setup.chosen, setup.text, own, setup.grid, setup.is_limited};
    training_result result = run_stage(mine, here, show);
    if (prints(setup.grid, here)) found = std::move(result);
  });
  return found;
}

/// The same training with each pipeline on one device that has room for everything: it reads the same versions of the
/// weights, and adds up the same gradients.
[[nodiscard]] training_result train_on_one_device(const stage_setup& setup)
{
  using namespace chunkmem::pipeline;
  const plan_type& plan = setup.grid.plan;
  const pipeline_shape shape{.stages = 1, .micro_batches = plan.micro_batches, .batches = plan.batches};
  const training_grid alone{
      .plan = plan.versions == 1 ? make_schedule(gpipe{}, shape)
                                 : make_schedule(pipedream_2bw{.versions = plan.versions}, shape),
      .replicas = setup.grid.replicas,
      .divided = {.gradients = setup.grid.divided.gradients, .parameters = !setup.grid.divided.parameters}};
  return train_on_threads({setup.chosen, setup.text, setup.workers, alone, false}, nullptr);
}

[[nodiscard]] int verdict(const stage_setup& setup, const training_result& found, const display& show)
{
  if (found.signal != 0) return command_line::interruption::exit_status(found.signal);
  if (!setup.chosen.verify) return EXIT_SUCCESS;
  show.line(setup.grid.replicas == 1 ? "verify: training again on one device without a limit ..."
                                     : "verify: training again with each replica on one device without a limit ...");
  const training_result other = train_on_one_device(setup);
  if (other.signal != 0) {
    show.line(end_of_verify(other));
    return command_line::interruption::exit_status(other.signal);
  }
  return show.verdict(found, other) ? EXIT_SUCCESS : EXIT_FAILURE;
}

void say_lateness(const training_grid& grid, const display& show)
{
  const std::uint32_t late = grid.plan.versions - 1;
  if (late == 0) return;
  show.line("gradients are " + std::to_string(late) + (late == 1 ? " update" : " updates") +
            " late: no step waits for the pipeline, and more steps may be needed");
}

[[nodiscard]] int run_on_threads(const options& chosen, const training_grid& grid, const training_text& text,
                                 const display& show)
{
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(1)};
  const stage_setup setup{chosen, text, workers, grid};
  say_lateness(grid, show);
  check_metrics(chosen);
  return verdict(setup, train_on_threads(setup, &show), show);
}

#ifdef GPT_HAS_MPI
[[nodiscard]] int run_on_processes(const options& chosen, const training_grid& grid, const training_text& text,
                                   const display& show)
{
  chunkmem::collective::mpi_session session;
  int processes = 0;
  int process = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  if (grid.ranks() != static_cast<std::uint32_t>(processes))
    throw problem{"a training on " + std::to_string(grid.ranks()) + " ranks was started as " +
                  std::to_string(processes) + " processes (start " + std::to_string(grid.ranks()) + ')'};
  auto rank = static_cast<std::uint32_t>(process);
  if (!grid.processes.empty())
    rank = static_cast<std::uint32_t>(std::ranges::find(grid.processes, rank) - grid.processes.begin());
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(1)};
  const stage_setup setup{chosen, text, workers, grid};
  training_result found;
  {
    process_grid here{session, grid.plan, rank};
    if (prints(grid, here)) say_lateness(grid, show);
    if (prints(grid, here)) check_metrics(chosen);
    found = run_stage(setup, here, &show);
    if (!prints(grid, here))
      return found.signal == 0 ? EXIT_SUCCESS : command_line::interruption::exit_status(found.signal);
  }
  return verdict(setup, found, show);
}

/// True if an MPI launcher started this process and others.
[[nodiscard]] bool is_launched()
{
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const other = std::getenv("PMI_SIZE");
  return (size != nullptr && std::string{size} != "1") || (other != nullptr && std::string{other} != "1");
}
#endif

}  // namespace

int run_stages(const options& chosen, const training_text& text, const display& show)
{
  check_checkpoints(chosen);
  const planned_training it = chosen.plan ? read_plan(chosen) : planned_training{chosen, grid_of(chosen)};
#ifdef GPT_HAS_MPI
  if (is_launched()) return run_on_processes(it.chosen, it.grid, text, show);
#endif
  return run_on_threads(it.chosen, it.grid, text, show);
}

}  // namespace gpt
