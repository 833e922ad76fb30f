// SPDX-License-Identifier: Apache-2.0
// How far is a step of the planned engine from the least time that its own decisions allow?
//
// A representative rank of each machine trains GPTs of 1B to 175B parameters on virtual clocks, by the manager and the
// optimizer steps themselves: micro-batches of 1, 4 and 16, with a global norm and without one, at least 40 own 16-bit
// chunks. States that do not fit the host are updated on the device. Also printed: busy times, and T_reach, the bound
// below every order of the same copies and updates, with the chain of constraints that makes it longer than the busiest
// part. T_reach follows from the decisions of the step: the chunks that stay, those that move, the updates of the host.
// A bad decision makes it longer. chosen_step_bench has the bound that uses no result of a run.
//
//   step_time_bench [letters of "machine model"]
//
// A part of the cases makes no figure.
#include "../step_bound/least_step.hpp"
#include "../transfer/planning_figures.hpp"
#include "machine_cases.hpp"

#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace cm = chunkmem;
using cm::planner::training_forecast;

constexpr std::uint64_t least_chunks = 40;
constexpr double bound = 1.05;

struct question {
  std::string machine;
  std::string model;
  cm::workload::transformer_shape shape;
  cm::workload::rank_share share;
  std::uint64_t micro_batch;
  bool takes_norm;
};
struct answer {
  training_forecast found;
  step_bound::least_step least;
  double device_share = 0;  // of the updates

  [[nodiscard]] double over_reachable() const
  {
    return static_cast<double>(found.step.nanoseconds) / least.nanoseconds();
  }
};

/// The device takes the least share of the updates that fits, in steps of a twentieth.
answer ask_least(const question& it, cm::planner::rank_settings settings, double share)
{
  const cm::workload::training_setup setup{.micro_batch = it.micro_batch};
  for (;; share += 0.05) {
    settings.device_update_share = std::min(1.0, share);
    const auto found = cm::planner::forecast_training(it.shape, setup, it.share, settings);
    if (found.fits)
      return {found, step_bound::find_least_step(found, it.shape, setup, it.share, settings),
              settings.device_update_share};
    if (share >= 1 || found.need.smallest_device > found.capacity[cm::tier::device])
      return {found, {}, settings.device_update_share};
  }
}

answer ask(const question& it)
{
  const std::uint64_t own = cm::workload::parameters_of(it.shape) / it.share.ranks;
  cm::planner::rank_settings settings;
  settings.chunk_elements = std::clamp(std::uint64_t{32} << 20, own / (4 * least_chunks), own / (least_chunks + 8));
  settings.takes_norm = it.takes_norm;
  settings.gather_units = 4;
  const auto capacity = cm::planner::capacities_of(it.share, settings);
  const cm::bytes states = cm::bytes{14} * own;
  if (states > capacity[cm::tier::host] + capacity[cm::tier::device]) return {};
  const bool is_tight = states > capacity[cm::tier::host];
  const double least =
      1.0 - static_cast<double>(capacity[cm::tier::host].count()) / static_cast<double>(states.count());
  // a twentieth more: a host without a spare frame leaves no choice of when copies start
  return ask_least(it, settings, is_tight ? least + 0.05 : 0.0);
}

/// Consecutive links of one kind are merged.
std::string words_of(const std::vector<step_bound::chain_link>& chain)
{
  constexpr const char* names[] = {"compute", "loads", "updates", "write-backs", "room for loads", "room for leaving"};
  std::string text;
  for (std::size_t index = 0; index < chain.size();) {
    double nanoseconds = 0;
    const auto kind = chain[index].kind;
    for (; index < chain.size() && chain[index].kind == kind; ++index) nanoseconds += chain[index].nanoseconds;
    char part[64];
    std::snprintf(part, sizeof part, "%s%s %.3f", text.empty() ? "" : " + ", names[static_cast<std::size_t>(kind)],
                  nanoseconds * 1e-9);
    text += part;
  }
  return text.empty() ? "busiest" : text;
}

void print(const question& what, const answer& it)
{
  const auto seconds = [](std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
  const auto& step = it.found.step;
  const bool is_ring_chain = static_cast<double>(it.least.ring_chain) > it.least.reachable.nanoseconds;
  std::printf("%-20s %-9s %5d %4s %6.3f | %8.3f %8.3f %6.3f | %8.3f %8.3f %8.3f %8.3f %8.3f | %s\n",
              what.machine.c_str(), what.model.c_str(), static_cast<int>(what.micro_batch),
              what.takes_norm ? "yes" : "no", it.device_share, seconds(step.nanoseconds), it.least.nanoseconds() * 1e-9,
              it.over_reachable(), seconds(step.computing), seconds(step.to_device), seconds(step.to_host),
              seconds(step.updating), seconds(step.collecting),
              it.least.nanoseconds() == it.least.host_memory ? "host memory"
              : is_ring_chain                                ? "rings and compute"
                                                             : words_of(it.least.reachable.chain).c_str());
  std::fflush(stdout);
}

/// All cases whose "machine model" contains these letters.
std::vector<question> questions(const std::string& only)
{
  std::vector<question> all;
  const auto add = [&](const std::string& machine, const char* model, const auto& shape, const auto& share) {
    for (const std::uint64_t batch : {1U, 4U, 16U})
      for (const bool norm : {false, true}) all.push_back({machine, model, shape, share, batch, norm});
  };
  bench::for_each_machine({"GPT2_1B", "GPT3_10B", "GPT3_18B", "175B"}, only, add);
  return all;
}

}  // namespace

int main(int count, char** arguments)
{
  const std::string only = count > 1 ? arguments[1] : "";
  std::printf("%-20s %-9s %5s %4s %6s | %8s %8s %6s | %8s %8s %8s %8s %8s | %s\n", "machine", "model", "batch", "norm",
              "device", "step", "T_reach", "ratio", "compute", "up", "down", "host", "rings", "chain of T_reach [s]");
  double worst = 0;
  int cases = 0;
  const std::vector<question> all = questions(only);
  for (const question& it : all) {
    const answer given = ask(it);
    if (!given.found.fits) continue;
    worst = std::max(worst, given.over_reachable());
    ++cases;
    print(it, given);
  }
  std::printf("%d cases, of which %d fit; the worst is %.3f\n", static_cast<int>(all.size()), cases, worst);
  if (cases == 0) return 1;  // nothing was measured
  if (count > 1) return 0;   // some cases make no figure
  return transfer_bench::write_figures(
      "step_time_bench", {{"transfer.step_over_bound_of_its_decisions_worst", worst, "ratio", "<=", bound}});
}
