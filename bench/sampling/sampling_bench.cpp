// SPDX-License-Identifier: Apache-2.0
// Is the estimate of a weight gradient from sampled rows biased, and how large is its variance?
//
// 100 cases: shapes, ratios, distributions of norms, norms that are exact, old, missing, or known for half of the rows.
// Each case has so many trials that a bias along the gradient of a hundredth of it is 8 deviations of their mean. Means
// are compared with the right value along 16 fixed random directions and along the gradient. Wrong estimates go through
// the same test. Then the mean square of the distance from the gradient, over its closed form.
#include "../transfer/planning_figures.hpp"

#include <support/sampling_study.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace {

using namespace support::sampling;

/// Closed forms at many ratios, for tools/plot_sampling.py: the variance over that of a smaller batch of as many rows.
int write_variances(const char* path)
{
  std::ofstream out{path};
  out << "distribution,ratio,variance\n";
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    for (int twentieths = 1; twentieths < 20; ++twentieths) {
      const double ratio = twentieths / 20.0;
      const study_case one = variance_case(kind, ratio);
      const std::vector<double> gram = one.of.gram();
      const double other = support::row_sampling::smaller_batch_variance(one.kept, one.of.rows, gram);
      if (!(other > 0)) continue;
      const auto by = support::row_sampling::divide(one.weights, one.kept);
      out << one.kind << ',' << ratio << ',' << support::row_sampling::variance_of(by, gram) / other << '\n';
    }
  return out.flush() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

/// Given the name of a file, writes only that file.
int main(int count, char** arguments)
{
  if (count > 1) return write_variances(arguments[1]);
  bias_summary bias;
  for (std::uint64_t number = 0; number < 100; ++number) add_case(bias, number, 0.01, 2'000, 0.01);
  std::printf(
      "largest distance of a mean in 1,700: %.2f deviations (a right estimate is above %.1f in 0.3 %% of runs)\n",
      bias.worst_z, threshold);
  for (std::size_t way = 0; way < wrong_ways.size(); ++way)
    std::printf("wrong, \"%s\": found in %llu cases\n", wrong_ways[way].data(),
                static_cast<unsigned long long>(bias.found_of[way]));
  std::printf("wrong estimates that are off by a hundredth or more: %llu, found: %llu\n",
              static_cast<unsigned long long>(bias.wrong), static_cast<unsigned long long>(bias.found));
  double worst = 0;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    for (const double ratio : {0.1, 0.3, 0.6, 0.9}) {
      const study_case one = variance_case(kind, ratio);
      const auto by = support::row_sampling::divide(one.weights, one.kept);
      const std::vector<double> gram = one.of.gram(), alike(one.of.rows, 1.0);
      const double closed = support::row_sampling::variance_of(by, gram);
      // a variance of 0: every row that counts is kept
      const auto over = [&](double other) { return other > 0 ? closed / other : 1; };
      const auto plain = [&](const std::vector<double>& weights) {
        const auto alone = support::row_sampling::divide(weights, one.kept, "plain");
        return over(support::row_sampling::independent_variance_of(alone, gram));
      };
      const variance_ratio seen = variance_over_closed_form(one, kind, 400'000);
      std::printf(
          "%-8s ratio %.1f: c %2zu of %2zu, variance %.4f +- %.4f of the closed form, %.3f of independent draws, "
          "%.3f of plain sampling, %.3f of rows drawn alike, %.3f of as many rows, none twice\n",
          one.kind.data(), ratio, by.always, one.kept, seen.ratio, seen.deviation,
          over(support::row_sampling::independent_variance_of(by, gram)), plain(one.weights), plain(alike),
          over(support::row_sampling::smaller_batch_variance(one.kept, one.of.rows, gram)));
      worst = std::max(worst, seen.ratio);
    }
  return transfer_bench::write_figures(
      "sampling_bench", {{"activation.sampling_bias_z", bias.worst_z, "deviations", "<=", threshold},
                         {"activation.sampling_wrong_found_percent", bias.found_percent(), "%", "==", 100},
                         {"activation.sampling_variance_over_closed_form", worst, "ratio", "<=", 1.02}});
}
