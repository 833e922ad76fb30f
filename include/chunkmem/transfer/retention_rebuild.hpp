// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/gap_regrets.hpp>
#include <chunkmem/transfer/kept_gaps.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Local search over plateaus: drops a few gaps that lie over each other, keeps again what saves most but now and then
/// passes over something, and stays with it unless much more moves, or as much and the largest chunk finds room in
/// fewer rows.
///
/// Good where chunks of several sizes or epochs of several gaps share the room, so that many choices cost nearly the
/// same and single exchanges find nothing better. Only gaps about which prices know little take part; chance comes from
/// a counter, the same for everybody. Source: ruin and recreate (Schrimpf et al. 2000), passing over as in Christiaens
/// and Vanden Berghe 2020. Cost: O(gaps that take part) for each attempt.
class retention_rebuild {
 public:
  static constexpr std::size_t most_gaps = 512;
  static constexpr std::uint32_t most_dropped = 20;
  static constexpr std::uint32_t passes_over = 12;  ///< one in so many
  static constexpr std::size_t most_rows = 4'096;   ///< in more rows room is not looked at

  retention_rebuild(const retention_problem& problem, const row_prices& price)
      : problem_{problem}, gaps_{gap_regrets{problem, price}.least_known(most_gaps)}
  {
    std::vector<std::uint8_t> takes_part(problem.gaps().size(), 0);
    for (const std::uint32_t which : gaps_) takes_part[which] = 1;
    for (std::uint32_t at = 0; at < problem.epochs().size(); ++at) {
      const retention_problem::epoch& it = problem.epochs()[at];
      double gained = it.writes_back ? 1 : 0;
      std::uint32_t members = 0;
      for (std::uint32_t which = it.begin; which < it.end; ++which) {
        const retention_problem::gap& one = problem.gaps()[which];
        const double mine = (one.loads ? 1.0 : 0.0) - price(one);
        gained += mine;
        members += takes_part[which];
        if (takes_part[which] != 0 && it.end - it.begin > 1) items_.push_back({mine, which, false});
      }
      if (members > 0) items_.push_back({gained, at, true});
      largest_ = std::max(largest_, it.size);
    }
    if (problem.unit_bytes() > 0) unit_ = static_cast<std::int64_t>(problem.unit_bytes());
    wanted_ = static_cast<std::int64_t>(largest_) / unit_;
    std::ranges::sort(items_, [](const item& left, const item& right) {
      if (left.gained != right.gained) return left.gained > right.gained;
      return left.is_epoch != right.is_epoch ? left.is_epoch : left.index < right.index;
    });
  }

  /// Leaves the best choice found, which moves no more than the one given.
  void improve(kept_gaps& choice, std::size_t attempts)
  {
    if (gaps_.size() < 2) return;
    kept_gaps now = choice;
    measure(now);
    for (std::size_t attempt = 0; attempt < attempts; ++attempt) {
      const std::uint64_t before = now.moved_bytes();
      const std::int64_t shortage_before = shortage_;
      changes_.clear();
      ruin(now);
      recreate(now);
      const std::uint64_t slack = 2 * largest_ * (attempts - attempt) / attempts;  // less and less
      if (now.moved_bytes() < choice.moved_bytes())
        choice = now;
      else if (now.moved_bytes() > before && now.moved_bytes() > choice.moved_bytes() + slack)
        undo(now);
      else if (now.moved_bytes() == before && shortage_ > shortage_before)
        undo(now);
    }
  }

 private:
  struct item {
    double gained;  // for each byte, at the prices
    std::uint32_t index;
    bool is_epoch;
  };
  struct change {
    std::uint32_t which;
    bool kept;
  };

  std::uint32_t roll(std::uint32_t end)
  {
    counter_ += 0x9E3779B97F4A7C15U;  // splitmix64 (Steele et al. 2014)
    std::uint64_t bits = counter_;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    return static_cast<std::uint32_t>((bits ^ (bits >> 31)) >> 32) % end;
  }

