// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include "../gpt/size_text.hpp"
#include "../json_text.hpp"

#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

namespace configure_example {
namespace {

namespace configurator = chunkmem::configurator;
using chunkmem::bytes;

template <class... Values>
[[nodiscard]] std::string formatted(const char* format, Values... values)
{
  char room[256];
  std::snprintf(room, sizeof room, format, values...);
  return room;
}

/// The largest need of all stages.
template <class Member>
[[nodiscard]] bytes most(const configurator::memory_proof& proof, Member member)
{
  bytes found{};
  for (const configurator::stage_memory& it : proof.stages) found = std::max(found, it.*member);
  return found;
}

/// Devices without a rank.
void print_idle(std::ostream& out, const subject& of, const configurator::parallel_plan& plan)
{
  const std::vector<std::uint32_t> nodes = of.whole.nodes_of_ranks();
  if (plan.devices.size() == nodes.size()) return;
  out << "  idle, since no plan that was found is faster with them: " << nodes.size() - plan.devices.size() << " of "
      << nodes.size() << " devices:";
  constexpr std::uint32_t most_printed = 16;
  std::uint32_t printed = 0;
  for (std::uint32_t device = 0; device < nodes.size() && printed < most_printed; ++device) {
    if (std::ranges::find(plan.devices, device) != plan.devices.end()) continue;
    out << (printed++ == 0 ? " " : ", ") << "device " << device << " of node " << nodes[device];
  }
  out << (nodes.size() - plan.devices.size() > most_printed ? ", ...\n" : "\n");
}

/// The device of each rank, idle devices, and the time of a step with other placements of the ranks: devices in their
/// order, and the slowest placement that was found by the same simulation.
void print_places(std::ostream& out, const subject& of, const configurator::found_plan& best)
{
  const configurator::step_latency latency{of.whole, of.model, of.stop};
  const auto seconds = [&](const configurator::parallel_plan& plan) {
    return latency.of(plan, moved_by(of.whole, plan, best.memory)).step;
  };
  configurator::parallel_plan in_order = best.plan;
  std::ranges::sort(in_order.devices);
  const configurator::group_places places{of.whole, best.plan, parts_of(of.model, best.plan)};
  constexpr std::uint64_t steps_of_search = 1'000'000;
  const std::uint64_t steps = schedule_steps(best.plan) * best.plan.replicas;
  const auto most = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(steps_of_search / steps, 1, 200));
  std::string told = formatted("  places: %.4g s as found", best.time.step);
  try {
    told += formatted(", %.4g s in the order of devices", seconds(in_order));
    told +=
        formatted(", %.4g s on the slowest places found", slowest_places(places, best.plan, most, seconds, of.stop));
  } catch (const chunkmem::pipeline::interrupted&) {
    told += "; the search was stopped before other places were compared";
  }
  out << told << '\n';
  const std::vector<std::uint32_t> nodes = of.whole.nodes_of_ranks();
  constexpr std::uint32_t most_printed = 16;
  for (std::uint32_t replica = 0; replica < std::min(best.plan.replicas, most_printed); ++replica) {
    out << "  replica " << replica << ":";
    for (std::uint32_t stage = 0; stage < best.plan.stages; ++stage)
      for (std::uint32_t member = 0; member < best.plan.tensor; ++member) {
        const std::uint32_t device = best.plan.devices[best.plan.rank(replica, stage, member)];
        out << (member == 0 ? "  " : " + ") << "device " << device << " of node " << nodes[device];
      }
    out << '\n';
  }
  if (best.plan.replicas > most_printed) out << "  ... (" << best.plan.replicas << " replicas)\n";
  print_idle(out, of, best.plan);
}

}  // namespace

bool can_be_run(const configurator::parallel_plan& plan)
{
  return plan.tensor == 1 && plan.cuts.empty() && (plan.zero > 0 || plan.replicas == 1);
}

