// SPDX-License-Identifier: Apache-2.0
// How near does an out-of-core training over ranks come to the least time of its steps, and what does it wait for?
//
// 20 random jobs of four ranks by seed: 6 to 12 layers, weights and activations of different sizes, rates of links,
// network and host, activations by karma in a budget below their size, ZeRO 1 to 3, updates at once, late or early,
// with a limit on the norm or without. The real sharded_model trains on throttled_arena: real threads, real bytes.
// Compute, copies, collectives and updates take the time of the rates, by the clocks of the agents. The bound is
// planner::step_bound with the plan of activations, on the device of the job.
//
// Each job is trained three times: as it is drawn; without prefetching, with all sums and updates after the backward
// pass; with all activations swapped. Of the first training the longest waits are printed, those of compute and those
// of the caller, who updates. A wait for the caller is a wait for an update, or for the object that the caller waited
// for.
//
//   out_of_core_bench [first seed] [jobs]
#include "../transfer/planning_figures.hpp"
#include "drawn_job.hpp"
#include "job_bound.hpp"
#include "throttled_training.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace out_of_core;

constexpr double unit = 3e-3;  // seconds of the shortest forward run of a tensor

std::string text_of(place_in_step place)
{
  switch (place.during) {
    case place_in_step::part::forward: return "forward " + std::to_string(place.layer);
    case place_in_step::part::backward: return "backward " + std::to_string(place.layer);
    default: return "step";
  }
}
std::string text_of(cm::agent it)
{
  switch (it) {
    case cm::agent::host: return "the caller";
    case cm::agent::compute: return "compute";
    case cm::agent::to_device: return "copies up";
    case cm::agent::to_host: return "copies down";
    default: return "ranks";  // collectives, and sums with own gradients
  }
}

/// Seconds of a step by source, and the places of the longest waits.
void print_waits(const char* who, const std::vector<support::agent_wait>& waits)
{
  std::map<std::string, double> by_source;
  std::map<std::string, double> by_place;
  for (const support::agent_wait& it : waits) {
    const double seconds = static_cast<double>(it.nanoseconds) * 1e-9 / steps;
    by_source[text_of(it.source)] += seconds;
    by_place[text_of(place_in_step::of(it.place)) + " for " + text_of(it.source)] += seconds;
  }
  std::printf("    %s waits for", who);
  for (const auto& [source, seconds] : by_source) std::printf(" %s %.4f s;", source.c_str(), seconds);
  std::vector<std::pair<double, std::string>> longest;
  for (const auto& [place, seconds] : by_place) longest.emplace_back(seconds, place);
  std::ranges::sort(longest, std::greater{});
  longest.resize(std::min<std::size_t>(5, longest.size()));
  for (const auto& [seconds, place] : longest) std::printf(" %s %.4f;", place.c_str(), seconds);
  std::printf("\n");
}

/// @param bound   of the variant's plan of activations; 0: it is unknown
void print(const job& it, const variant& how, const measured& got, double bound)
{
  const auto busy = [&](cm::bytes moved) {
    return static_cast<double>(moved.count()) / it.link_bytes_per_second / got.seconds;
  };
  std::printf("  %-9s %.4f s", how.name, got.seconds);
  if (bound > 0) std::printf(", %.3f of the bound", got.seconds / bound);
  std::printf(
      " (wall %.4f s); busy: copies up %.2f, down %.2f, network %.2f; %llu divergences, %llu clean starts, "
      "%llu plans\n",
      got.wall_seconds, busy(got.up), busy(got.down), got.port_busy / got.seconds,
      static_cast<unsigned long long>(got.divergences), static_cast<unsigned long long>(got.clean_starts),
      static_cast<unsigned long long>(got.plans));
  std::fflush(stdout);
}

