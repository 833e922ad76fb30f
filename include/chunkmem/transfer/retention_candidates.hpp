// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/kept_gaps.hpp>
#include <chunkmem/transfer/retention_sweep.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Choices of gaps made in one pass over prices, and the best of them so far.
///
/// Greedy takes what saves most for what its room costs, gaps and whole epochs; a sweep decides in time
/// (retention_sweep). Both then keep what still fits. Cost: O(gaps log gaps) for each.
class retention_candidates {
 public:
  explicit retention_candidates(const retention_problem& problem) : problem_{problem}, best_{problem}, sweep_{problem}
  {
  }

  [[nodiscard]] const kept_gaps& best() const noexcept { return best_; }
  /// Takes a choice where it moves fewer bytes. @return   it did
  bool offer(const kept_gaps& choice)
  {
    if (choice.moved_bytes() >= best_.moved_bytes()) return false;
    best_ = choice;
    return true;
  }

  /// By saving over price; what costs nothing comes first.
  void greedy(const row_prices& price)
  {
    rank(price);
    kept_gaps choice{problem_};
    for (const item& it : items_) {
      if (it.is_epoch)
        choice.keep_epoch(it.index);
      else if (!choice.is_kept(it.index) && choice.fits(it.index))
        choice.keep(it.index);
    }
    choice.fill(order_);
    offer(choice);
  }

  /// In time. @param cost_weight   price that one move of a byte is worth; 0 is Belady's rule
  void sweep(const row_prices& price, double cost_weight)
  {
    rank(price);
    const std::vector<std::uint8_t>& stays = sweep_(price, cost_weight);
    kept_gaps choice{problem_};
    for (std::uint32_t which = 0; which < stays.size(); ++which)
      if (stays[which] != 0) choice.keep(which);
    choice.fill(order_);
    offer(choice);
  }

 private:
  struct item {
    double worth;
    std::uint32_t index;
    bool is_epoch;
  };

  static double over(double saved, double cost) noexcept
  {
    return cost > 0 ? saved / cost : std::numeric_limits<double>::infinity();
  }

  void rank(const row_prices& price)
  {
    items_.clear();
    for (std::uint32_t at = 0; at < problem_.epochs().size(); ++at) {
      const retention_problem::epoch& it = problem_.epochs()[at];
      double cost = 0;
      double saved = it.writes_back ? 1 : 0;
      for (std::uint32_t which = it.begin; which < it.end; ++which) {
        const retention_problem::gap& one = problem_.gaps()[which];
        const double mine = price(one);
        cost += mine;
        saved += one.loads ? 1 : 0;
        if (one.loads && it.end - it.begin > 1) items_.push_back({over(1, mine), which, false});
      }
      items_.push_back({over(saved, cost), at, true});
    }
    std::ranges::sort(items_, [](const item& left, const item& right) {
      if (left.worth != right.worth) return left.worth > right.worth;
      return left.is_epoch != right.is_epoch ? left.is_epoch : left.index < right.index;
    });
    order_.clear();
    for (const item& it : items_) {
      if (!it.is_epoch)
        order_.push_back(it.index);
      else
        for (std::uint32_t which = problem_.epochs()[it.index].begin; which < problem_.epochs()[it.index].end; ++which)
          order_.push_back(which);
    }
  }

  const retention_problem& problem_;
  kept_gaps best_;
  retention_sweep sweep_;
  std::vector<item> items_;
  std::vector<std::uint32_t> order_;  // gaps by worth, some of them twice
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
