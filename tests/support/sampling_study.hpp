// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/tensor/registration.hpp>
#include <support/oracles/row_sampling_oracle.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

/// Estimates of weight gradients from sampled rows, many for one problem, compared with closed forms.
namespace support::sampling {

namespace act = chunkmem::activation;
using support::row_sampling::dice;
using support::row_sampling::division;
using support::row_sampling::problem;

inline constexpr std::size_t directions = 17;  // 16 fixed random ones, and the gradient itself
inline constexpr double threshold = 4.8;
inline constexpr std::array<std::string_view, 6> kinds = {"equal", "zipf", "heavy", "parallel", "mixed", "sparse"};
inline constexpr std::array<std::string_view, 5> visits = {"exact", "first", "fresh", "stale", "half"};
inline constexpr std::array<std::string_view, 4> wrong_ways = {"first visit", "top rows", "put back", "not replaced"};

/// A problem, the weights of its rows, and the number of kept rows.
struct study_case {
  std::string_view kind, visit;
  problem of;
  std::vector<double> weights;
  std::size_t kept = 0;
};

/// The same as a manager's `use`.
inline void tie(act::norm_cache& norms)
{
  norms.for_each_state([](const auto&) {});
  chunkmem::registrations manager;
  manager.make_room();
  manager.add(norms.registered);
}

/// The weights of a visit. "exact": |h| |d|. Other visits ask a cache: without norms, with those of d, with others,
/// with norms of every other sample.
[[nodiscard]] inline std::vector<double> weights_of(const problem& of, std::string_view visit, std::uint64_t seed)
{
  if (visit == "exact") return of.exact_weights();
  act::norm_cache norms{{.name = "study", .samples = of.rows, .seed = seed}};
  const auto site = norms.add("input", 1);
  tie(norms);
  dice random{seed + 1'000'000};
  std::vector<std::uint64_t> all(of.rows);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  std::vector<std::uint64_t> seen;
  std::vector<double> squares;
  for (std::size_t row = 0; row < of.rows && visit != "first"; ++row) {
    if (visit == "half" && row % 2 == 0) continue;
    double norm = of.norm_of_slope(row);
    if (visit == "stale") norm = norm * std::exp(random.normal()) + 0.01 * random.uniform();
    seen.push_back(row);
    squares.push_back(norm * norm);
  }
  if (!seen.empty()) norms.note(site, {.step = 0, .samples = seen}, squares);
  norms.commit();
  std::vector<double> weights(of.rows);
  for (std::size_t row = 0; row < of.rows; ++row) weights[row] = of.norm_of_input(row);
  norms.weigh(site, {.step = 1, .samples = all}, weights);
  return weights;
}

[[nodiscard]] inline study_case make_case(std::uint64_t number)
{
  constexpr std::size_t rows[] = {12, 24, 40, 64}, inputs[] = {3, 16, 8}, outputs[] = {16, 5};
  constexpr double ratios[] = {0.1, 0.3, 0.5, 0.75};
  study_case made;
  made.kind = kinds[number % kinds.size()];
  made.visit = visits[number / 2 % visits.size()];
  made.of =
      row_sampling::make_problem(made.kind, rows[number % 4], inputs[number % 3], outputs[number / 3 % 2], number);
  made.weights = weights_of(made.of, made.visit, number);
  const double kept = ratios[number / 5 % 4] * static_cast<double>(made.of.rows);
  made.kept = std::max<std::size_t>(1, static_cast<std::size_t>(kept + 0.5));
  return made;
}

/// Lengths of the rows along each direction; the last one is the gradient's.
struct row_lengths {
  std::array<std::vector<double>, directions> of;
  double gradient = 0;  ///< its norm
};
[[nodiscard]] inline row_lengths lengths_of(const problem& of)
{
  row_lengths made;
  const std::vector<double> gram = of.gram();
  made.gradient = std::sqrt(std::max(0.0, std::accumulate(gram.begin(), gram.end(), 0.0)));
  dice random{7};  // fixed
  for (std::size_t way = 0; way < directions; ++way) {
    made.of[way].assign(of.rows, 0);
    if (way + 1 == directions) {
      for (std::size_t i = 0; i < of.rows; ++i)
        for (std::size_t j = 0; j < of.rows; ++j) made.of[way][i] += gram[i * of.rows + j] / made.gradient;
      continue;
    }
    const double unit = 1 / std::sqrt(static_cast<double>(of.inputs * of.outputs));
    for (std::size_t in = 0; in < of.inputs; ++in)
      for (std::size_t out = 0; out < of.outputs; ++out) {
        const double sign = random.bits() >> 63U != 0 ? unit : -unit;
        for (std::size_t i = 0; i < of.rows; ++i)
          made.of[way][i] += sign * double{of.input[i * of.inputs + in]} * double{of.slope[i * of.outputs + out]};
      }
  }
  return made;
}

/// The weight of each row in the library's estimate number `trial`.
class estimates {
 public:
  explicit estimates(const study_case& one) : one_{one}, choice_{one.of.rows}, indices_(one.kept), scales_(one.kept) {}

