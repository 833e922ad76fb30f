// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/ratio_search.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <support/catch.hpp>
#include <support/sampling_study.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace row_choice_test {

/// Estimates of a sum of products from some of its rows: no bias, the variance of the closed form, the same bits.

namespace act = chunkmem::activation;
namespace row_sampling = support::row_sampling;
using namespace support::sampling;

namespace {

struct kept_rows {
  std::vector<std::int32_t> indices;
  std::vector<float> scales;
  std::size_t always = 0;

  bool operator==(const kept_rows&) const = default;
};

kept_rows choose(const std::vector<double>& weights, std::size_t kept, const chunkmem::rounding_key& key = {})
{
  act::row_choice choice{weights.size()};
  kept_rows made{std::vector<std::int32_t>(kept, -1), std::vector<float>(kept, -1)};
  made.always = choice.choose(weights, made.indices, made.scales, key);
  return made;
}

/// The division of a choice with its own c.
row_sampling::division division_with(std::size_t always, const std::vector<double>& weights, std::size_t kept)
{
  row_sampling::division by = row_sampling::divide(weights, kept, "plain");
  const std::vector<std::size_t> order = row_sampling::order_of(weights);
  by.always = always;
  double rest = 0;
  for (std::size_t at = 0; at < order.size(); ++at) {
    by.is_always[order[at]] = at < always;
    rest += at < always ? 0 : weights[order[at]];
  }
  for (std::size_t row = 0; row < weights.size(); ++row)
    by.share[row] = by.is_always[row] || !(rest > 0) ? 0 : weights[row] / rest;
  return by;
}
/// The variance of column-row sampling, by the closed form.
double plain_variance(const std::vector<double>& weights, std::size_t kept, const std::vector<double>& gram)
{
  return row_sampling::independent_variance_of(division_with(0, weights, kept), gram);
}

}  // namespace

TEST_CASE("an estimate is not off along any direction, and wrong estimates are found", "[activation]")
{
  bias_summary seen;
  for (std::uint64_t number = 2; number < 100; number += 9) add_case(seen, number, 0.1, 400, 0.1);
  CHECK(seen.worst_z <= threshold);
  for (std::size_t way = 0; way < wrong_ways.size(); ++way) {
    INFO(wrong_ways[way]);
    CHECK(seen.found_of[way] > 0);
  }
  CHECK(seen.found == seen.wrong);
}

