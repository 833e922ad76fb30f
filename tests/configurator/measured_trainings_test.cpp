// SPDX-License-Identifier: Apache-2.0
// Predicted steps against steps that others measured.
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>

#include "amp_rules.hpp"
#include "amp_trainings.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace measured_trainings_test {

using namespace amp_trainings;

namespace {

std::string measured(const std::string& file)
{
  return std::string{CHUNKMEM_SOURCE_DIR} + "/tests/configurator/measured/" + file;
}

/// The place of each number in their order; equal ones share the mean of their places.
std::vector<double> ranks_of(const std::vector<double>& numbers)
{
  std::vector<double> ranks;
  for (const double it : numbers) {
    const auto below = std::ranges::count_if(numbers, [&](double other) { return other < it; });
    const auto equal = std::ranges::count(numbers, it);
    ranks.push_back(static_cast<double>(below) + (static_cast<double>(equal) - 1) / 2);
  }
  return ranks;
}

double spearman(const std::vector<double>& left, const std::vector<double>& right)
{
  const std::vector<double> one = ranks_of(left), other = ranks_of(right);
  const double mean = (static_cast<double>(left.size()) - 1) / 2;
  double both = 0, of_one = 0, of_other = 0;
  for (std::size_t it = 0; it < one.size(); ++it) {
    both += (one[it] - mean) * (other[it] - mean);
    of_one += (one[it] - mean) * (one[it] - mean);
    of_other += (other[it] - mean) * (other[it] - mean);
  }
  return both / std::sqrt(of_one * of_other);
}

double median(std::vector<double> numbers)
{
  std::ranges::sort(numbers);
  const std::size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

/// How good predictions are, over trainings that ran.
struct quality {
  double correlation = 0;
  double first_over_best = 0;        ///< measured seconds of the plan that is predicted to be the fastest
  double best_of_two_over_best = 0;  ///< of the two that are
  double median_log_error = 0;
  double median_ratio = 0;  ///< predicted over measured
};

quality judge(const std::vector<double>& predicted, const std::vector<double>& seconds)
{
  std::vector<std::size_t> order(predicted.size());
  for (std::size_t it = 0; it < order.size(); ++it) order[it] = it;
  std::ranges::stable_sort(order, {}, [&](std::size_t it) { return predicted[it]; });
  const double best = std::ranges::min(seconds);
  std::vector<double> errors, ratios;
  for (std::size_t it = 0; it < predicted.size(); ++it) {
    errors.push_back(std::abs(std::log(predicted[it] / seconds[it])));
    ratios.push_back(predicted[it] / seconds[it]);
  }
  return {spearman(predicted, seconds), seconds[order[0]] / best, std::min(seconds[order[0]], seconds[order[1]]) / best,
          median(errors), median(ratios)};
}

struct prediction_of {
  explicit prediction_of(const switches& with) : rules{with}
  {
    const std::vector<node_rules> nodes(amp_rules::nodes, t4_node());
    whole = cluster_of(nodes, rules);
    std::vector<forward_seconds> times;
    for (const std::uint32_t tensor : {1U, 2U, 4U})
      times.push_back(
          {"t4", tensor, read_forward_seconds(measured("amp_profile_t4_" + std::to_string(tensor) + ".csv"))});
    if (rules.profile)
      model = trained_model{profile_of(times, rules), traits(rules)};
    else
      model = trained_model{gpt2_shape(), traits(rules)};
  }

  [[nodiscard]] double seconds(const measured_training& it) const
  {
    return step_latency{whole, model}.of(plan_of(it, rules)).step;
  }
  /// Bytes of the stage that needs most, without a copy to the host.
  [[nodiscard]] double bytes_of_device(const measured_training& it) const
  {
    const parallel_plan plan = plan_of(it, rules);
    const planned_work work = work_of(model, plan, step_latency{whole, model}.typical_seconds(plan));
    double most = 0;
    for (const stage_memory& stage : prove_memory(whole, work).stages)
      most = std::max(most, static_cast<double>(stage.everything.count()));
    return most;
  }

  switches rules;
  cluster whole{.name = {}, .nodes{}};
  trained_model model{gpt2_shape()};
};

quality quality_of(const std::vector<measured_training>& rows, const switches& rules)
{
  const prediction_of of{rules};
  std::vector<double> predicted, seconds;
  for (const measured_training& it : rows)
    if (!it.failed()) {
      predicted.push_back(of.seconds(it));
      seconds.push_back(it.seconds);
    }
  return judge(predicted, seconds);
}

void print(const char* what, const quality& it)
{
  std::printf("%-34s %9.3f %13.3f %13.3f %9.3f %9.3f\n", what, it.correlation, it.first_over_best,
              it.best_of_two_over_best, it.median_log_error, it.median_ratio);
}

void write_figures(const quality& it)
{
  support::write_figures("test_configurator.measured", "build/bench/bin/test_configurator.measured",
                         {{"plan.measured_spearman", it.correlation, "correlation", ">=", 0.94},
                          {"plan.best_of_first_two_over_measured_best", it.best_of_two_over_best, "ratio", "<=", 1.05},
                          {"plan.median_log_error", it.median_log_error, "", "<=", 0.25}});
}

}  // namespace

TEST_CASE("predicted steps of AMP's trainings are in the measured order", "[configurator]")
{
  const std::vector<measured_training> rows = read_trainings(measured("amp_homogeneous.csv"));
  REQUIRE(rows.size() == 52);
  const prediction_of usual{{}};
  const prediction_of single{{.halves = false}};
  std::printf(
      "cut, micro-batch, tensor x replicas x stages: measured, predicted [s], predicted over measured, and both "
      "of float32 throughout\n");
  for (const measured_training& it : rows) {
    const double predicted = usual.seconds(it), of_single = single.seconds(it);
    std::string cut;
    for (const std::uint64_t first : it.cut) cut += std::to_string(first) + ' ';
    std::printf("%-48s %3llu  %u x %2u x %2u  %8.3f %8.3f %7.3f %8.3f %7.3f\n", cut.c_str(),
                static_cast<unsigned long long>(it.micro_batch), it.tensor, it.replicas, it.stages, it.seconds,
                predicted, it.failed() ? 0 : predicted / it.seconds, of_single,
                it.failed() ? 0 : of_single / it.seconds);
  }
  std::printf("%-34s %9s %13s %13s %9s %9s\n", "", "spearman", "first/best", "of two/best", "log error", "ratio");
  const quality found = quality_of(rows, {});
  print("all rules", found);
  print("without the profile", quality_of(rows, {.profile = false}));
  print("without cuts", quality_of(rows, {.cuts = false}));
  print("sums not split (version 1)", quality_of(rows, {.splits_sums = false}));
  print("sums over shared layers added", quality_of(rows, {.sums_are_measured = false}));
  print("ports not shared", quality_of(rows, {.ports = false}));
  print("no latency", quality_of(rows, {.latency = false}));
  print("no tie", quality_of(rows, {.tie = false}));
  print("gradients of 2 bytes", quality_of(rows, {.wide_sums = false}));
  print("float32 throughout (version 2)", quality_of(rows, {.halves = false}));
  print("no updates", quality_of(rows, {.updates = false}));
  print("sums under backward runs", quality_of(rows, {.hides_sums = true}));
  write_figures(found);
  CHECK(found.correlation >= 0.94);
  CHECK(found.first_over_best <= 1.1 * (1 + 1e-12));
}

TEST_CASE("trainings of AMP that failed are among those that need most bytes", "[configurator]")
{
  for (const bool halves : {true, false}) {
    const prediction_of usual{{.halves = halves}};
    std::vector<double> failed, ran;
    for (const measured_training& it : read_trainings(measured("amp_homogeneous.csv")))
      (it.failed() ? failed : ran).push_back(usual.bytes_of_device(it));
    double above = 0;
    for (const double of_failed : failed)
      for (const double of_ran : ran) above += of_failed > of_ran ? 1 : of_failed == of_ran ? 0.5 : 0;
    const double area = above / static_cast<double>(failed.size() * ran.size());
    const auto over_device = [](const std::vector<double>& of) {
      return std::ranges::count_if(of, [](double it) { return it > static_cast<double>(amp_rules::t4_bytes); });
    };
    std::printf(
        "%s: AUC of bytes of failed rows %.3f; above %.2f GB of a T4: %d of %zu that failed, %d of %zu that ran\n",
        halves ? "all rules" : "float32 throughout", area, static_cast<double>(amp_rules::t4_bytes) / 1e9,
        static_cast<int>(over_device(failed)), failed.size(), static_cast<int>(over_device(ran)), ran.size());
    std::printf("bytes of failed rows:");
    std::ranges::sort(failed);
    std::ranges::sort(ran);
    for (const double it : failed) std::printf(" %.2f", it / 1e9);
    std::printf(" GB; largest that ran:");
    for (std::size_t it = ran.size() - std::min<std::size_t>(8, ran.size()); it < ran.size(); ++it)
      std::printf(" %.2f", ran[it] / 1e9);
    std::printf(" GB\n");
    CHECK(area >= 0.9);
    CHECK((over_device(ran) == 0) == halves);  // numbers of 4 bytes would not have fitted where they ran
  }
}

TEST_CASE("AMP's trainings can be described for nodes that differ, each with its own times", "[configurator]")
{
  std::vector<forward_seconds> times{{"t4", 1, read_forward_seconds(measured("amp_profile_t4_1.csv"))}};
  times.push_back(times.front());
  times.back().kind = "v100";
  for (double& it : times.back().of_parts) it /= 3;
  const trained_model model{profile_of(times), traits()};
  const auto step = [&](const std::vector<node_rules>& nodes) {
    const cluster whole = cluster_of(nodes);
    return step_latency{whole, model}
        .of(plan_of({.cut = {0, 9, 15, 21, 30}, .micro_batch = 1, .replicas = 4, .stages = 4}))
        .step;
  };
  const double mixed = step({v100_node(), v100_node(), v100_node(), t4_node()});
  CHECK(mixed < step(std::vector<node_rules>(4, t4_node())));
  CHECK(mixed > step(std::vector<node_rules>(4, v100_node())));
  const cluster whole = cluster_of(std::vector<node_rules>{v100_node(), t4_node()});
  CHECK(whole.link(0, 1).bytes_per_second == 10e9 / 8);
  CHECK(whole.link(1, 1).bytes_per_second == 50e9 / 8);
}

}  // namespace measured_trainings_test
