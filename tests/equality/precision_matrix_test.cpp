// SPDX-License-Identifier: Apache-2.0
#include "precision_run.hpp"

#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/refusal.hpp>

#include <iostream>
#include <string>
#include <vector>

namespace precision_matrix_test {

using namespace precision;

namespace {

struct tally {
  std::size_t runs = 0;
  std::size_t identical = 0;
};

void write_figure(const tally& sum)
{
  support::write_figures(
      "test_equality.precision", "build/bench/bin/test_equality.precision",
      {{"engine.equality_runs_identical_percent",
        100.0 * static_cast<double>(sum.identical) / static_cast<double>(sum.runs), "%", "==", 100}});
}

std::vector<setting> allowed_settings()
{
  std::vector<setting> allowed;
  for (const setting& it : all_settings())
    if (!it.is_refused()) allowed.push_back(it);
  return allowed;
}

/// The schedule goes with the size and the transfer, so that each is met by each of them in the whole matrix.
support::any_options options_of(const setting& it)
{
  if (!it.adversarial()) return cm::backend::host_arena_options{.async_compute = it.launched()};
  const std::uint64_t turn = it.at[setting::size] + it.at[setting::transfer] + it.at[setting::optimizer];
  return support::adversarial_options{
      .when = static_cast<support::schedule>(turn % 3), .seed = 1 + turn, .async_compute = it.launched()};
}

tally run_all(const std::vector<setting>& settings)
{
  tally sum;
  for (const setting& it : settings) {
    INFO(it.name());
    const std::string difference =
        support::complaint_of([&] { return run_on<support::any_backend>(it, options_of(it)); });
    CHECK(difference == "");
    ++sum.runs;
    sum.identical += difference.empty() ? 1 : 0;
  }
  std::cout << sum.identical << " of " << sum.runs << " runs identical to plain vectors; of " << all_settings().size()
            << " combinations " << all_settings().size() - allowed_settings().size()
            << " are refused: gradients in place with 4 micro-batches, or without masters in fp32\n";
  return sum;
}

}  // namespace

TEST_CASE("the cover of the matrix has every pair that is not refused", "[equality]")
{
  const std::vector<setting> allowed = allowed_settings();
  const std::vector<setting> chosen = pairwise_cover();
  using pairs = support::combinations<setting::axes, 2>;
  pairs wanted{extents}, seen{extents}, wanted_in_place{extents}, seen_in_place{extents};
  for (const setting& it : allowed)
    for (std::size_t which = 0; which < arrangements; ++which) {
      wanted.add(arranged(it, which).at);
      if (it.in_place()) wanted_in_place.add(arranged(it, which).at);
    }
  for (const setting& it : chosen) {
    CHECK(!it.is_refused());
    seen.add(it.at);
    if (it.in_place()) seen_in_place.add(it.at);
  }
  REQUIRE(seen.count() == wanted.count());
  REQUIRE(seen_in_place.count() == wanted_in_place.count());
  REQUIRE(chosen.size() <= most_runs);
  REQUIRE(all_settings().size() == 5760);
  REQUIRE(allowed.size() == 3840);
}

TEST_CASE("training in any precision equals training on vectors bit for bit", "[equality]")
{
  const tally sum = run_all(pairwise_cover());
  write_figure(sum);
  CHECK(sum.identical == sum.runs);
}

TEST_CASE("so it does in every combination, each with one layout, placement and way to update after the other",
          "[equality][.slow]")
{
  std::vector<setting> all = allowed_settings();
  for (std::size_t index = 0; index < all.size(); ++index)
    all[index] = arranged(all[index], index + index / arrangements);
  const tally sum = run_all(all);
  CHECK(sum.runs == 3840);
  CHECK(sum.identical == sum.runs);
}

}  // namespace precision_matrix_test