TEST_CASE("an estimate is not off by a hundredth along the gradient in any of 100 cases", "[activation][.slow]")
{
  bias_summary seen;
  for (std::uint64_t number = 0; number < 100; ++number) add_case(seen, number, 0.01, 2'000, 0.05);
  CHECK(seen.worst_z <= threshold);
  CHECK(seen.found_percent() == 100);
  for (const std::uint64_t found : seen.found_of) CHECK(found > 0);
}

TEST_CASE("the variance of an estimate is the closed form's", "[activation]")
{
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    INFO(kinds[kind]);
    const variance_ratio seen = variance_over_closed_form(variance_case(kind, 0.3), kind, 1'000);
    CHECK(std::abs(seen.ratio - 1) <= threshold * seen.deviation + 1e-5);
  }
}

TEST_CASE("a row in each part of the order scatters less than rows that are drawn by themselves", "[activation]")
{
  // Equal norms: where nearly all rows have a place, few are drawn twice.
  for (const double ratio : {0.3, 0.6, 0.95}) {
    INFO(ratio);
    const study_case one = variance_case(0, ratio);
    const std::vector<double> gram = one.of.gram();
    const row_sampling::division by = row_sampling::divide(one.weights, one.kept);
    const variance_ratio seen = variance_over_closed_form(one, 9, 1'000);
    const double over = row_sampling::variance_of(by, gram) / row_sampling::independent_variance_of(by, gram);
    CHECK(over * (seen.ratio + threshold * seen.deviation) < (ratio < 0.5 ? 0.9 : ratio < 0.9 ? 0.65 : 0.5));
    // Cases in which a smaller batch is better, and cases in which it is not.
    const auto over_smaller_batch = [&](const study_case& it) {
      const std::vector<double> products = it.of.gram();
      return row_sampling::variance_of(row_sampling::divide(it.weights, it.kept), products) /
             row_sampling::smaller_batch_variance(it.kept, it.of.rows, products);
    };
    CHECK(over_smaller_batch(one) < (ratio < 0.5 ? 1.1 : ratio < 0.9 ? 1.5 : 10));
    CHECK(over_smaller_batch(variance_case(1, ratio)) < 0.15);  // norms as 1 / rank
  }
}

TEST_CASE("the variance of many estimates is the closed form's", "[activation][.slow]")
{
  for (std::size_t kind = 0; kind < kinds.size(); ++kind)
    for (const double ratio : {0.1, 0.3, 0.6}) {
      INFO(kinds[kind] << " at " << ratio);
      const variance_ratio seen = variance_over_closed_form(variance_case(kind, ratio), kind, 400'000);
      CHECK(std::abs(seen.ratio - 1) <= threshold * seen.deviation + 1e-5);
      CHECK(seen.ratio <= 1.02);
    }
}

TEST_CASE("no choice is worse than plain column-row sampling, nor than rows that are drawn alike", "[activation]")
{
  for (std::uint64_t number = 0; number < 200; ++number) {
    const study_case one = make_case(number);
    const std::vector<double> gram = one.of.gram();
    const std::size_t always = choose(one.weights, one.kept).always;
    INFO("case " << number << ", " << one.kind << ", " << one.visit << ", c " << always);
    REQUIRE(always == row_sampling::divide(one.weights, one.kept).always);
    const row_sampling::division by = division_with(always, one.weights, one.kept);
    const double independent = row_sampling::independent_variance_of(by, gram);
    const double slack = 1e-9 * (1 + plain_variance(one.weights, one.kept, gram));
    REQUIRE(row_sampling::variance_of(by, gram) <= independent + slack);
    REQUIRE(independent <= plain_variance(one.weights, one.kept, gram) + slack);
    if (one.visit != "exact") continue;
    REQUIRE(independent <= plain_variance(std::vector<double>(one.of.rows, 1.0), one.kept, gram) + slack);
  }
}

TEST_CASE("the smallest square alone would be worse than plain sampling for nearly parallel rows", "[activation]")
{
  // Eight rows of one direction, and 32 of the same norm a little to its left or right.
  problem one{40, 2, 1, std::vector<float>(80), std::vector<float>(40, 1.0F)};
  for (std::size_t row = 0; row < 40; ++row) {
    one.input[2 * row] = row < 8 ? 1.25F : 1.0F;
    one.input[2 * row + 1] = row < 8 ? 0.0F : row % 2 == 0 ? 0.75F : -0.75F;
  }
  const std::vector<double> weights(40, 1.25), gram = one.gram();
  const double plain = plain_variance(weights, 24, gram);
  const row_sampling::division squared = row_sampling::divide(weights, 24, "squared");
  REQUIRE(squared.always == 8);
  CHECK(row_sampling::independent_variance_of(squared, gram) > 1.15 * plain);
  CHECK(choose(weights, 24).always == 0);
}

TEST_CASE("all rows are kept once where there is a place for each", "[activation]")
{
  const kept_rows all = choose({3, 0, 1, 7}, 4);
  CHECK(all.indices == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(all.scales == std::vector<float>{1, 1, 1, 1});
  CHECK(choose({5}, 1).indices == std::vector<std::int32_t>{0});
}

TEST_CASE("a row of weight zero is never kept with a scale", "[activation]")
{
  const std::vector<double> weights = {0, 3, 0, 0, 2, 0, 0, 0};
  for (std::uint64_t step = 0; step < 200; ++step) {
    const kept_rows one = choose(weights, 1, {.step = step});
    REQUIRE((one.indices[0] == 1 || one.indices[0] == 4));
    const kept_rows two = choose(weights, 3, {.step = step});  // a place more than rows that count
    REQUIRE(two.indices == std::vector<std::int32_t>{1, 4, 7});
    REQUIRE(two.scales == std::vector<float>{1, 1, 0});
  }
  const kept_rows none = choose(std::vector<double>(8, 0.0), 3);
  CHECK(none.scales == std::vector<float>{0, 0, 0});
}

TEST_CASE("weights that are no numbers make scales that are none", "[activation]")
{
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), -1.0}) {
    const kept_rows made = choose({1, bad, 2, 3}, 2);
    for (std::size_t at = 0; at < 2; ++at) {
      CHECK(made.indices[at] >= 0);
      CHECK(made.indices[at] < 4);
      CHECK(std::isnan(made.scales[at]));
    }
  }
}

TEST_CASE("scales of very large and very small weights are not lost", "[activation]")
{
  // Weights whose sum is just a number, and weights below the smallest normal one.
  const kept_rows large = choose(std::vector<double>(17, 1e307), 16);
  for (const float scale : large.scales) CHECK(scale == Catch::Approx(17.0 / 16));
  const kept_rows small = choose(std::vector<double>(17, 5e-324), 16);
  for (const float scale : small.scales) CHECK(scale == Catch::Approx(17.0 / 16));
}

TEST_CASE("a row is drawn by as much as its weight is of all, however small it is", "[activation]")
{
  constexpr std::size_t rows = 64;
  for (const double size : {1.0, 5e-324, 1e307}) {
    INFO(size);
    std::vector<double> weights(rows, size);
    weights[5] = size * 8;  // 8 of 71, and k is 2: P >= c / k fails
    double drawn = 0;
    constexpr std::uint64_t trials = 2'000;
    for (std::uint64_t step = 0; step < trials; ++step) {
      const kept_rows made = choose(weights, 2, {.seed = 3, .step = step});
      REQUIRE(made.always == 0);
      for (std::size_t at = 0; at < 2; ++at) {
        drawn += made.indices[at] == 5 ? 1 : 0;
        REQUIRE(made.scales[at] == (made.indices[at] == 5 ? 71.0F / 16 : 71.0F / 2));
      }
    }
    const double right = 2 * trials * 8.0 / 71;
    CHECK(std::abs(drawn - right) <= threshold * std::sqrt(right));
  }
  // A weight far below the unit counts as one: never lost, and hardly ever drawn.
  const kept_rows tiny = choose({1e300, 1e-300, 0, 1e-300}, 3);
  CHECK(tiny.indices == std::vector<std::int32_t>{0, 1, 3});
  CHECK(tiny.scales == std::vector<float>{1, 1, 1});
}

TEST_CASE("kept rows are in order, and follow from key and weights alone", "[activation]")
{
  // Whole numbers: the same weights with every library of functions.
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&](std::uint64_t word) { hash = (hash ^ word) * 0x100000001b3U; };
  for (std::uint64_t number = 1; number < 40; ++number) {
    row_sampling::dice random{number};
    std::vector<double> weights(number * 3);
    for (double& each : weights) {
      each = static_cast<double>(random.bits() >> 44U);
      each *= each;
    }
    const std::size_t kept = number;
    const kept_rows made = choose(weights, kept, {.seed = number, .step = 5});
    REQUIRE(made == choose(weights, kept, {.seed = number, .step = 5}));
    if (number > 8) REQUIRE(!(made == choose(weights, kept, {.seed = number, .step = 6})));
    for (std::size_t at = 0; at + 1 < kept; ++at) REQUIRE(made.indices[at] <= made.indices[at + 1]);
    for (std::size_t at = 0; at < kept; ++at) {
      add(static_cast<std::uint64_t>(made.indices[at]));
      add(std::bit_cast<std::uint32_t>(made.scales[at]));
    }
  }
  CHECK(hash == 0xaa162691aa1c93acU);
}

