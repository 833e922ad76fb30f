// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/kept_gaps.hpp>
#include <chunkmem/transfer/price_ascent.hpp>
#include <chunkmem/transfer/retention_candidates.hpp>
#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/retention_rebuild.hpp>
#include <chunkmem/transfer/retention_shorten.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// What stays on the device between its uses, and how many bytes that moves.
struct retention_plan {
  std::vector<std::uint8_t> stays;  ///< for each use: 1 if its chunk stays until its next use on the device
  /// for each chunk: 1 if it never leaves and has no home; empty: all have one
  std::vector<std::uint8_t> device_only = {};
  std::uint64_t moved_bytes = 0;  ///< in one iteration, both directions
  double certified_bytes = 0;     ///< no plan of one iteration moves less; see certified_bytes()
  /// of the rows, which certify it; then that of homes, where there is no room for all
  std::vector<double> prices;
  bool is_optimal = false;  ///< it was proven that no plan of one iteration moves less
};

/// How long to look. The same numbers give the same plan on every machine.
struct retention_effort {
  std::size_t climbs =
      100;  ///< steps towards better prices, for each of seven widths; fewer, down to 40, for large problems
  std::size_t rebuilds = 4'000;  ///< attempts of the search over plateaus
};

/// Prices at which a gap costs the moments until its next use.
[[nodiscard]] inline row_prices time_as_price(const retention_problem& problem)
{
  const auto moments = problem.moment_of_row();
  std::vector<double> until_next(moments.size());
  for (std::size_t row = 0; row < moments.size(); ++row)
    until_next[row] =
        row + 1 < moments.size() ? moments[row + 1] - moments[row] : problem.moments() - moments[row] + moments[0];
  row_prices price{moments.size()};
  price.set(until_next);
  return price;
}

/// Gaps and rows that steps of one width may look at; more only where 40 steps need it.
inline constexpr std::size_t visits_for_climbs = 1'000'000;

/// Chooses what stays, as if every chunk had a home.
///
/// Prices of the room are found by ascent on the dual. Choices are made at each stage of it, and in time by distance
/// and by cost as demand paging would make them if an iteration closed on itself; the best is improved by
/// rebuilding. Of what saves as much, the shortest stays. A plan
/// repeats in each iteration: decisions that drift over many iterations can move fewer bytes, though never fewer than
/// `certified_bytes` on average. Cost: up to 700 values of the dual, O(classes of gaps + 1,200 rows) each, 25 passes of
/// O(gaps log gaps), and the effort; 0.2 to 0.5 s for 10^4 chunks at 10^3 moments.
[[nodiscard]] inline retention_plan plan_retention(const retention_problem& problem,
                                                   const retention_effort& effort = {})
{
  retention_candidates candidates{problem};
  price_ascent ascent{problem};
  const std::size_t climbs =
      std::min(effort.climbs, std::max<std::size_t>(40, visits_for_climbs / (ascent.terms() + 1)));
  for (const double width : {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}) {
    ascent.climb(width, climbs);
    candidates.greedy(ascent.reached());
    candidates.sweep(ascent.reached(), 1);
  }
  const row_prices time = time_as_price(problem);
  for (const double theta : {0.125, 1.25, 1.5, 1.75, 2.0, 2.125, 2.25, 2.5, 3.0, 4.0})
    candidates.sweep(time, time.all() / theta);
  candidates.sweep(time, 0);
  kept_gaps choice = candidates.best();
  retention_rebuild{problem, ascent.best()}.improve(choice, effort.rebuilds);
  shorten(choice);

  retention_plan plan{problem.stays(),
                      {},
                      problem.constant_bytes() + choice.moved_bytes(),
                      certified_bytes(problem, ascent.best()),
                      {}};
  plan.is_optimal =
      problem.gaps().empty() || plan.certified_bytes > __builtin_fma(-0.999, static_cast<double>(problem.unit_bytes()),
                                                                     static_cast<double>(plan.moved_bytes));
  for (std::size_t which = 0; which < problem.gaps().size(); ++which)
    plan.stays[problem.gaps()[which].use] = choice.is_kept(which) ? 1 : 0;
  plan.prices.assign(ascent.best().prices().begin(), ascent.best().prices().end());
  return plan;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
