// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/device_only_input.hpp>
#include <chunkmem/transfer/kept_gaps.hpp>
#include <chunkmem/transfer/price_ascent.hpp>
#include <chunkmem/transfer/retention_plan.hpp>
#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Chooses which chunks live on the device alone where the host has no room for every home, and what else stays then.
///
/// Such a chunk moves nothing and takes its room throughout. Prices of the room and of homes say what each costs more
/// than with a home; sets of them are tried in the order of that, cheapest first, each with a plan of its own for all
/// other chunks, and sets that prices prove to be no better are left out. Source: branch and bound with Lagrange bounds
/// (Geoffrion 1974). Cost: at most `visits` / gaps plans, one at least, and `most_steps` steps of O(gaps of a chunk log
/// rows).
class device_only_search {
 public:
  static constexpr std::size_t visits = 10'000;
  static constexpr std::size_t most_plans = 40;
  static constexpr std::size_t most_steps = 50'000;

  /// @param problem, price   of `input`; they outlive the search
  device_only_search(const retention_input& input, const retention_problem& problem, const row_prices& price,
                     const retention_effort& effort)
      : input_{input},
        problem_{problem},
        effort_{effort},
        trial_{problem},
        chosen_(input.chunk_bytes.size(), 0),
        missing_{problem.home_bytes() - problem.home_room()},
        plans_left_{std::clamp<std::size_t>(visits / (problem.gaps().size() + 1), 1, most_plans)}
  {
    row_prices free_homes{problem.room().size()};
    free_homes.set(price.prices());
    bound_ = certified_bytes(problem, free_homes);
    for (const retention_problem::home& it : problem.homes()) items_.push_back({it, regret_of(it, free_homes)});
    std::ranges::sort(items_, [](const item& left, const item& right) {
      return left.regret != right.regret ? left.regret < right.regret : left.home.chunk < right.home.chunk;
    });
    bytes_behind_.assign(items_.size() + 1, 0);
    for (std::size_t at = items_.size(); at-- > 0;) bytes_behind_[at] = bytes_behind_[at + 1] + items_[at].home.size;
  }

  /// @throws out_of_memory   no set was found that fits
  retention_plan operator()()
  {
    descend(0, 0, bound_);
    if (!found_) {
      const std::uint64_t room = std::ranges::min(input_.host_bytes);
      throw out_of_memory{{tier::host, missing_, room, room, room + missing_, false}};
    }
    best_.is_optimal = is_whole_ && plans_left_ > 0 && steps_left_ > 0;
    return std::move(best_);
  }

 private:
  struct item {
    retention_problem::home home;
    double regret;  // what a byte of it costs more on the device alone [moves of a byte]
  };

  double regret_of(const retention_problem::home& it, const row_prices& free_homes) const noexcept
  {
    double kept = 0;
    for (std::uint32_t at = it.begin; at < it.end; ++at)
      for (std::uint32_t which = problem_.epochs()[at].begin; which < problem_.epochs()[at].end; ++which)
        kept += free_homes(problem_.gaps()[which]);
    return kept - least_cost(problem_, it, free_homes);
  }

  [[nodiscard]] bool is_hopeless(double bound) const noexcept
  {
    return found_ && bound > __builtin_fma(-0.999, static_cast<double>(problem_.unit_bytes()),
                                           static_cast<double>(best_.moved_bytes));
  }

  /// Sets that take some of the items from `at` on. @param bytes, bound   of what is chosen so far
  void descend(std::size_t at, std::uint64_t bytes, double bound)
  {
    if (bytes >= missing_) return plan(bytes);
    for (std::size_t next = at; next < items_.size(); ++next) {
      const item& it = items_[next];
      const auto rest = static_cast<double>(missing_ - bytes);
      if (bytes + bytes_behind_[next] < missing_ || is_hopeless(__builtin_fma(it.regret, rest, bound))) return;
      if (plans_left_ == 0 || steps_left_ == 0) return;
      --steps_left_;
      if (!keep(it.home)) continue;
      chosen_[it.home.chunk] = 1;
      descend(next + 1, bytes + it.home.size, __builtin_fma(it.regret, static_cast<double>(it.home.size), bound));
      chosen_[it.home.chunk] = 0;
      for (std::uint32_t which = first_gap(it.home); which < last_gap(it.home); ++which) trial_.drop(which);
    }
  }