void print_plans(std::ostream& out, const subject& of, const configurator::plan_search_result& found)
{
  out << "    step [s]   tokens/s   bound [s]     device needs   host needs   plan\n";
  for (const configurator::found_plan& it : found.best) {
    const double tokens = static_cast<double>(it.plan.rows() * of.model.shape.sequence) / it.time.step;
    const std::string device = gpt::size_text(most(it.memory, &configurator::stage_memory::smallest_device));
    out << formatted("%12.4g %10.4g %11.4g %16s %12s   ", it.time.step, tokens, it.bound,
                     ((it.has_exact_memory ? "" : "about ") + device).c_str(),
                     gpt::size_text(most(it.memory, &configurator::stage_memory::smallest_host)).c_str())
        << text_of(it.plan) << (can_be_run(it.plan) ? "" : " (cannot be run yet)") << '\n';
  }
}

void print_bound(std::ostream& out, const configurator::plan_search_result& found)
{
  const double best = found.best.front().time.step;
  out << (found.bound >= best ? formatted("\nno plan of these places is faster than %.4g s\n", best)
                              : formatted("\nno plan takes less than %.4g s: the best one takes %.3g times as long\n",
                                          found.bound, best / found.bound));
}

void print_best(std::ostream& out, const subject& of, const configurator::found_plan& best)
{
  out << "\nthe fastest: " << text_of(best.plan) << '\n';
  out << formatted(
      "  of its %.4g s, the busiest stage runs %.4g s; sums and gathers behind it %.4g s, updates %.4g s\n",
      best.time.step, best.time.runs, best.time.sums, best.time.updates);
  for (std::uint32_t stage = 0; stage < best.plan.stages; ++stage) {
    const configurator::stage_memory& it = best.memory.stages[stage];
    out << "  stage " << stage << ": weights " << gpt::size_text(it.weights) << ", states " << gpt::size_text(it.states)
        << ", all in chunks " << gpt::size_text(it.chunks) << " (each " << gpt::size_text(it.chunk) << "), boundaries "
        << gpt::size_text(it.boundaries) << ", activations " << gpt::size_text(it.leases - it.boundaries)
        << "; a device needs " << gpt::size_text(it.smallest_device) << ", and has all at once with "
        << gpt::size_text(it.everything) << '\n';
  }
  if (!best.has_exact_memory)
    out << "  about: a part of its micro-batches was rehearsed, and its chunks come and go. With all of them a device "
           "may "
           "need some chunks more\n";
  print_places(out, of, best);
}

void print_rejected(std::ostream& out, const configurator::plan_search_result& found)
{
  out << "\nof " << found.plans << " plans, " << found.simulated << " were simulated and " << found.rehearsed
      << " rehearsed" << (found.is_whole ? "" : "; the search was stopped, so there may be faster ones")
      << ". Left out:\n";
  for (const configurator::rejected_plans& it : found.rejected)
    out << formatted("%8llu  ", static_cast<unsigned long long>(it.count)) << it.why << "; the fastest: " << it.example
        << '\n';
}

void print_json(std::ostream& out, const subject& of, const configurator::plan_search_result& found,
                std::string_view model)
{
  using namespace command_line;
  const auto plan_of = [&](const configurator::found_plan& it) {
    return json_object{}
        .add("plan", text_of(it.plan))
        .add("step_seconds", it.time.step)
        .add("bound_seconds", it.bound)
        .add("tokens_per_second", static_cast<double>(it.plan.rows() * of.model.shape.sequence) / it.time.step)
        .add("device_bytes", most(it.memory, &configurator::stage_memory::smallest_device).count())
        .add("host_bytes", most(it.memory, &configurator::stage_memory::smallest_host).count())
        .add("has_exact_memory", it.has_exact_memory)
        .add("can_be_run", can_be_run(it.plan))
        .add_json("devices", json_list(it.plan.devices, [](std::uint32_t device) { return std::to_string(device); }))
        .text();
  };
  const auto rejected_of = [](const configurator::rejected_plans& it) {
    return json_object{}.add("plans", it.count).add("why", it.why).add("fastest", it.example).text();
  };
  json_object all;
  all.add("program", "configure")
      .add("cluster", of.whole.name)
      .add("model", model)
      .add_json("plans", json_list(found.best, plan_of))
      .add("bound_seconds", found.bound)
      .add("is_whole", found.is_whole)
      .add("plans_in_all", found.plans)
      .add("simulated", found.simulated)
      .add("rehearsed", found.rehearsed)
      .add_json("rejected", json_list(found.rejected, rejected_of));
  out << all.text() << '\n';
}

}  // namespace configure_example
