#pragma once

#include <chunkmem/transfer/retention_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// What a byte that stays costs in each row, in moves of a byte: 1 means as much as a load.
///
/// Rounding is the same on every machine, as everywhere in the planner: no product feeds a sum except through a fused
/// one.
class row_prices {
 public:
  explicit row_prices(std::size_t rows) : prices_(rows, 0), before_(rows + 1, 0) {}

  [[nodiscard]] std::span<const double> prices() const noexcept { return prices_; }

  /// @pre `prices` has one number for each row, none below zero
  void set(std::span<const double> prices)
  {
    std::ranges::copy(prices, prices_.begin());
    for (std::size_t row = 0; row < prices_.size(); ++row) before_[row + 1] = before_[row] + prices_[row];
  }

  /// Of all rows before this one.
  [[nodiscard]] double before(std::size_t row) const noexcept { return before_[row]; }
  [[nodiscard]] double all() const noexcept { return before_.back(); }

  /// What it costs to keep a byte over a gap.
  [[nodiscard]] double operator()(const retention_problem::gap& it) const noexcept
  {
    const double between = before_[it.last] - before_[it.first];
    return it.wraps ? between + before_.back() : between;
  }

 private:
  std::vector<double> prices_;
  std::vector<double> before_;
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

/// Bytes that no choice can move less than: the dual value of prices, whatever they are.
///
/// Room that is paid for is taken from what the epochs cost at least (Lagrange). The last bits of all roundings are
/// taken off. Cost: O(gaps + rows).
[[nodiscard]] inline double certified_bytes(const retention_problem& problem, const row_prices& price) noexcept
{
  auto value = static_cast<double>(problem.constant_bytes());
  double largest = value;
  for (const retention_problem::epoch& it : problem.epochs()) {
    const double least = least_cost(problem.gaps().subspan(it.begin, it.end - it.begin), it.writes_back, price);
    value = __builtin_fma(static_cast<double>(it.size), least, value);
    largest = std::max(largest, value);
  }
  for (std::size_t row = 0; row < problem.room().size(); ++row)
    value = __builtin_fma(-static_cast<double>(problem.room()[row]), price.prices()[row], value);
  const double errors = static_cast<double>(problem.epochs().size() + problem.room().size() + 1) * 0x1p-50;
  return std::max(__builtin_fma(-largest, errors, value), static_cast<double>(problem.constant_bytes()));
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
