// SPDX-License-Identifier: Apache-2.0
// How does a step over 1 to 1,024 ranks compare with the least possible time, and with other ways to exchange chunks?
//
// A representative rank of DGX A100-80 nodes trains GPTs of 10B and 175B parameters on virtual clocks, by the manager
// and the optimizer steps themselves; collectives have the costs of collective::network_costs, by node, with NCCL's
// latencies. Every rank has an eighth of a node's host and the same micro-batch, for any number of ranks: weak scaling.
//
// First table: the step of the plan that plan_memory chooses over planner::step_bound, which uses no result of a run,
// at 8, 64 and 1,024 ranks, with `sharded`, for micro-batches of 1, 4 and 16, with and without a global norm, for two
// networks. All cases that fit count.
//
// Second table: seconds for a step, by scheme, all with the same manager, eviction and planned transfers. Broadcasts
// use the network of all devices of a node. For the last three schemes chunks are shared in another way than in the
// originals: here each rank owns a shard of every chunk, there whole chunks in turn.
//   sharded   48, 96 or 192 groups, gathered ahead into room for 4, 8 or 16: the fastest of these
//   groups    PatrickStar: a chunk for the largest matrix, as many in a group as ranks, gathered when it is used, room
//             for one
//   alone     its memory-saving mode: one such chunk at a time, broadcast by its owner when it is used
//   tensors   ZeRO-3 as it began: each tensor of a layer broadcast by its owner, layers up to two ahead
//
//   weak_scaling_bench [figures | table] [ranks]
#include "../transfer/planning_figures.hpp"

#include <chunkmem/planner/plan_memory.hpp>
#include <chunkmem/planner/step_bound.hpp>
#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

namespace cm = chunkmem;
using cm::planner::group_exchange;
using cm::planner::group_times;
using cm::planner::training_forecast;

constexpr double bound = 1.05;
constexpr double dgx_network = 25e9;     // eight ports of 200 Gb/s for eight devices
constexpr double thin_network = 6.25e9;  // two ports

enum class scheme : std::uint8_t { sharded, groups, alone, tensors };
constexpr const char* scheme_names[] = {"sharded", "groups", "alone", "tensors"};

struct question {
  const char* model;
  std::uint64_t ranks;
  std::uint64_t micro_batch;
  bool takes_norm = false;
  double network = dgx_network;
  scheme how = scheme::sharded;
  std::uint64_t groups = 48;  ///< of the model, under `sharded`
  std::uint32_t units = 4;    ///< gathered groups that there is room for
};

cm::workload::rank_share share_of(const question& it)
{
  static const cm::workload::machine dgx = cm::workload::read_machine(CHUNKMEM_MACHINES "/a100_80_four_nodes.json");
  cm::workload::rank_share share = cm::workload::share_of_rank(dgx);
  share.ranks = it.ranks;
  share.of_node = static_cast<std::uint32_t>(std::min<std::uint64_t>(it.ranks, dgx.devices));
  share.rates.network_bytes_per_second = it.network;
  return share;
}

group_times times_of(const question& it, const cm::workload::rank_share& share, std::uint64_t width)
{
  group_times times{{.of_node = share.of_node,
                     .nodes = static_cast<std::uint32_t>(share.ranks / share.of_node),
                     .peer_bytes_per_second = share.rates.peer_bytes_per_second,
                     .network_bytes_per_second = it.network}};
  if (it.how == scheme::alone || it.how == scheme::tensors) {
    times.how = group_exchange::broadcasts;  // over all devices of a node, like several rings of NCCL
    times.network.network_bytes_per_second = std::min(it.network * share.of_node, share.rates.peer_bytes_per_second);
  }
  if (it.how == scheme::tensors)  // of a layer: matrices, their biases, two norms with a gain and a bias each
    for (const std::uint64_t elements : {3 * width * width, width * width, 4 * width * width, 4 * width * width,
                                         3 * width, width, 4 * width, width, width, width, width, width})
      times.pieces.push_back(cm::bytes{2 * elements});
  return times;
}

