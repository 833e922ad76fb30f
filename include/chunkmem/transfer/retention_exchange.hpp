// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/gap_regrets.hpp>
#include <chunkmem/transfer/kept_gaps.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Local search: keeps a dropped gap or epoch, drops what is cheapest in its way, keeps what then fits, and stays with
/// it where fewer bytes move.
///
/// Only gaps about which prices know little take part. Cost: O(gaps that take part) for each attempt, times 4 removals.
class retention_exchange {
 public:
  static constexpr std::size_t most_gaps = 512;
  static constexpr std::size_t most_removals = 4;

  retention_exchange(const retention_problem& problem, const row_prices& price)
      : problem_{problem},
        gaps_{gap_regrets{problem, price}.least_known(most_gaps)},
        cost_(problem.gaps().size()),
        is_wanted_(problem.gaps().size())
  {
    for (const std::uint32_t which : gaps_) cost_[which] = price(problem.gaps()[which]);
    order_ = gaps_;
    std::ranges::stable_sort(
        order_, {}, [&](std::uint32_t which) { return cost_[which] - (problem.gaps()[which].loads ? 1.0 : 0.0); });
  }

  /// @param attempts   at most   @return   attempts made
  std::size_t improve(kept_gaps& choice, std::size_t attempts)
  {
    std::size_t made = 0;
    for (bool gained = true; gained;) {
      gained = false;
      for (const std::uint32_t which : gaps_) {
        if (choice.is_kept(which)) continue;
        if (made++ >= attempts) return attempts;
        wanted_.assign(1, which);
        gained = attempt(choice) || gained;
        const retention_problem::epoch& mine = problem_.epochs()[problem_.gaps()[which].epoch];
        if (choice.is_kept(which) || choice.dropped_of(problem_.gaps()[which].epoch) < 2) continue;
        wanted_.clear();
        for (std::uint32_t at = mine.begin; at < mine.end; ++at)
          if (!choice.is_kept(at)) wanted_.push_back(at);
        gained = attempt(choice) || gained;
      }
    }
    return made;
  }

 private:
  struct change {
    std::uint32_t which;
    bool kept;
  };

  bool attempt(kept_gaps& choice)
  {
    const std::uint64_t before = choice.moved_bytes();
    changes_.clear();
    for (const std::uint32_t which : wanted_) is_wanted_[which] = 1;
    bool fits = true;
    std::size_t removals = 0;
    for (const std::uint32_t which : wanted_) {
      while (fits && !choice.fits(which))
        fits = removals++ < most_removals && remove_over(choice, choice.tightest_row(which));
      if (!fits) break;
      keep(choice, which);
    }
    for (const std::uint32_t which : wanted_) is_wanted_[which] = 0;
    if (fits) refill(choice);
    if (fits && choice.moved_bytes() < before) return true;
    for (; !changes_.empty(); changes_.pop_back()) {
      if (changes_.back().kept)
        choice.drop(changes_.back().which);
      else
        choice.keep(changes_.back().which);
    }
    return false;
  }

  bool remove_over(kept_gaps& choice, std::uint32_t row)
  {
    std::uint32_t cheapest = UINT32_MAX;
    double least = 0;
    for (const std::uint32_t which : gaps_) {
      if (!choice.is_kept(which) || is_wanted_[which] != 0 || !covers(problem_.gaps()[which], row)) continue;
      const double lost = __builtin_fma(-static_cast<double>(choice.size_of(which)), cost_[which],
                                        static_cast<double>(choice.loss(which)));
      if (cheapest != UINT32_MAX && lost >= least) continue;
      cheapest = which;
      least = lost;
    }
    if (cheapest == UINT32_MAX) return false;
    choice.drop(cheapest);
    changes_.push_back({cheapest, false});
    return true;
  }

  void refill(kept_gaps& choice)
  {
    const std::size_t removed = changes_.size();
    for (const std::uint32_t which : order_) {
      if (choice.is_kept(which) || choice.saving(which) == 0) continue;
      const auto freed = [&](std::size_t at) {
        return !changes_[at].kept && overlap(problem_.gaps()[changes_[at].which], problem_.gaps()[which]);
      };
      bool may_fit = false;
      for (std::size_t at = 0; at < removed && !may_fit; ++at) may_fit = freed(at);
      if (may_fit && choice.fits(which)) keep(choice, which);
    }
  }

  void keep(kept_gaps& choice, std::uint32_t which)
  {
    choice.keep(which);
    changes_.push_back({which, true});
  }

  static bool covers(const retention_problem::gap& it, std::uint32_t row) noexcept
  {
    return it.wraps ? row >= it.first || row < it.last : row >= it.first && row < it.last;
  }
  static bool overlap(const retention_problem::gap& one, const retention_problem::gap& two) noexcept
  {
    return covers(one, two.first) || covers(two, one.first);
  }

  const retention_problem& problem_;
  std::vector<std::uint32_t> gaps_;
  std::vector<std::uint32_t> order_;  // by what a byte saves
  std::vector<double> cost_;          // to keep a byte
  std::vector<std::uint8_t> is_wanted_;
  std::vector<std::uint32_t> wanted_;
  std::vector<change> changes_;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
