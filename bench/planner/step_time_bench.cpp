// How far from the least time that it could take is a step of the planned engine?
//
// A representative rank of each machine trains GPTs of 1B to 175B parameters on virtual clocks, by the manager and the optimizer
// steps themselves: micro-batches of 1, 4 and 16, with a global norm and without one, at least 40 own 16-bit chunks. What does not
// fit the host is updated on the device. Beside the step: busy times, and T_reach, the bound below every order of the same copies
// and updates, with the chain of constraints that makes it longer than the busiest part.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/planner/training_forecast.hpp>
#include <chunkmem/workload/machine_file.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace cm = chunkmem;
using cm::planner::training_forecast;

constexpr const char* models[] = {"GPT2_1B", "GPT3_10B", "GPT3_18B", "175B"};
constexpr std::uint64_t least_chunks = 40;
constexpr double bound = 1.05;

struct question {
  cm::workload::transformer_shape shape;
  cm::workload::rank_share share;
  std::uint64_t micro_batch;
  bool takes_norm;
};

/// With as many updates on the device as do not fit the host.
training_forecast ask(const question& it)
{
  const std::uint64_t own = cm::workload::parameters_of(it.shape) / it.share.ranks;
  cm::planner::rank_settings settings;
  settings.chunk_elements = std::clamp(std::uint64_t{32} << 20, own / (4 * least_chunks), own / (least_chunks + 8));
  settings.takes_norm = it.takes_norm;
  settings.gather_units = 4;
  settings.finds_reachable = true;
  const auto capacity = cm::planner::capacities_of(it.share, settings);
  const double host = static_cast<double>(capacity[cm::tier::host].count());
  if (cm::bytes{14} * own > capacity[cm::tier::host] + capacity[cm::tier::device]) return {};
  double share = std::max(0.0, 1.0 - host / (14.0 * static_cast<double>(own)));
  if (share > 0) share += 0.05;  // a host without a spare frame leaves no choice when copies start
  training_forecast found;
  for (;; share += 0.05) {
    settings.device_update_share = std::min(1.0, share);
    found = cm::planner::forecast_training(it.shape, {.micro_batch = it.micro_batch}, it.share, settings);
    if (found.fits || share >= 1 || found.need.smallest_device > found.capacity[cm::tier::device]) return found;
  }
}

/// Links of one kind that follow each other are one.
std::string words_of(const std::vector<cm::transfer::chain_link>& chain)
{
  constexpr const char* names[] = {"compute", "loads", "updates", "write-backs", "room for loads", "room for leaving"};
  std::string text;
  for (std::size_t at = 0; at < chain.size();) {
    double nanoseconds = 0;
    const auto kind = chain[at].kind;
    for (; at < chain.size() && chain[at].kind == kind; ++at) nanoseconds += chain[at].nanoseconds;
    char part[64];
    std::snprintf(part, sizeof part, "%s%s %.3f", text.empty() ? "" : " + ", names[static_cast<std::size_t>(kind)], nanoseconds * 1e-9);
    text += part;
  }
  return text.empty() ? "busiest" : text;
}

}  // namespace

int main(int count, char** arguments)
{
  const std::string only = count > 1 ? arguments[1] : "";
  std::vector<std::filesystem::path> files;
  for (const auto& it : std::filesystem::directory_iterator{CHUNKMEM_MACHINES}) files.push_back(it.path());
  std::ranges::sort(files);
  std::printf("%-20s %-9s %5s %4s | %8s %8s %6s | %8s %8s %8s %8s %8s | %s\n", "machine", "model", "batch", "norm", "step", "T_reach",
              "ratio", "compute", "up", "down", "host", "rings", "chain of T_reach [s]");
  double worst = 0;
  int cases = 0;
  for (const auto& file : files)
    for (const char* model : models)
      for (const std::uint64_t batch : {1U, 4U, 16U})
        for (const bool norm : {false, true}) {
          const std::string name = file.stem().string() + " " + model;
          if (name.find(only) == std::string::npos) continue;
          const auto machine = cm::workload::read_machine(file.string());
          const auto found = ask({cm::workload::shape_of("PatrickStar", model), cm::workload::share_of_rank(machine), batch, norm});
          if (!found.fits) continue;
          const auto& step = found.step;
          const double ratio = static_cast<double>(step.nanoseconds) / found.least_nanoseconds();
          worst = std::max(worst, ratio);
          ++cases;
          const auto seconds = [](std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
          std::printf("%-20s %-9s %5d %4s | %8.3f %8.3f %6.3f | %8.3f %8.3f %8.3f %8.3f %8.3f | %s\n", file.stem().c_str(), model,
                      static_cast<int>(batch), norm ? "yes" : "no", seconds(step.nanoseconds), found.least_nanoseconds() * 1e-9, ratio,
                      seconds(step.computing), seconds(step.to_device), seconds(step.to_host), seconds(step.updating),
                      seconds(step.collecting), (seconds(found.ring_chain) > found.reachable.nanoseconds * 1e-9 ? "rings and compute" : words_of(found.reachable.chain)).c_str());
          std::fflush(stdout);
        }
  std::printf("%d cases that fit; the worst is %.3f\n", cases, worst);
  if (cases == 0) return 1;  // nothing was shown
  if (!only.empty()) return 0;  // some cases make no figure
  return transfer_bench::write_figures("step_time_bench", {{"transfer.step_over_reachable_worst", worst, "ratio", "<=", bound}});
}
