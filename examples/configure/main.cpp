// SPDX-License-Identifier: Apache-2.0
// Finds the fastest plans for a model on a cluster, and proves that they fit: configure --cluster FILE --model NAME
// --rows 512. Prints the best plans with the reason for every plan that was left out, and writes the best one.
#include "options.hpp"
#include "report.hpp"

#include "../interruption.hpp"
#include "../max_model/model_choice.hpp"
#include "../max_model/problem.hpp"
#include "../output_file.hpp"
#include "../progress_line.hpp"
#include "../run_program.hpp"
#include "../schedule/picture.hpp"
#include "../schedule/trace.hpp"

#include <chunkmem/configurator/cluster_file.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_file.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/profile_file.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/workload/named_transformers.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

namespace {

using namespace configure_example;
namespace configurator = chunkmem::configurator;
using max_model::problem;

void write_file(const char* option, const std::filesystem::path& where, const std::string& text)
{
  command_line::write_file<problem>(option, where, text);
}

/// @throws problem   the folder cannot be made, or has plans of an earlier search
void make_folder(const std::filesystem::path& where)
{
  std::error_code failure;
  std::filesystem::create_directories(where, failure);
  if (!std::filesystem::is_directory(where, failure))
    throw problem{"--plans '" + where.string() + "' is no folder, and none can be made there (name another one)"};
  if (std::filesystem::exists(where / "1.plan", failure))
    throw problem{"--plans '" + where.string() + "' has plans of an earlier search (name another folder)"};
}

/// A signal has come, or --seconds have passed since this call.
[[nodiscard]] chunkmem::pipeline::interruption end_of_search(const options& chosen)
{
  using clock = std::chrono::steady_clock;
  command_line::interruption::listen();
  return chunkmem::pipeline::interruption{[seconds = chosen.seconds, begin = clock::now()] {
    return command_line::interruption::signal() != 0 ||
           (seconds > 0 && std::chrono::duration<double>{clock::now() - begin}.count() > seconds);
  }};
}

[[nodiscard]] configurator::plan_search_result search(const options& chosen, const subject& of)
{
  configurator::plan_search_effort effort{.threads = chosen.threads,
                                          .best = chosen.best,
                                          .beside = {chosen.device_allowance, chosen.host_allowance},
                                          .stop = of.stop};
  command_line::progress_line progress{"plans"};
  if (!chosen.is_quiet)
    effort.tell = [&](const configurator::search_progress& it) {
      char text[160];
      std::snprintf(text, sizeof text, "%llu of %llu plans, %.0f s%s; the best takes %.4g s, none less than %.4g s",
                    static_cast<unsigned long long>(it.done), static_cast<unsigned long long>(it.of), it.seconds,
                    command_line::progress_line::left_text(it.seconds_left).c_str(), it.best, it.bound);
      progress.show(text);
    };
  return find_plans(of.whole, of.model, chosen.space, effort);
}

/// The first pipeline of a plan, on virtual clocks.
[[nodiscard]] schedule_example::simulation simulation_of(const subject& of, const configurator::parallel_plan& plan)
{
  const configurator::step_latency latency{of.whole, of.model};
  schedule_example::simulation it;
  it.plan = schedule_of(plan, latency.typical_seconds(plan),
                        plan.schedule == configurator::schedule_kind::two_versions ? 3 : 1);
  const chunkmem::pipeline::pipeline_costs costs = latency.costs(plan);
  it.times = chunkmem::pipeline::pipeline_timeline{it.plan, costs}.run(true);
  it.updates_aside = costs.updates_aside;
  return it;
}

/// The best plan that gpt can run. @throws problem   there is none
[[nodiscard]] auto first_to_run(const configurator::plan_search_result& found)
{
  return std::ranges::find_if(found.best, [](const auto& it) { return can_be_run(it.plan); });
}
[[nodiscard]] bool has_plan_to_run(const configurator::plan_search_result& found)
{
  return first_to_run(found) != found.best.end();
}

void write_files(const options& chosen, const subject& of, const configurator::plan_search_result& found)
{
  if (!chosen.plan && !chosen.plans && !chosen.trace && !chosen.svg) return;
  const auto best = first_to_run(found);
  if (best == found.best.end())
    throw problem{
        "no plan that was found can be run yet: all have ranks that share layers, cuts, or ZeRO 0 (try "
        "--without-tensor-parallelism --without-cuts, and no --with-zero-0)"};
  const configurator::plan_subject subject = subject_of(of.model, of.whole);
  if (chosen.plan) write_file("--plan", *chosen.plan, plan_text(best->plan, subject));
  if (chosen.plans) {
    for (std::size_t number = 0; number < found.best.size(); ++number)
      if (can_be_run(found.best[number].plan))
        write_file("--plans", *chosen.plans / (std::to_string(number + 1) + ".plan"),
                   plan_text(found.best[number].plan, subject));
  }
  if (chosen.trace) write_file("--trace", *chosen.trace, trace_of(simulation_of(of, best->plan)));
  if (chosen.svg) write_file("--svg", *chosen.svg, picture_of(simulation_of(of, best->plan)));
}

[[nodiscard]] configurator::trained_model model_of(const options& chosen,
                                                   const chunkmem::workload::transformer_shape& shape,
                                                   const configurator::cluster& whole)
{
  if (!chosen.profile) return {shape, chosen.trainer};
  configurator::model_profile profile = configurator::read_profile(chosen.profile->string());
  std::uint64_t layers = 0;
  for (const configurator::profiled_part& it : profile.parts) layers += it.layers;
  if (layers != shape.layers)
    throw problem{"--profile '" + chosen.profile->string() + "' has " + std::to_string(layers) +
                  " layers, and --model " + chosen.model + " has " + std::to_string(shape.layers) +
                  " (give the model that was measured)"};
  const std::vector<std::string> kinds = profile.kinds();
  for (const configurator::cluster_node& it : whole.nodes)
    if (std::ranges::find(kinds, it.kind) == kinds.end())
      throw problem{"--profile '" + chosen.profile->string() + "' has no times for nodes of the kind \"" + it.kind +
                    "\" (measure them there)"};
  return configurator::trained_model{std::move(profile), chosen.trainer, shape};
}

int run(const options& chosen)
{
  const configurator::cluster whole = configurator::read_cluster(chosen.cluster.string());
  chunkmem::workload::transformer_shape shape = max_model::choose_model(chosen.model).shape;
  if (chosen.sequence != 0) shape.sequence = chosen.sequence;
  const configurator::trained_model model = model_of(chosen, shape, whole);
  const subject of{whole, model, end_of_search(chosen)};
  if (!chosen.common.json)
    std::cout << "cluster \"" << whole.name << "\" of " << whole.nodes.size() << " nodes and " << whole.ranks()
              << " devices, model " << chosen.model << ", " << chosen.space.rows << " rows of " << shape.sequence
              << " tokens\n\n";
  if (chosen.plans) make_folder(*chosen.plans);
  const configurator::plan_search_result found = search(chosen, of);
  if (chosen.common.json)
    print_json(std::cout, of, found, chosen.model);
  else if (found.best.empty())
    std::cout << (found.is_whole ? "no plan was found that fits\n"
                                 : "no plan was found before the search was stopped\n");
  else
    print_plans(std::cout, of, found), print_bound(std::cout, found), print_best(std::cout, of, found.best.front());
  if (!chosen.common.json) print_rejected(std::cout, found);
  const int signal = command_line::interruption::signal();
  if (signal == 0 ? !found.best.empty() : has_plan_to_run(found)) write_files(chosen, of, found);
  if (signal != 0) {
    std::cout.flush();
    std::fprintf(stderr, "configure: ended by %s: %s (a search begins anew)\n",
                 command_line::interruption::name(signal).c_str(),
                 found.best.empty() ? "nothing was found yet" : "these are the best plans so far");
    return command_line::interruption::exit_status(signal);
  }
  return found.best.empty() ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("configure", [&] {
    const options chosen = parse_options(count - 1, arguments + 1);
    if (chosen.common.asks_only()) return command_line::answer("configure", chosen.common, help_text());
    if (!chosen.lists_models) return run(chosen);
    for (const chunkmem::workload::named_transformer& it : chunkmem::workload::named_transformers)
      std::cout << it.family << '/' << it.name << '\n';
    return EXIT_SUCCESS;
  });
}
