// SPDX-License-Identifier: Apache-2.0
// What does a plan of activations gain in the one budget of weights, states and activations?
//
// A representative rank of each machine trains a transformer on virtual clocks, by the manager itself. Two ways are
// compared: every layer keeps its input on the device and runs forward again, as in activation::recompute_all; and the
// choice of planner::plan_activations. Both have the same chunks, and the same share of updates on the device: the
// least one for which the host has room, and some more. A size fits the choice if it fits with each layer recomputed,
// with inputs that may move to the host or with inputs that stay: the choice tries both. Measured are, for
// micro-batches of 4 and 16, the most layers that fit; for the published number of layers, or 60 % of the most layers,
// the largest micro-batch that fits; at the largest micro-batch of the first kind, and at a quarter of it, both steps
// and the bound of all decisions.
//
//   joint_activations_bench [letters of a machine]
//
// A part of the cases makes no figure.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/planner/joint_step_bound.hpp>
#include <chunkmem/planner/plan_activations.hpp>
#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace cm = chunkmem;
using namespace chunkmem::planner;

struct question {
  const char* machine;
  const char* model;
};
constexpr question questions[] = {
    {"v100_32_node", "GPT3_18B"}, {"a100_40_node", "GPT3_18B"},   {"a100_80_node", "DS_68B"},
    {"h100_node", "DS_68B"},      {"h200_node", "DS_68B"},        {"gh200", "DS_20B"},
    {"rtx_4090", "GPT3_10B"},     {"a100_40_four_nodes", "175B"}, {"a100_80_four_nodes", "175B"}};

/// A model on a rank.
struct job {
  cm::workload::transformer_shape shape;
  cm::workload::rank_share share;
  std::uint64_t micro_batch = 1;

  [[nodiscard]] cm::workload::training_setup setup() const { return {.micro_batch = micro_batch}; }
  [[nodiscard]] job with_layers(std::uint64_t layers) const
  {
    job made = *this;
    made.shape.layers = layers;
    return made;
  }
  [[nodiscard]] job with_batch(std::uint64_t rows) const
  {
    job made = *this;
    made.micro_batch = rows;
    return made;
  }
  [[nodiscard]] double own_parameters() const
  {
    return static_cast<double>(cm::workload::parameters_of(shape)) / static_cast<double>(share.ranks);
  }
};

/// The settings of a simulation. @param margin   share of the updates on the device beyond the least one
rank_settings settings_of(const job& what, double margin)
{
  constexpr double most_chunks = 400;
  constexpr double bytes_each = 14;
  const std::uint64_t parts = std::max<std::uint64_t>(4, what.share.ranks);
  rank_settings made;
  made.known = known_before::profile;
  made.chunk_elements = std::max(4 * what.shape.hidden * what.shape.hidden / parts,
                                 static_cast<std::uint64_t>(what.own_parameters() / most_chunks));
  const auto host = static_cast<double>(capacities_of(what.share, made)[cm::tier::host].count());
  const double least = 1 - host / (bytes_each * what.own_parameters());
  made.device_update_share = std::clamp(least + margin, 0.0, 1.0);
  return made;
}
constexpr double margins[] = {0.02, 0.15};

/// The step with each layer recomputed; the fastest of the margins. @param moves   the inputs may move to the host
std::optional<double> recomputed_step(const job& what, bool moves = false)
{
  std::optional<double> best;
  for (const double margin : margins) {
    const training_forecast found = forecast_training(what.shape, what.setup(), what.share, settings_of(what, margin),
                                                      layer_activations::all(what.shape.layers, true, moves));
    if (found.fits) best = std::min(best.value_or(1e300), static_cast<double>(found.step.nanoseconds) * 1e-9);
  }
  return best;
}
/// The same with plan_activations. @param only_fits   the first plan that fits is enough
std::optional<double> planned_step(const job& what, bool only_fits)
{
  std::optional<double> best;
  const auto consider = [&](bool fits, std::uint64_t nanoseconds) {
    if (fits) best = std::min(best.value_or(1e300), static_cast<double>(nanoseconds) * 1e-9);
  };
  for (const double margin : margins) {
    if (only_fits && best) break;
    const rank_settings settings = settings_of(what, margin);
    if (!only_fits) {
      const activation_choice found = plan_activations(what.shape, what.setup(), what.share, settings);
      consider(found.fits, found.forecast.step.nanoseconds);
      continue;
    }
    for (const bool moves : {true, false}) {  // the first two candidates of plan_activations
      const training_forecast found = forecast_training(what.shape, what.setup(), what.share, settings,
                                                        layer_activations::all(what.shape.layers, true, moves));
      consider(found.fits, found.step.nanoseconds);
    }
  }
  return best;
}