TEST_CASE("rows of one weight are taken in their order", "[activation]")
{
  // Ten rows of one weight, and one that is most of all: c is 1.
  std::vector<double> weights(11, 1.0);
  weights[6] = 1'000;
  const kept_rows made = choose(weights, 4, {.step = 3});
  CHECK(made.always == 1);
  CHECK(std::count(made.indices.begin(), made.indices.end(), 6) == 1);
  // 1,010 of 11 equal rows: every draw is one of the others, and counts for a third of them.
  for (std::size_t at = 0; at < 4; ++at) CHECK(made.scales[at] == (made.indices[at] == 6 ? 1.0F : 10.0F / 3));
}

TEST_CASE("ratios within a number of bytes are as good as the best of all", "[activation]")
{
  // Three inputs of other sizes: one with few large rows, one whose rows are equal, one between.
  act::ratio_search search;
  struct one {
    act::sampling_options sizes;
    std::vector<double> weights;
  };
  std::vector<one> inputs = {
      {{.rows = 64, .width = 24}, {}}, {{.rows = 96, .width = 8}, {}}, {{.rows = 32, .width = 40}, {}}};
  for (std::size_t input = 0; input < 3; ++input) {
    for (std::size_t row = 0; row < inputs[input].sizes.rows; ++row)
      inputs[input].weights.push_back(input == 1 ? 1
                                                 : 1 / std::pow(1 + static_cast<double>(row), input == 0 ? 2 : 0.5));
    search.add(std::to_string(input), inputs[input].sizes, chunkmem::dtype::float32, inputs[input].weights);
  }
  const auto size_of = [&](std::size_t input, int step) {
    const auto rows = static_cast<double>(inputs[input].sizes.rows);
    const auto kept = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rows * step / 32 + 0.5));
    const auto whole = [](std::uint64_t bytes) { return (bytes + 255) / 256 * 256; };
    return whole(4 * kept * inputs[input].sizes.width) + 2 * whole(4 * kept);
  };
  // (1 - P)^2 / (k - c), by the oracle's division.
  const auto noise_of = [&](std::size_t input, int step) {
    const auto rows = static_cast<double>(inputs[input].sizes.rows);
    const auto kept = std::max<std::size_t>(1, static_cast<std::size_t>(rows * step / 32 + 0.5));
    if (kept == inputs[input].sizes.rows) return 0.0;
    const std::vector<double>& weights = inputs[input].weights;
    const row_sampling::division by = row_sampling::divide(weights, kept);
    double all = 0, rest = 0;
    for (std::size_t row = 0; row < weights.size(); ++row)
      all += weights[row], rest += by.is_always[row] ? 0 : weights[row];
    return rest * rest / all / all / by.drawn();
  };
  std::array<std::array<double, 33>, 3> noise{};
  std::array<std::array<std::uint64_t, 33>, 3> size{};
  for (std::size_t input = 0; input < 3; ++input)
    for (int step = 1; step <= 32; ++step)
      noise[input][static_cast<std::size_t>(step)] = noise_of(input, step),
      size[input][static_cast<std::size_t>(step)] = size_of(input, step);
  const auto best_within = [&](double goal) {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t a = 1; a <= 32; ++a)
      for (std::size_t b = 1; b <= 32; ++b)
        for (std::size_t c = 1; c <= 32; ++c)
          if (static_cast<double>(size[0][a] + size[1][b] + size[2][c]) <= goal)
            best = std::min(best, noise[0][a] + noise[1][b] + noise[2][c]);
    return best;
  };
  for (const std::uint64_t goal : {2'400U, 4'000U, 8'000U, 14'000U, 20'000U}) {
    INFO(goal << " B");
    const act::sampling_ratios found = search.within(chunkmem::bytes{goal});
    std::uint64_t used = 0;
    double left = 0;
    for (std::size_t input = 0; input < 3; ++input) {
      const auto step = static_cast<std::size_t>(std::lround(32 * found.ratios[input]));
      used += size[input][step], left += noise[input][step];
    }
    CHECK(used <= goal);
    CHECK(found.size.count() == used);
    CHECK(found.noise == Catch::Approx(left));
    CHECK(left >= best_within(static_cast<double>(goal)) * (1 - 1e-9));
    CHECK(left <= best_within(static_cast<double>(goal) * 63 / 64) * (1 + 1e-9));
  }
  CHECK(search.within(chunkmem::bytes{1'000'000}).ratios == std::vector<double>{1, 1, 1});
  CHECK_THROWS_WITH(search.within(chunkmem::bytes{900}), Catch::Matchers::ContainsSubstring("need 2304 B"));
  CHECK_THROWS_WITH(act::ratio_search{}.within(chunkmem::bytes{900}),
                    Catch::Matchers::ContainsSubstring("for no input"));
  CHECK_THROWS_WITH(search.add("1", {.rows = 95, .width = 8}, chunkmem::dtype::float32, {}),
                    Catch::Matchers::ContainsSubstring("95 rows"));
}