cm::planner::rank_settings settings_of(const question& it, const cm::workload::rank_share& share,
                                       const cm::workload::transformer_shape& shape)
{
  const std::uint64_t own = cm::workload::parameters_of(shape) / it.ranks;
  const std::uint64_t width = shape.hidden;
  cm::planner::rank_settings settings;
  settings.takes_norm = it.takes_norm;
  settings.gathers_ahead = cm::most_gather_units;
  settings.exchange = times_of(it, share, width);
  settings.known = cm::planner::known_before::profile;
  switch (it.how) {
    case scheme::sharded:
      settings.gather_units = it.units;
      settings.chunk_elements = std::max<std::uint64_t>(1, own / it.groups);
      break;
    case scheme::groups:
      settings.gather_units = 1;
      settings.chunk_elements = 4 * width * width;
      break;
    case scheme::alone:
      settings.gather_units = 1;
      settings.chunk_elements = std::max<std::uint64_t>(1, 4 * width * width / it.ranks);
      break;
    case scheme::tensors:
      settings.gather_units = 3;
      settings.chunk_elements = std::max<std::uint64_t>(1, (12 * width * width + 13 * width) / it.ranks);
      break;
  }
  return settings;
}

training_forecast ask(const question& it);

/// With `sharded` the groups and their room are free choices: the fastest of a few, as a plan would choose.
training_forecast ask_best(question it)
{
  if (it.how != scheme::sharded) return ask(it);
  training_forecast best;
  for (const std::uint64_t groups : {48U, 96U, 192U})
    for (const std::uint32_t units : {4U, 8U, 16U}) {
      it.groups = groups;
      it.units = units;
      training_forecast given = ask(it);
      if (given.fits && (!best.fits || given.step.nanoseconds < best.step.nanoseconds)) best = std::move(given);
    }
  return best;
}

/// With the least share of updates on the device that fits, and a twentieth more where the host is too small for all
/// states.
training_forecast ask(const question& it)
{
  const auto shape = cm::workload::shape_of("PatrickStar", it.model);
  const auto share = share_of(it);
  auto settings = settings_of(it, share, shape);
  const auto capacity = cm::planner::capacities_of(share, settings);
  const double states = 14.0 * static_cast<double>(cm::workload::parameters_of(shape)) / static_cast<double>(it.ranks);
  const double host = static_cast<double>(capacity[cm::tier::host].count());
  if (states > host + static_cast<double>(capacity[cm::tier::device].count())) return {};
  double on_device = states > host ? 1.05 - host / states : 0.0;
  for (;; on_device += 0.1) {
    settings.device_update_share = std::min(1.0, on_device);
    auto found = cm::planner::forecast_training(shape, {.micro_batch = it.micro_batch}, share, settings);
    if (found.fits || on_device >= 1) return found;
  }
}

/// A case of the first table, with a fixed name: figures of other dates are of the same 24 cases.
struct named_case {
  const char* name;
  const char* model;
  double network;
  std::uint64_t batch;
  bool takes_norm;
};
constexpr named_case cases[] = {
    {"10b_dgx_1_free", "GPT3_10B", dgx_network, 1, false},     {"10b_dgx_1_norm", "GPT3_10B", dgx_network, 1, true},
    {"10b_dgx_4_free", "GPT3_10B", dgx_network, 4, false},     {"10b_dgx_4_norm", "GPT3_10B", dgx_network, 4, true},
    {"10b_dgx_16_free", "GPT3_10B", dgx_network, 16, false},   {"10b_dgx_16_norm", "GPT3_10B", dgx_network, 16, true},
    {"10b_thin_1_free", "GPT3_10B", thin_network, 1, false},   {"10b_thin_1_norm", "GPT3_10B", thin_network, 1, true},
    {"10b_thin_4_free", "GPT3_10B", thin_network, 4, false},   {"10b_thin_4_norm", "GPT3_10B", thin_network, 4, true},
    {"10b_thin_16_free", "GPT3_10B", thin_network, 16, false}, {"10b_thin_16_norm", "GPT3_10B", thin_network, 16, true},
    {"175b_dgx_1_free", "175B", dgx_network, 1, false},        {"175b_dgx_1_norm", "175B", dgx_network, 1, true},
    {"175b_dgx_4_free", "175B", dgx_network, 4, false},        {"175b_dgx_4_norm", "175B", dgx_network, 4, true},
    {"175b_dgx_16_free", "175B", dgx_network, 16, false},      {"175b_dgx_16_norm", "175B", dgx_network, 16, true},
    {"175b_thin_1_free", "175B", thin_network, 1, false},      {"175b_thin_1_norm", "175B", thin_network, 1, true},
    {"175b_thin_4_free", "175B", thin_network, 4, false},      {"175b_thin_4_norm", "175B", thin_network, 4, true},
    {"175b_thin_16_free", "175B", thin_network, 16, false},    {"175b_thin_16_norm", "175B", thin_network, 16, true}};