  [[nodiscard]] std::uint32_t first_gap(const retention_problem::home& it) const noexcept
  {
    return it.begin < it.end ? problem_.epochs()[it.begin].begin : 0;
  }
  [[nodiscard]] std::uint32_t last_gap(const retention_problem::home& it) const noexcept
  {
    return it.begin < it.end ? problem_.epochs()[it.end - std::size_t{1}].end : 0;
  }

  /// Keeps all gaps of a chunk, or none of them. @return   it did
  bool keep(const retention_problem::home& it) noexcept
  {
    for (std::uint32_t which = first_gap(it); which < last_gap(it); ++which)  // gaps of one chunk share no row
      if (!trial_.fits(which)) return false;
    for (std::uint32_t which = first_gap(it); which < last_gap(it); ++which) trial_.keep(which);
    return true;
  }

  /// Plans all others. What the set can do without has a home after all.
  void plan(std::uint64_t bytes)
  {
    --plans_left_;
    std::vector<std::uint8_t> device_only = chosen_;
    for (std::size_t at = items_.size(); at-- > 0;) {
      const retention_problem::home& it = items_[at].home;
      if (device_only[it.chunk] == 0 || bytes - it.size < missing_) continue;
      device_only[it.chunk] = 0;
      bytes -= it.size;
    }
    const device_only_input others{input_, device_only};
    retention_plan plan = plan_retention(retention_problem{others.input()}, effort_);
    is_whole_ = is_whole_ && plan.is_optimal;
    if (found_ && plan.moved_bytes >= best_.moved_bytes) return;
    plan.stays = others.stays(plan.stays, device_only);
    plan.device_only = std::move(device_only);
    best_ = std::move(plan);
    found_ = true;
  }

  const retention_input& input_;
  const retention_problem& problem_;
  retention_effort effort_;
  kept_gaps trial_;
  std::vector<std::uint8_t> chosen_;  // by chunk
  std::uint64_t missing_;             // bytes that have to live on the device alone
  std::size_t plans_left_;
  std::size_t steps_left_ = most_steps;
  std::vector<item> items_;
  std::vector<std::uint64_t> bytes_behind_;
  double bound_ = 0;  // what all move at least, were there room for every home
  retention_plan best_;
  bool found_ = false;
  bool is_whole_ = true;  // each plan was proven to be the best with its set
};

/// Chooses what stays, and where the host has no room for every home which chunks live on the device alone.
///
/// Prices are found for the rows and for homes together, so that `certified_bytes` holds for every such choice. Cost:
/// as plan_retention of a problem where the host has room; else that of a few, see device_only_search.
/// @throws out_of_memory   as retention_problem, or no choice was found that fits
[[nodiscard]] inline retention_plan plan_retention(const retention_input& input, const retention_effort& effort = {})
{
  const retention_problem problem{input};
  if (problem.homes().empty()) return plan_retention(problem, effort);
  price_ascent ascent{problem};
  const std::size_t climbs =
      std::min(effort.climbs, std::max<std::size_t>(40, visits_for_climbs / (ascent.terms() + 1)));
  for (const double width : {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}) ascent.climb(width, climbs);
  retention_plan plan = device_only_search{input, problem, ascent.best(), effort}();
  plan.certified_bytes = certified_bytes(problem, ascent.best());
  plan.prices.assign(ascent.best().prices().begin(), ascent.best().prices().end());
  plan.prices.push_back(ascent.best().home());
  return plan;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