  void ruin(kept_gaps& choice)
  {
    const auto size = static_cast<std::uint32_t>(gaps_.size());
    const std::uint32_t seed = gaps_[roll(size)];
    if (choice.is_kept(seed)) drop(choice, seed);
    std::uint32_t left = roll(1 + roll(most_dropped));  // often few: the last steps of an even spread are single ones
    const std::uint32_t start = roll(size);
    for (std::uint32_t at = 0; at < size && left > 0; ++at) {
      const std::uint32_t which = gaps_[(start + at) % size];
      if (!choice.is_kept(which) || !overlap(problem_.gaps()[seed], problem_.gaps()[which]) || roll(2) == 0) continue;
      drop(choice, which);
      --left;
    }
  }

  void recreate(kept_gaps& choice)
  {
    missing_.clear();
    for (std::uint32_t at = 0; at < items_.size(); ++at)
      if (items_[at].is_epoch ? choice.dropped_of(items_[at].index) > 0 : !choice.is_kept(items_[at].index))
        missing_.push_back(at);
    if (roll(2) == 0)  // by chance instead of by price
      for (auto left = static_cast<std::uint32_t>(missing_.size()); left > 1; --left)
        std::swap(missing_[left - 1], missing_[roll(left)]);
    for (const std::uint32_t at : missing_) {
      const item& it = items_[at];
      if (roll(passes_over) == 0) continue;
      if (it.is_epoch)
        keep_epoch(choice, it.index);
      else if (!choice.is_kept(it.index) && choice.saving(it.index) > 0 && choice.fits(it.index))
        keep(choice, it.index);
    }
  }

  void keep_epoch(kept_gaps& choice, std::uint32_t at)
  {
    const retention_problem::epoch& mine = problem_.epochs()[at];
    for (std::uint32_t which = mine.begin; which < mine.end; ++which)
      if (!choice.is_kept(which) && !choice.fits(which)) return;
    for (std::uint32_t which = mine.begin; which < mine.end; ++which)
      if (!choice.is_kept(which)) keep(choice, which);
  }

  void undo(kept_gaps& choice)
  {
    for (; !changes_.empty(); changes_.pop_back()) {
      shift(changes_.back().which, changes_.back().kept ? 1 : -1);
      if (changes_.back().kept)
        choice.drop(changes_.back().which);
      else
        choice.keep(changes_.back().which);
    }
  }

  void measure(const kept_gaps& choice)
  {
    free_.assign(problem_.room().begin(), problem_.room().end());
    shortage_ = 0;
    if (free_.size() > most_rows) free_.clear();
    for (std::int64_t& it : free_) {
      it /= unit_;
      shortage_ += short_of(it);
    }
    for (std::uint32_t which = 0; which < problem_.gaps().size(); ++which)
      if (choice.is_kept(which)) shift(which, -1);
  }
  [[nodiscard]] std::int64_t short_of(std::int64_t free) const noexcept
  {
    const std::int64_t missing = std::max<std::int64_t>(0, wanted_ - free);
    return missing * missing;
  }
  void shift(std::uint32_t which, std::int64_t sign) noexcept
  {
    if (free_.empty()) return;
    const retention_problem::gap& it = problem_.gaps()[which];
    const std::int64_t size = sign * static_cast<std::int64_t>(problem_.epochs()[it.epoch].size) / unit_;
    const auto over = [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) {
        shortage_ -= short_of(free_[row]);
        free_[row] += size;
        shortage_ += short_of(free_[row]);
      }
    };
    over(it.first, it.wraps ? free_.size() : it.last);
    if (it.wraps) over(0, it.last);
  }

  void keep(kept_gaps& choice, std::uint32_t which)
  {
    shift(which, -1);
    choice.keep(which);
    changes_.push_back({which, true});
  }
  void drop(kept_gaps& choice, std::uint32_t which)
  {
    shift(which, 1);
    choice.drop(which);
    changes_.push_back({which, false});
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
  std::vector<item> items_;
  std::vector<std::uint32_t> missing_;  // items that are not kept
  std::vector<change> changes_;
  std::uint64_t largest_ = 0;
  std::uint64_t counter_ = 0;
  std::int64_t unit_ = 1;
  std::int64_t wanted_ = 0;         // [units] the largest chunk
  std::vector<std::int64_t> free_;  // [units] in each row; empty where there are too many
  std::int64_t shortage_ = 0;       // squares of what rows lack for the largest chunk
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
