// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// What each gap costs more than the cheapest way of its epoch, at given prices, if it has to be kept or has to be
/// dropped.
///
/// One of the two is 0. Where the other is large the prices know the answer; where it is small they do not, and a
/// search is worth its time. Both in moves of a byte. Cost: O(gaps), memory 16 bytes for each.
class gap_regrets {
 public:
  gap_regrets(const retention_problem& problem, const row_prices& price)
      : kept_(problem.gaps().size()), dropped_(problem.gaps().size())
  {
    for (const retention_problem::epoch& it : problem.epochs()) {
      double kept = 0;
      double mixed = it.writes_back ? 1 : 0;
      for (std::uint32_t which = it.begin; which < it.end; ++which) {
        const double cost = price(problem.gaps()[which]);
        kept += cost;
        mixed += std::min(cost, load_of(problem, which));
      }
      const double least = std::min(kept, mixed);
      for (std::uint32_t which = it.begin; which < it.end; ++which) {
        const double cost = price(problem.gaps()[which]);
        const double rest = mixed - std::min(cost, load_of(problem, which));
        kept_[which] = std::max(0.0, std::min(kept, rest + cost) - least);
        dropped_[which] = std::max(0.0, rest + load_of(problem, which) - least);
      }
    }
  }

  [[nodiscard]] double if_kept(std::size_t which) const noexcept { return kept_[which]; }
  [[nodiscard]] double if_dropped(std::size_t which) const noexcept { return dropped_[which]; }
  /// How far the prices are from changing their mind.
  [[nodiscard]] double either(std::size_t which) const noexcept { return std::max(kept_[which], dropped_[which]); }

  /// The gaps about which the prices know least, at most `count` of them; the least known first.
  [[nodiscard]] std::vector<std::uint32_t> least_known(std::size_t count) const
  {
    std::vector<std::uint32_t> found(kept_.size());
    for (std::uint32_t which = 0; which < found.size(); ++which) found[which] = which;
    const auto before = [&](std::uint32_t left, std::uint32_t right) {
      return either(left) != either(right) ? either(left) < either(right) : left < right;
    };
    const std::size_t taken = std::min(count, found.size());
    std::ranges::partial_sort(found, found.begin() + static_cast<std::ptrdiff_t>(taken), before);
    found.resize(taken);
    return found;
  }

 private:
  static double load_of(const retention_problem& problem, std::uint32_t which) noexcept
  {
    return problem.gaps()[which].loads ? 1 : 0;
  }

  std::vector<double> kept_;
  std::vector<double> dropped_;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
