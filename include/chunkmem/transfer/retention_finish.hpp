// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/gap_regrets.hpp>
#include <chunkmem/transfer/kept_gaps.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Tries all choices of the gaps that are still open, and leaves out what prices prove to be no better.
///
/// A gap is closed where the dual value of the other answer reaches what is known already (reduced cost fixing). If
/// more than `most_open` stay open, those that prices know best are left as they are, and the result is no proof.
/// Source: branch and bound with Lagrange bounds (Geoffrion 1974). Cost: O(log rows) for each node, at most `nodes` of
/// them.
class retention_finish {
 public:
  static constexpr std::size_t most_open = 64;

  retention_finish(const retention_problem& problem, const row_prices& price)
      : problem_{problem}, price_{price}, regrets_{problem, price}, answers_(problem.gaps().size(), open)
  {
    for (std::size_t row = 0; row < problem.room().size(); ++row)
      paid_ = __builtin_fma(-static_cast<double>(problem.room()[row]), price.prices()[row], paid_);
  }

  /// Improves a choice where it can. @return   no choice moves fewer bytes
  bool operator()(kept_gaps& choice, std::size_t nodes)
  {
    best_ = &choice;
    nodes_ = nodes;
    kept_gaps trial{problem_};
    bool is_proof = true;
    if (close_gaps(choice, trial, is_proof)) return true;
    double bound = paid_;
    for (std::uint32_t at = 0; at < problem_.epochs().size(); ++at)
      bound = __builtin_fma(size_of(at), cost_of(at), bound);
    sure_ = 0;
    for (std::uint32_t which = 0; which < answers_.size(); ++which)
      if (answers_[which] == dropped) sure_ += (problem_.gaps()[which].loads ? epoch_of(which).size : 0);
    for (const retention_problem::epoch& it : problem_.epochs())
      if (it.writes_back && count_dropped(it) > 0) sure_ += it.size;
    kept_gaps found = choice;
    best_ = &found;
    descend(trial, 0, bound);
    choice = std::move(found);
    return is_proof && nodes_ > 0;
  }

 private:
  enum answer : std::uint8_t { open, kept, dropped };

  [[nodiscard]] double size_of(std::uint32_t at) const noexcept
  {
    return static_cast<double>(problem_.epochs()[at].size);
  }
  [[nodiscard]] const retention_problem::epoch& epoch_of(std::uint32_t which) const noexcept
  {
    return problem_.epochs()[problem_.gaps()[which].epoch];
  }
  /// What a better choice may move at most, with a little for roundings [bytes].
  [[nodiscard]] double target() const noexcept
  {
    return __builtin_fma(-0.999, static_cast<double>(problem_.unit_bytes()), static_cast<double>(best_->moved_bytes()));
  }

  /// Fills `answers_` and `free_`, and keeps in `trial` what is closed. @return   nothing better is possible
  bool close_gaps(const kept_gaps& choice, kept_gaps& trial, bool& is_proof)
  {
    double bound = paid_;
    for (std::uint32_t at = 0; at < problem_.epochs().size(); ++at)
      bound = __builtin_fma(size_of(at), cost_of(at), bound);
    if (bound > target()) return true;
    free_.clear();
    for (std::uint32_t which = 0; which < answers_.size(); ++which) {
      const auto size = static_cast<double>(epoch_of(which).size);
      const bool may_keep = __builtin_fma(size, regrets_.if_kept(which), bound) <= target();
      const bool may_drop = __builtin_fma(size, regrets_.if_dropped(which), bound) <= target();
      if (!may_keep && !may_drop) return true;
      answers_[which] = may_keep && may_drop ? open : may_keep ? kept : dropped;
      if (answers_[which] == open) free_.push_back(which);
      if (answers_[which] != kept) continue;
      if (!trial.fits(which)) return true;
      trial.keep(which);
    }
    std::ranges::sort(free_, [&](std::uint32_t left, std::uint32_t right) {
      const double one = regrets_.either(left);
      const double two = regrets_.either(right);
      return one != two ? one > two : left < right;
    });
    if (free_.size() > most_open) {
      is_proof = false;
      const std::size_t excess = free_.size() - most_open;
      for (std::size_t at = 0; at < excess; ++at) leave_as_is(choice, trial, free_[at]);
      free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(excess));
    }
    return false;
  }

  void leave_as_is(const kept_gaps& choice, kept_gaps& trial, std::uint32_t which)
  {
    answers_[which] = choice.is_kept(which) && trial.fits(which) ? kept : dropped;
    if (answers_[which] == kept) trial.keep(which);
  }

  /// The least cost of a byte of an epoch's chunk with the answers so far.
  [[nodiscard]] double cost_of(std::uint32_t at) const noexcept
  {
    const retention_problem::epoch& it = problem_.epochs()[at];
    double whole = 0;
    double mixed = it.writes_back ? 1 : 0;
    bool may_be_whole = true;
    for (std::uint32_t which = it.begin; which < it.end; ++which) {
      const double load = problem_.gaps()[which].loads ? 1 : 0;
      const double cost = price_(problem_.gaps()[which]);
      may_be_whole = may_be_whole && answers_[which] != dropped;
      whole += cost;
      mixed += answers_[which] == kept ? cost : answers_[which] == dropped ? load : std::min(cost, load);
    }
    return may_be_whole ? std::min(whole, mixed) : mixed;
  }

  [[nodiscard]] std::uint32_t count_dropped(const retention_problem::epoch& it) const noexcept
  {
    std::uint32_t count = 0;
    for (std::uint32_t which = it.begin; which < it.end; ++which) count += answers_[which] == dropped ? 1U : 0U;
    return count;
  }

  void descend(kept_gaps& trial, std::size_t depth, double bound)
  {
    if (nodes_ == 0 || bound > target() || sure_ >= best_->moved_bytes()) return;
    --nodes_;
    if (depth == free_.size()) {
      if (trial.moved_bytes() < best_->moved_bytes()) *best_ = trial;
      return;
    }
    const std::uint32_t which = free_[depth];
    const bool keep_first = regrets_.if_kept(which) <= regrets_.if_dropped(which);
    try_answer(trial, depth, bound, keep_first);
    try_answer(trial, depth, bound, !keep_first);
  }

  void try_answer(kept_gaps& trial, std::size_t depth, double bound, bool keep)
  {
    const std::uint32_t which = free_[depth];
    if (keep && !trial.fits(which)) return;
    const std::uint32_t mine = problem_.gaps()[which].epoch;
    const double before = cost_of(mine);
    const std::uint64_t sure = sure_;
    if (keep)
      trial.keep(which);
    else
      sure_ += (problem_.gaps()[which].loads ? epoch_of(which).size : 0) +
               (epoch_of(which).writes_back && count_dropped(epoch_of(which)) == 0 ? epoch_of(which).size : 0);
    answers_[which] = keep ? kept : dropped;
    const double more = cost_of(mine) - before;
    descend(trial, depth + 1, __builtin_fma(size_of(mine), more, bound));
    answers_[which] = open;
    sure_ = sure;
    if (keep) trial.drop(which);
  }

  const retention_problem& problem_;
  const row_prices& price_;
  gap_regrets regrets_;
  std::vector<answer> answers_;
  std::vector<std::uint32_t> free_;
  double paid_ = 0;         // for the room of all rows, below zero [bytes]
  std::uint64_t sure_ = 0;  // bytes that the answers so far move
  kept_gaps* best_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