void print(const job& it, const cm::activation::activation_plan& plan, cm::bytes device,
           const cm::memory_requirement& need, const cm::planner::step_bound& bound)
{
  const cm::planner::step_needs needs = needs_of(it, plan, device, 0);
  std::string actions;
  for (std::uint32_t block = 0; block < it.layers.size(); ++block)
    actions += "KSRH"[static_cast<std::size_t>(plan.action_of(block))];
  std::printf(
      "job %llu: %llu tensors in %zu layers %s (K keep, S swap, R recompute, H with the input on the host), ZeRO %d, "
      "updates %s%s; device %llu "
      "frames "
      "of %llu (least %llu)\n"
      "  compute %.4f s, a gather of all %.4f s, updates %.4f s, own weights one way %.4f s, first layer's way %.4f s; "
      "bound %.4f s (%s, backward %s)\n",
      static_cast<unsigned long long>(it.seed), static_cast<unsigned long long>(it.tensors()), it.layers.size(),
      actions.c_str(), it.divided.parameters ? 3 : (it.divided.gradients ? 2 : 1),
      moment_names[static_cast<std::size_t>(it.when)], it.clips ? ", a limit on the norm" : "",
      static_cast<unsigned long long>(device.count() / frame.count()),
      static_cast<unsigned long long>(need.everything.count() / frame.count()),
      static_cast<unsigned long long>(need.smallest_device.count() / frame.count()),
      needs.forward_seconds + needs.backward_seconds, needs.gather_seconds,
      needs.parameters / it.host_updates_per_second, 2 * needs.parameters / it.link_bytes_per_second,
      needs.border_seconds, bound.seconds, name_of(bound.limit), name_of(bound.backward_limit));
}

/// The ratio of steps to that of the job as it is drawn: least, median and most.
void print_gains(const char* over, std::vector<double> all)
{
  std::ranges::sort(all);
  std::printf("%s takes %.2f to %.2f of the time, %.2f as the median\n", over, all.front(), all.back(),
              all[all.size() / 2]);
}

}  // namespace

int main(int count, char** arguments)
{
  const std::uint64_t first = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1;
  const std::uint64_t jobs = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 20;
  double worst = 0;
  std::vector<double> over_blocking;
  std::vector<double> over_swaps;
  for (std::uint64_t seed = first; seed < first + jobs; ++seed) {
    const job it = draw_job(seed, unit);
    const cm::activation::layer_chain chain = it.chain();
    const variant drawn{.name = "as drawn", .when = it.when, .plan = cm::activation::karma{}.plan(chain, it.budget())};
    const variant blocking{.name = "blocking",
                           .transfer = any_transfer{cm::transfer::no_prefetch{}},
                           .sums_in_backward = false,
                           .plan = drawn.plan};
    const variant swaps{
        .name = "swap_all", .when = it.when, .plan = cm::activation::swap_all{}.plan(chain, it.budget())};
    const cm::memory_requirement need = needed_by(it, drawn);
    const cm::bytes device =
        std::max(need.smallest_device + 2 * frame, drawn.plan.costs.device_peak + frame * it.others);
    const cm::bytes host = 2 * need.chunks + undo_of(it) + 64 * frame;
    const cm::planner::step_bound bound = bound_of(it, drawn.plan, device);
    print(it, drawn.plan, device, need, bound);
    const measured now = train(it, drawn, device, host);
    print(it, drawn, now, bound.seconds);
    print_waits("compute", now.compute_waits);
    print_waits("the caller", now.caller_waits);
    worst = std::max(worst, now.seconds / bound.seconds);
    const auto compare = [&](const variant& other, double least, std::vector<double>& over) {
      const measured then = train(it, other, device, host);
      print(it, other, then, least);
      over.push_back(then.seconds / now.seconds);
    };
    compare(blocking, bound.seconds, over_blocking);
    compare(swaps, 0, over_swaps);
  }
  if (over_blocking.empty()) return 1;  // nothing was measured
  print_gains("a blocking exchange", over_blocking);
  print_gains("swapping all activations", over_swaps);
  std::printf("the worst step takes %.3f of its bound\n", worst);
  return transfer_bench::write_figures("out_of_core_bench",
                                       {{"sharding.out_of_core_step_over_bound_worst", worst, "ratio", "<=", 1.10}});
}
