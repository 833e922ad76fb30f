// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// What a byte that stays costs in each row, in moves of a byte: 1 means as much as a load. And what a byte of a home
/// on the host costs, where there is no room for all.
///
/// Rounding is the same on every machine, as everywhere in the planner: no product feeds a sum except through a fused
/// one.
class row_prices {
 public:
  explicit row_prices(std::size_t rows) : prices_(rows, 0), before_(rows + 1, 0) {}

  [[nodiscard]] std::span<const double> prices() const noexcept { return prices_; }

  /// @pre `prices` has one number for each row, none below zero, and perhaps one for homes behind them
  void set(std::span<const double> prices)
  {
    std::ranges::copy(prices.first(prices_.size()), prices_.begin());
    home_ = prices.size() > prices_.size() ? prices.back() : 0;
    for (std::size_t row = 0; row < prices_.size(); ++row) before_[row + 1] = before_[row] + prices_[row];
  }

  /// Of all rows before this one.
  [[nodiscard]] double before(std::size_t row) const noexcept { return before_[row]; }
  [[nodiscard]] double all() const noexcept { return before_.back(); }
  /// Of a home.
  [[nodiscard]] double home() const noexcept { return home_; }

  /// What it costs to keep a byte over a gap.
  [[nodiscard]] double operator()(const retention_problem::gap& it) const noexcept
  {
    const double between = before_[it.last] - before_[it.first];
    return it.wraps ? between + before_.back() : between;
  }

 private:
  std::vector<double> prices_;
  std::vector<double> before_;
  double home_ = 0;
};

/// The least that a byte of an epoch's chunk can cost at these prices, kept or moved, however its gaps are chosen.
[[nodiscard]] inline double least_cost(std::span<const retention_problem::gap> gaps, bool writes_back,
                                       const row_prices& price) noexcept
{
  double kept = 0;
  double mixed = writes_back ? 1 : 0;
  for (const retention_problem::gap& it : gaps) {
    const double cost = price(it);
    kept += cost;
    mixed += std::min(cost, it.loads ? 1.0 : 0.0);
  }
  return std::min(kept, mixed);
}

/// The least that a byte of a chunk can cost that could live on the device alone: it never leaves, or has a home.
[[nodiscard]] inline double least_cost(const retention_problem& problem, const retention_problem::home& it,
                                       const row_prices& price) noexcept
{
  double kept = 0;
  double apart = price.home();
  for (std::uint32_t at = it.begin; at < it.end; ++at) {
    const retention_problem::epoch& one = problem.epochs()[at];
    const auto gaps = problem.gaps().subspan(one.begin, one.end - one.begin);
    for (const retention_problem::gap& each : gaps) kept += price(each);
    apart += least_cost(gaps, one.writes_back, price);
  }
  return std::min(kept, apart);
}

/// Bytes that no choice can move less than: the dual value of prices, whatever they are.
///
/// Room that is paid for is taken from what the epochs cost at least (Lagrange), and so is the host's. The last bits of
/// all roundings are taken off. Cost: O(gaps + rows).
[[nodiscard]] inline double certified_bytes(const retention_problem& problem, const row_prices& price) noexcept
{
  auto value = static_cast<double>(problem.constant_bytes());
  double largest = value;
  const auto add = [&](std::uint64_t size, double least) {
    value = __builtin_fma(static_cast<double>(size), least, value);
    largest = std::max(largest, value);
  };
  auto home = problem.homes().begin();
  for (std::uint32_t at = 0; at < problem.epochs().size();) {
    while (home != problem.homes().end() && home->end <= at) ++home;
    if (home != problem.homes().end() && home->begin <= at) {
      add(home->size, least_cost(problem, *home, price));
      at = home->end;
      continue;
    }
    const retention_problem::epoch& it = problem.epochs()[at++];
    add(it.size, least_cost(problem.gaps().subspan(it.begin, it.end - it.begin), it.writes_back, price));
  }
  for (std::size_t row = 0; row < problem.room().size(); ++row)
    value = __builtin_fma(-static_cast<double>(problem.room()[row]), price.prices()[row], value);
  if (price.home() > 0) value = __builtin_fma(-static_cast<double>(problem.home_room()), price.home(), value);
  const double errors =
      static_cast<double>(problem.epochs().size() + problem.room().size() + (price.home() > 0 ? 2 : 1)) * 0x1p-50;
  return std::max(__builtin_fma(-largest, errors, value), static_cast<double>(problem.constant_bytes()));
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