TEST_CASE("ratios depend neither on the size of weights nor on the number of batches", "[activation]")
{
  const auto within = [](double scale, std::size_t batches, std::size_t others, std::uint64_t goal) {
    const act::sampling_options sizes{.rows = 64, .width = 64};
    std::vector<double> steep, flat;
    for (std::size_t row = 0; row < 64; ++row)
      steep.push_back(scale / std::pow(1 + static_cast<double>(row), 2)),
          flat.push_back(1 + static_cast<double>(row % 7));
    act::ratio_search search;
    for (std::size_t batch = 0; batch < std::max({std::size_t{1}, batches, others}); ++batch) {
      search.add("steep", sizes, chunkmem::dtype::float32, batch < batches ? steep : std::vector<double>(64, 0.0));
      search.add("flat", sizes, chunkmem::dtype::float32, batch < others ? flat : std::vector<double>(64, NAN));
    }
    return search.within(chunkmem::bytes{goal});
  };
  const act::sampling_ratios usual = within(1, 1, 1, 12'000);
  CHECK(usual.ratios[0] < usual.ratios[1]);
  CHECK(usual.noise > 0);
  CHECK(usual.noise == Catch::Approx(usual.noises[0] + usual.noises[1]));
  // Powers of two, so that weights are the same but for their size.
  for (const int power : {-1'000, -540, 532, 1'000}) {
    INFO("times 2^" << power);
    const act::sampling_ratios found = within(std::ldexp(1.0, power), 1, 1, 12'000);
    CHECK(found.ratios == usual.ratios);
    CHECK(found.noises == usual.noises);
  }
  CHECK(within(1e308, 1, 1, 12'000).ratios.size() == 2);  // their sum is infinite
  CHECK(within(1e-320, 1, 1, 12'000).noises[0] > 0);
  for (const auto& [batches, others] : {std::array<std::size_t, 2>{4, 4}, {1, 4}, {4, 1}}) {
    INFO(batches << " and " << others << " batches");
    const act::sampling_ratios found = within(1, batches, others, 12'000);
    CHECK(found.ratios == usual.ratios);
    CHECK(found.noise == Catch::Approx(usual.noise));
  }
  // Rows without norms count as rows of one weight.
  const act::sampling_ratios none = within(1, 0, 0, 12'000);
  for (std::size_t input = 0; input < 2; ++input)
    CHECK(none.noises[input] == Catch::Approx(1 / std::round(64 * none.ratios[input])));
  CHECK(within(1, 0, 1, 1'000'000).ratios == std::vector<double>{1, 1});
}

}  // namespace row_choice_test