/// The plan that plan_memory chooses over the free bound, for each case that fits. @return   the worst ratio
double print_ratios(std::uint64_t ranks)
{
  double worst = 0;
  const char* worst_case = "none";
  int fit = 0;
  for (const named_case& it : cases) {
    const question asked{it.model, ranks, it.batch, it.takes_norm, it.network};
    const auto shape = cm::workload::shape_of("PatrickStar", it.model);
    const auto share = share_of(asked);
    const auto settings = settings_of(asked, share, shape);
    const cm::workload::training_setup setup{.micro_batch = it.batch};
    const auto chosen = cm::planner::plan_memory(shape, setup, share, settings);
    if (!chosen.fits) continue;
    const cm::planner::step_bound least = cm::planner::step_bound_of(shape, setup, share, settings);
    const double step = static_cast<double>(chosen.plan.step_nanoseconds) * 1e-9;
    ++fit;
    if (step / least.seconds > worst) worst = step / least.seconds, worst_case = it.name;
    const auto seconds = [](std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
    std::printf(
        "%-17s %5d ranks: step %8.3f s, bound %8.3f s (%s), %.3f; compute %8.3f, collectives %8.3f, host %8.3f; share "
        "%.3f, room for %u groups of %.2f MiB, %u of them gathered by the step before\n",
        it.name, static_cast<int>(ranks), step, least.seconds, name_of(least.limit), step / least.seconds,
        seconds(chosen.forecast.step.computing), seconds(chosen.forecast.step.collecting),
        seconds(chosen.forecast.step.updating), chosen.plan.device_update_share, chosen.plan.gather_units,
        static_cast<double>(chosen.plan.chunk_bytes.count()) * static_cast<double>(ranks) / 1048576,
        chosen.forecast.gathers_ahead);
    std::fflush(stdout);
  }
  std::printf("%d ranks: %d cases fit, the worst is %.3f: %s\n\n", static_cast<int>(ranks), fit, worst, worst_case);
  return worst;
}

void print_table(const char* model, std::uint64_t batch)
{
  std::printf("%s, micro-batch %d for each rank, %g GB/s between nodes for each device\n\n| ranks |", model,
              static_cast<int>(batch), dgx_network * 1e-9);
  for (const char* name : scheme_names) std::printf(" %s [s] |", name);
  std::printf(" sharded: collectives busy |\n|---|---|---|---|---|---|\n");
  for (std::uint64_t ranks = 1; ranks <= 1024; ranks *= 2) {
    std::printf("| %d |", static_cast<int>(ranks));
    double busy = -1;
    for (const scheme how : {scheme::sharded, scheme::groups, scheme::alone, scheme::tensors}) {
      const training_forecast found = ask_best({.model = model, .ranks = ranks, .micro_batch = batch, .how = how});
      found.fits ? std::printf(" %.2f |", static_cast<double>(found.step.nanoseconds) * 1e-9)
                 : std::printf(" does not fit |");
      std::fflush(stdout);
      if (found.fits && how == scheme::sharded)
        busy = static_cast<double>(found.step.collecting) / static_cast<double>(found.step.nanoseconds);
    }
    busy < 0 ? std::printf(" |\n") : std::printf(" %.0f %% |\n", 100 * busy);
  }
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments)
{
  const std::string only = count > 1 ? arguments[1] : "";
  if (only != "figures") {
    print_table("GPT3_10B", 8);
    print_table("175B", 4);
  }
  if (only == "table") return 0;
  const std::uint64_t only_ranks = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
  std::vector<transfer_bench::figure> figures;
  for (const std::uint64_t ranks : {8U, 64U, 1024U}) {
    if (only_ranks != 0 && only_ranks != ranks) continue;
    figures.push_back({"sharding.strict_step_over_bound_" + std::to_string(ranks) + "_ranks", print_ratios(ranks),
                       "ratio", "<=", bound});
    if (figures.back().value == 0) return 1;  // nothing was measured
  }
  return transfer_bench::write_figures("weak_scaling_bench", figures);
}