/// The largest number for which `fits`, 0 where 1 is too many.
template <class Fits>
std::uint64_t largest(std::uint64_t guess, const Fits& fits)
{
  std::uint64_t good = 0;
  std::uint64_t bad = std::max<std::uint64_t>(guess, 1);
  while (bad < (std::uint64_t{1} << 20) && fits(bad)) good = bad, bad *= 2;
  while (bad - good > 1) {
    const std::uint64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

/// The least and the worst of all machines.
struct summary {
  double model = std::numeric_limits<double>::infinity();
  double batch = std::numeric_limits<double>::infinity();
  double step = 0;
  std::vector<double> over_bound;
};

double ratio(std::uint64_t planned, std::uint64_t recomputed)
{
  return recomputed == 0 ? std::numeric_limits<double>::infinity()
                         : static_cast<double>(planned) / static_cast<double>(recomputed);
}

void compare_models(const job& what, std::uint64_t guess, summary& all)
{
  const auto fits = [&](bool planned, std::uint64_t layers) {
    const job it = what.with_layers(layers);
    return planned ? planned_step(it, true).has_value() : recomputed_step(it).has_value();
  };
  const std::uint64_t again = largest(guess, [&](std::uint64_t layers) { return fits(false, layers); });
  const std::uint64_t planned =
      largest(std::max(again, guess), [&](std::uint64_t layers) { return fits(true, layers); });
  std::printf("  micro-batch %2llu: %llu layers computed again, %llu planned: %.3f\n",
              static_cast<unsigned long long>(what.micro_batch), static_cast<unsigned long long>(again),
              static_cast<unsigned long long>(planned), ratio(planned, again));
  std::fflush(stdout);
  all.model = std::min(all.model, ratio(planned, again));
}

void compare_step(const job& it, summary& all)
{
  const double before = *recomputed_step(it);
  const double moving = recomputed_step(it, true).value_or(std::numeric_limits<double>::infinity());
  const double after = *planned_step(it, false);
  const joint_step_bound bound = joint_step_bound_of(it.shape, it.setup(), it.share, settings_of(it, 0));
  std::printf(
      "  micro-batch %llu: a step takes %.3f s computed again, %.3f s with inputs that move, %.3f s planned: %.3f; "
      "%.3f of the bound, whose best is %llu layers again\n",
      static_cast<unsigned long long>(it.micro_batch), before, moving, after, after / before,
      after / bound.step.seconds, static_cast<unsigned long long>(bound.recomputed));
  std::fflush(stdout);
  all.step = std::max(all.step, after / before);
  all.over_bound.push_back(after / bound.step.seconds);
}

void compare_steps(const job& what, summary& all)
{
  const std::uint64_t again =
      largest(4, [&](std::uint64_t rows) { return recomputed_step(what.with_batch(rows)).has_value(); });
  const std::uint64_t planned = largest(std::max<std::uint64_t>(again, 4), [&](std::uint64_t rows) {
    return planned_step(what.with_batch(rows), true).has_value();
  });
  std::printf("  %llu layers: micro-batch %llu computed again, %llu planned: %.3f\n",
              static_cast<unsigned long long>(what.shape.layers), static_cast<unsigned long long>(again),
              static_cast<unsigned long long>(planned), ratio(planned, again));
  all.batch = std::min(all.batch, ratio(planned, again));
  if (again == 0) return;
  for (const std::uint64_t rows : {again, std::max<std::uint64_t>(again / 4, 1)})
    compare_step(what.with_batch(rows), all);
}

void ask(const question& what, summary& all)
{
  job it;
  it.shape = cm::workload::shape_of("PatrickStar", what.model);
  it.share = cm::workload::share_of_rank(
      cm::workload::read_machine(std::string{CHUNKMEM_MACHINES} + "/" + what.machine + ".json"));
  std::printf("%s, layers of %s\n", what.machine, what.model);
  const std::uint64_t published = it.shape.layers;
  compare_models(it.with_batch(4), published, all);
  compare_models(it.with_batch(16), published, all);
  const std::uint64_t most = largest(published, [&](std::uint64_t layers) {
    return recomputed_step(it.with_layers(layers).with_batch(4)).has_value();
  });
  compare_steps(it.with_layers(std::max<std::uint64_t>(std::min(published, most * 6 / 10), 1)), all);
}

}  // namespace

int main(int argc, char** argv)
{
  summary all;
  bool is_whole = true;
  for (const question& what : questions) {
    if (argc > 1 && std::string_view{what.machine}.find(argv[1]) == std::string_view::npos)
      is_whole = false;
    else
      ask(what, all);
  }
  if (all.over_bound.empty()) return 1;
  std::ranges::sort(all.over_bound);
  const double median = all.over_bound[all.over_bound.size() / 2];
  std::printf(
      "largest model at least %.3f of the one whose layers are computed again, largest batch %.3f; step at most "
      "%.3f; over the bound %.3f as the median, %.3f as the worst\n",
      all.model, all.batch, all.step, median, all.over_bound.back());
  if (!is_whole) return 0;
  return transfer_bench::write_figures(
      "joint_activations_bench",
      {{"activation.joint_largest_model_over_recompute_least", all.model, "ratio", ">=", 1.0},
       {"activation.joint_largest_batch_over_recompute_least", all.batch, "ratio", ">=", 1.0},
       {"activation.joint_step_over_recompute_worst", all.step, "ratio", "<=", 1.0},
       {"activation.joint_step_over_free_bound_median", median, "ratio", "<=", 1.05}});
}