  void next(std::uint64_t seed, std::uint64_t trial)
  {
    always_ = choice_.choose(one_.weights, indices_, scales_, {.seed = seed, .step = trial});
  }
  [[nodiscard]] std::size_t always() const noexcept { return always_; }
  [[nodiscard]] double along(const std::vector<double>& lengths) const noexcept
  {
    double sum = 0;
    for (std::size_t at = 0; at < indices_.size(); ++at)
      sum += double{scales_[at]} * lengths[static_cast<std::size_t>(indices_[at])];
    return sum;
  }
  void add_counts(std::vector<double>& counts) const noexcept
  {
    for (std::size_t at = 0; at < indices_.size(); ++at)
      counts[static_cast<std::size_t>(indices_[at])] += double{scales_[at]};
  }

 private:
  const study_case& one_;
  act::row_choice choice_;
  std::vector<std::int32_t> indices_;
  std::vector<float> scales_;
  std::size_t always_ = 0;
};

using variance_rule = double (*)(const division& by, const std::vector<double>& lengths);

/// The number of trials for which a bias of `share` of the gradient, along it, is 8 deviations of their mean; `least`
/// or more.
[[nodiscard]] inline std::uint64_t trials_for(const study_case& one, const row_lengths& lengths, double share,
                                              std::uint64_t least, variance_rule variance_along)
{
  const double variance = variance_along(row_sampling::divide(one.weights, one.kept), lengths.of.back());
  const double needed = 64 * variance / std::pow(share * lengths.gradient, 2);
  return std::max<std::uint64_t>(least, static_cast<std::uint64_t>(needed) + 1);
}

/// The largest distance of a mean from its right value, in deviations by the closed form. @param sums   by direction
[[nodiscard]] inline double largest_z(const study_case& one, const row_lengths& lengths,
                                      const std::array<double, directions>& sums, std::uint64_t trials,
                                      variance_rule variance_along)
{
  const division by = row_sampling::divide(one.weights, one.kept);
  double worst = 0;
  for (std::size_t way = 0; way < directions; ++way) {
    const std::vector<double>& all = lengths.of[way];
    const double right = std::accumulate(all.begin(), all.end(), 0.0);
    const double deviation = std::sqrt(variance_along(by, all) / static_cast<double>(trials));
    const double off = std::abs(sums[way] / static_cast<double>(trials) - right);
    const double rounded = 1e-6 * lengths.gradient;  // scales are singles
    worst = std::max(worst, std::max(0.0, off - rounded) / std::max(deviation, 1e-12 * lengths.gradient));
  }
  return worst;
}
[[nodiscard]] inline double z_of_library(const study_case& one, const row_lengths& lengths, std::uint64_t seed,
                                         std::uint64_t trials)
{
  estimates each{one};
  std::array<double, directions> sums{};
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    each.next(seed, trial);
    for (std::size_t way = 0; way < directions; ++way) sums[way] += each.along(lengths.of[way]);
  }
  return largest_z(one, lengths, sums, trials, row_sampling::variance_along);
}
/// Sums of wrong estimates, by direction.
[[nodiscard]] inline std::array<double, directions> sums_of_wrong(std::string_view how, const study_case& one,
                                                                  const row_lengths& lengths, std::uint64_t seed,
                                                                  std::uint64_t trials)
{
  dice random{seed};
  std::array<double, directions> sums{};
  row_sampling::wrong_estimate wrong{how, one.weights, one.kept};
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    const std::vector<double>& counts = wrong.next(random);
    for (std::size_t way = 0; way < directions; ++way)
      sums[way] += std::inner_product(counts.begin(), counts.end(), lengths.of[way].begin(), 0.0);
  }
  return sums;
}
/// The bias of a wrong estimate along the gradient, as a part of the gradient: by its closed form, or by trials of its
/// own that no test of the estimate uses.
[[nodiscard]] inline double bias_of_wrong(std::string_view how, const study_case& one, const row_lengths& lengths,
                                          std::uint64_t seed, std::uint64_t trials)
{
  if (how == "not replaced") {
    const double sum = sums_of_wrong(how, one, lengths, seed + 500'000, trials).back();
    return std::abs(sum / static_cast<double>(trials) / lengths.gradient - 1);
  }
  const std::vector<double> counts = row_sampling::wrong_estimate{how, one.weights, one.kept}.expected();
  const double sum = std::inner_product(counts.begin(), counts.end(), lengths.of.back().begin(), 0.0);
  return std::abs(sum / lengths.gradient - 1);
}

/// The result of all cases: the largest z of the library, and the number of wrong estimates that are found among those
/// that are biased.
struct bias_summary {
  double worst_z = 0;
  std::uint64_t wrong = 0, found = 0;
  std::array<std::uint64_t, wrong_ways.size()> found_of{};

  [[nodiscard]] double found_percent() const { return 100 * static_cast<double>(found) / static_cast<double>(wrong); }
};
/// @param wrong_share   a wrong estimate counts where its bias along the gradient is this part of the gradient or more;
///   it has as many trials as that needs. Its draws are independent, and so is the variance that it is compared with
inline void add_case(bias_summary& to, std::uint64_t number, double share, std::uint64_t least, double wrong_share)
{
  const study_case one = make_case(number);
  const row_lengths lengths = lengths_of(one.of);
  const std::uint64_t own = trials_for(one, lengths, share, least, row_sampling::variance_along);
  to.worst_z = std::max(to.worst_z, z_of_library(one, lengths, number, own));
  const variance_rule independent = row_sampling::independent_variance_along;
  const std::uint64_t trials = trials_for(one, lengths, wrong_share, least, independent);
  for (std::size_t way = 0; way < wrong_ways.size(); ++way) {
    if (bias_of_wrong(wrong_ways[way], one, lengths, number, trials) < wrong_share) continue;
    const auto sums = sums_of_wrong(wrong_ways[way], one, lengths, number, trials);
    const bool is_found = largest_z(one, lengths, sums, trials, independent) > threshold;
    ++to.wrong;
    to.found += is_found ? 1 : 0;
    to.found_of[way] += is_found ? 1 : 0;
  }
}

/// A distribution with exact norms, for its variance.
[[nodiscard]] inline study_case variance_case(std::size_t kind, double ratio)
{
  study_case made{kinds[kind], "exact", row_sampling::make_problem(kinds[kind], 40, 8, 5, kind + 1), {}, 0};
  made.weights = made.of.exact_weights();
  made.kept = static_cast<std::size_t>(ratio * 40 + 0.5);
  return made;
}

/// The mean of |estimate - G|^2, over the closed form, and the deviation of that ratio.
struct variance_ratio {
  double ratio = 1, deviation = 0;
};
[[nodiscard]] inline variance_ratio variance_over_closed_form(const study_case& one, std::uint64_t seed,
                                                              std::uint64_t trials)
{
  const std::vector<double> gram = one.of.gram();
  const double closed = row_sampling::variance_of(row_sampling::divide(one.weights, one.kept), gram);
  if (!(closed > 0)) return {};
  estimates each{one};
  double sum = 0, squares = 0;
  std::vector<double> off(one.of.rows);
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    each.next(seed, trial);
    std::ranges::fill(off, -1.0);
    each.add_counts(off);
    double far = 0;
    for (std::size_t i = 0; i < off.size(); ++i) {
      if (off[i] == 0) continue;
      double row = 0;
      for (std::size_t j = 0; j < off.size(); ++j) row += gram[i * off.size() + j] * off[j];
      far += off[i] * row;
    }
    sum += far / closed, squares += far / closed * far / closed;
  }
  const auto count = static_cast<double>(trials);
  return {sum / count, std::sqrt(std::max(0.0, squares / count - sum / count * sum / count) / count)};
}

}  // namespace support::sampling
