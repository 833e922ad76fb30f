// SPDX-License-Identifier: Apache-2.0
#include "planned_grid.hpp"

#include "../output_file.hpp"
#include "extents.hpp"
#include "problem.hpp"
#include "stage_model.hpp"

#include <cstddef>
#include <fstream>
#include <string>

#ifdef GPT_HAS_JSON
#include <chunkmem/configurator/cluster_file.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_file.hpp>
#include <chunkmem/configurator/planned_rank.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/profile_file.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>
#endif

namespace gpt {

void write_model(const options& chosen)
{
  const extents& size = chosen.size;
  command_line::output_file<problem> file{"--write-model", *chosen.write_model};
  std::ostream& out = file.text();
  const auto line = [&](const char* key, std::size_t value) { out << "  \"" << key << "\": " << value << ",\n"; };
  out << "{\n  \"name\": \"gpt\",\n  \"source\": \"options of gpt\",\n  \"style\": \"gpt\",\n";
  line("layers", size.layers);
  line("hidden", size.width);
  line("heads", size.heads);
  line("kv_heads", size.heads);
  line("ffn", 4 * size.width);
  line("vocabulary", vocabulary);
  line("embedding", size.width);
  line("positions", size.context);
  line("sequence", size.context);
  out << "  \"ties_embedding\": true\n}\n";
  file.finish();
}

#ifdef GPT_HAS_JSON

namespace {

namespace configurator = chunkmem::configurator;
using configurator::parallel_plan;

/// The model that write_model writes.
[[nodiscard]] chunkmem::workload::transformer_shape shape_of(const extents& size)
{
  return {.layers = size.layers,
          .hidden = size.width,
          .heads = size.heads,
          .kv_heads = size.heads,
          .ffn = 4 * size.width,
          .vocabulary = vocabulary,
          .embedding = size.width,
          .positions = size.context,
          .sequence = size.context};
}

/// The model that configure plans for. A profile contains the measured bytes of this trainer, so no trait of the
/// trainer is needed.
[[nodiscard]] configurator::trained_model model_of(const options& chosen)
{
  constexpr configurator::sum_route sums = configurator::sum_route::direct;
  if (!chosen.profile) return {shape_of(chosen.size), {.activation_bytes = sizeof(float), .sums = sums}};
  return configurator::trained_model{
      configurator::read_profile(chosen.profile->string()), {.sums = sums}, shape_of(chosen.size)};
}

[[nodiscard]] std::string text_in(const std::filesystem::path& where)
{
  std::ifstream file{where, std::ios::binary};
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw problem{"--plan '" + where.string() + "' cannot be read (name a file that configure wrote)"};
  return text.str();
}

[[nodiscard]] chunkmem::pipeline::schedule runnable_schedule(const parallel_plan& plan,
                                                             const chunkmem::pipeline::pass_seconds& seconds,
                                                             std::uint32_t steps)
{
  check_schedulable(plan);
  // This program has one set of gradients; 2bw of a plan without replicas has two.
  if (plan.schedule == configurator::schedule_kind::two_versions)
    return make_schedule(chunkmem::pipeline::pipedream_2bw{},
                         {.stages = plan.stages, .micro_batches = plan.micro_batches, .batches = steps});
  return configurator::schedule_of(plan, seconds, steps);
}

/// The message without the name of the library at its begin: this one begins with an option.
[[nodiscard]] std::string sentence_of(const chunkmem::config_error& why)
{
  std::string_view words = why.what();
  constexpr std::string_view name = "chunkmem: ";
  if (words.starts_with(name)) words.remove_prefix(name.size());
  return std::string{words};
}

/// The processes of ranks have the numbers of their devices.
[[nodiscard]] std::vector<std::uint32_t> processes_of(const parallel_plan& plan)
{
  std::vector<std::uint32_t> sorted = plan.devices;
  std::ranges::sort(sorted);
  std::vector<std::uint32_t> all;
  for (const std::uint32_t device : plan.devices)
    all.push_back(static_cast<std::uint32_t>(std::ranges::find(sorted, device) - sorted.begin()));
  return all;
}

}  // namespace

void write_profile(const options& chosen, chunkmem::call_ref<configurator::model_profile()> measure)
{
  command_line::output_file<problem> file{"--write-profile", *chosen.write_profile};
  file.text() << profile_text(measure(), "measured by gpt: " + std::to_string(chosen.threads.value_or(0)) +
                                             " threads of updates (0: as many as the machine has), precision " +
                                             std::string{name_of(chosen.precision)});
  file.finish();
}

planned_training read_plan(const options& chosen)
{
  const configurator::cluster whole = configurator::read_cluster(chosen.cluster->string());
  const configurator::trained_model model = model_of(chosen);
  const parallel_plan plan =
      configurator::parse_plan(text_in(*chosen.plan), chosen.plan->string(), subject_of(model, whole));
  const std::string named = "--plan '" + chosen.plan->string() + "' ";
  const auto refuse = [&](const std::string& why) { throw problem{named + why}; };
  const auto or_refuse = [&](auto work) {
    try {
      return work();
    } catch (const chunkmem::config_error& why) {
      throw problem{named + "cannot be run: " + sentence_of(why)};
    }
  };
  or_refuse([&] { plan.check(model, whole.ranks()); });
  if (plan.tensor > 1)
    refuse("has ranks that share layers, which gpt cannot run (plan with --without-tensor-parallelism)");
  if (plan.zero == 0 && plan.replicas > 1)
    refuse("has ZeRO 0, and replicas of gpt divide states (plan ZeRO 1, 2 or 3)");
  if (!plan.cuts.empty()) refuse("has cuts, and stages of gpt have equal numbers of layers (plan without cuts)");
  if (plan.micro_batch > most_rows_of_layers / chosen.size.layers)
    refuse("has micro-batches of " + std::to_string(plan.micro_batch) + " rows, which times --layers is more than " +
           std::to_string(most_rows_of_layers) + " (plan for fewer rows)");
  const chunkmem::pipeline::pass_seconds seconds = configurator::step_latency{whole, model}.typical_seconds(plan);
  chunkmem::pipeline::schedule schedule =
      or_refuse([&] { return runnable_schedule(plan, seconds, static_cast<std::uint32_t>(chosen.steps)); });
  planned_training it{.chosen = chosen, .grid = {}};
  it.chosen.size.batch = plan.micro_batch;
  it.chosen.size.micro_batches = plan.micro_batches;
  it.chosen.stages = plan.stages;
  it.chosen.replicas = plan.replicas;
  if (plan.recomputes) it.chosen.activations = activation_mode::recompute;
  if (!it.chosen.chunk_bytes) it.chosen.chunk_bytes = work_of(model, plan, seconds).chunk;
  it.chosen.placement =
      any_placement{chunkmem::placement::fixed_split{.device_share = plan.states_on_host ? 0.0 : 1.0}};
  it.grid = {.plan = std::move(schedule),
             .replicas = plan.replicas,
             .divided = configurator::divided_by(plan),
             .processes = processes_of(plan)};
  if (plan.recomputes && divides_backward(it.grid.plan))
    refuse(
        "recomputes with a schedule that divides backward runs, whose second half reads tensors that are not kept "
        "(plan again)");
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
    it.grid.rooms.push_back(configurator::room_of_stage(whole, plan, stage));
  return it;
}

#else

void write_profile(const options&, chunkmem::call_ref<chunkmem::configurator::model_profile()>)
{
  throw problem{"--write-profile needs a build with nlohmann/json.hpp (Debian: apt-get install nlohmann-json3-dev)"};
}

planned_training read_plan(const options&)
{
  throw problem{"--plan needs a build with nlohmann/json.hpp (Debian: apt-get install nlohmann-json3-dev)"};
}

#endif

}  // namespace gpt
