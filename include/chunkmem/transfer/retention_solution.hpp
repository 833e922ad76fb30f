// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/kept_intervals.hpp>
#include <chunkmem/transfer/lagrangian_dual.hpp>
#include <chunkmem/transfer/local_search.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/retention_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

namespace transfer {

/// The chunks that stay on the device between their uses, and the bytes that the plan moves.
///
///     const retention_solution plan = plan_retention(input);
///     const double gap = static_cast<double>(plan.moved_bytes) / plan.certified_bytes;
struct retention_solution {
  sequence<std::uint8_t> retained;  ///< by use: 1 if the chunk stays until its next use on the device
  /// the same before delay_loads(), for as many bytes; empty where some chunks live on the device alone
  sequence<std::uint8_t> undelayed = {};
  /// by chunk: 1 if the chunk never leaves and has no host copy; empty: every chunk has a host copy
  sequence<std::uint8_t> device_only = {};
  std::uint64_t moved_bytes = 0;  ///< in one iteration, both directions
  double certified_bytes = 0;     ///< no plan of one iteration moves less; see certified_bytes()
  /// of the rows, for the certificate; then the price of host copies, where there is no room for all host copies
  sequence<double> prices = {};
  bool is_optimal = false;  ///< proven: no plan of one iteration moves less. False: not proven
};

/// Limits of the search. The same numbers give the same plan on every machine.
///
///     const retention_solution plan = plan_retention(input, {.climbs = 40, .rebuilds = 0});
struct retention_effort {
  /// steps towards better prices, for each of seven widths; fewer, but at least 40, for large problems
  std::size_t climbs = 100;
  std::size_t rebuilds = 4'000;  ///< attempts of ruin_and_recreate
};

/// Prices that make an interval cost the accesses until its next use.
[[nodiscard]] inline row_prices time_as_price(const retention_problem& problem)
{
  const auto access_indices = problem.access_index_of_row();
  sequence<double> until_next(access_indices.size());
  for (std::size_t row = 0; row < access_indices.size(); ++row)
    until_next[row] = row + 1 < access_indices.size()
                          ? access_indices[row + 1] - access_indices[row]
                          : problem.access_count() - access_indices[row] + access_indices[0];
  row_prices price{access_indices.size()};
  price.set(until_next);
  return price;
}

/// Climbs at all widths, from coarse to fine, and calls `visit()` after each width.
template <class Visit>
void climb_all_widths(dual_ascent& ascent, std::size_t most_steps, Visit visit)
{
  constexpr std::size_t visited_terms = 1'000'000;  // by the steps of one width; more only where 40 steps need it
  const std::size_t steps = std::min(most_steps, std::max<std::size_t>(40, visited_terms / (ascent.terms() + 1)));
  for (const double width : {1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}) {
    ascent.climb(width, steps);
    visit();
  }
}

/// Chooses the chunks that stay, as if every chunk had a host copy.
///
///     const retention_solution plan = plan_retention(retention_problem{input});
///
/// 1. Ascent on the Lagrangian dual finds prices of the room. Each width of the ascent gives two choices: greedy by
///    price, and a sweep in time.
/// 2. More sweeps decide in time by distance and by cost, as demand paging would.
/// 3. ruin_and_recreate improves the best of these choices unless the prices prove it optimal; shorten() makes its
///    intervals short, and delay_loads() prefers chunks with an early next use.
///
/// A plan repeats in each iteration. Decisions that drift over many iterations can move fewer bytes, though on average
/// never fewer than `certified_bytes`. Cost: up to 700 values of the dual, O(classes + 1,200 rows) each, 25 passes of
/// O(intervals log intervals), and the effort; 0.2 to 0.5 s for 10^4 chunks at 10^3 accesses.
[[nodiscard]] inline retention_solution plan_retention(const retention_problem& problem,
                                                       const retention_effort& effort = {})
{
  retention_candidates candidates{problem};
  dual_ascent ascent{problem};
  climb_all_widths(ascent, effort.climbs, [&] {
    candidates.greedy(ascent.reached());
    candidates.sweep(ascent.reached(), 1);
  });
  const row_prices time = time_as_price(problem);
  for (const double theta : {0.125, 1.25, 1.5, 1.75, 2.0, 2.125, 2.25, 2.5, 3.0, 4.0})
    candidates.sweep(time, time.all() / theta);
  candidates.sweep(time, 0);
  kept_intervals choice = candidates.best();
  retention_solution plan{problem.retained()};
  plan.undelayed.assign(plan.retained);
  plan.certified_bytes = certified_bytes(problem, ascent.best());
  const auto unit = static_cast<double>(problem.unit_bytes());
  // Choices move whole units: one that moves less than a unit above the certificate cannot be improved.
  const double enough =
      __builtin_fma(0.998, unit, plan.certified_bytes) - static_cast<double>(problem.constant_bytes());
  ruin_and_recreate{problem, ascent.best()}.improve(choice, effort.rebuilds,
                                                    enough > 0 ? static_cast<std::uint64_t>(enough) : 0);
  const auto note = [&](sequence<std::uint8_t>& retained) {
    for (std::size_t which = 0; which < problem.intervals().size(); ++which)
      retained[problem.intervals()[which].use] = choice.is_kept(which) ? 1 : 0;
  };
  shorten(choice);
  note(plan.undelayed);
  delay_loads(choice);
  note(plan.retained);

  plan.moved_bytes = problem.constant_bytes() + choice.moved_bytes();
  plan.is_optimal = problem.intervals().empty() ||
                    plan.certified_bytes > __builtin_fma(-0.999, unit, static_cast<double>(plan.moved_bytes));
  plan.prices.assign(ascent.best().prices());
  return plan;
}

/// The same iteration with some chunks on the device alone.
///
///     const device_only_input others{input, device_only};
///     const retention_solution plan = plan_retention(retention_problem{others.input()});
///     retained = others.retained(plan.retained, device_only);
///
/// Each use of such a chunk lasts until the next use begins, so that there is nothing to choose for the chunk. Nothing
/// else changes. Cost: O(uses + chunks). @pre the iteration repeats, and the host uses none of these chunks
class device_only_input {
 public:
  /// @param device_only   by chunk: 1 if the chunk lives on the device alone
  device_only_input(const retention_input& what, std::span<const std::uint8_t> device_only) : what_{what}
  {
    const auto access_count = static_cast<std::uint32_t>(what.device_bytes.size());
    constexpr std::uint32_t none = UINT32_MAX;
    sequence<std::uint32_t> next(what.chunk_bytes.size(), none);  // where the chunk's next use begins
    uses_.assign(what.uses);
    sequence<retention_use> around;  // what the end of an iteration holds is there when the next one begins
    for (std::size_t index = uses_.size(); index-- > 0;) {
      retention_use& use = uses_[index];
      if (device_only[use.chunk] == 0) continue;
      const bool is_last = next[use.chunk] == none;
      if (use.kind != use_kind::drop) {
        use.end = std::max(use.end, is_last ? access_count : next[use.chunk]);
        if (is_last) around.push_back({use.chunk, 0, 0, use_kind::update});
      }
      next[use.chunk] = use.begin;
    }
    for (retention_use& use : around) use.end = next[use.chunk];
    erase_if(around, [](const retention_use& use) { return use.end == 0; });
    added_ = around.size();
    around.append(uses_);
    uses_.swap(around);
  }

  [[nodiscard]] retention_input input() const noexcept
  {
    return {what_.chunk_bytes, uses_, what_.device_bytes, {}, what_.repeats};
  }

  /// By use of the original iteration: 1 if the chunk stays. @param retained   by use of `input()`
  [[nodiscard]] sequence<std::uint8_t> retained(std::span<const std::uint8_t> retained,
                                                std::span<const std::uint8_t> device_only) const
  {
    const auto mine = retained.subspan(added_);
    sequence<std::uint8_t> all(mine);
    for (std::size_t index = 0; index < all.size(); ++index)
      if (device_only[what_.uses[index].chunk] != 0) all[index] = 1;
    return all;
  }

 private:
  const retention_input& what_;
  sequence<retention_use> uses_;
  std::size_t added_ = 0;
};

/// Chooses the chunks that live on the device alone, where the host has no room for every host copy.
///
///     const retention_solution plan = device_only_search{input, problem, prices, effort}();
///
/// Such a chunk moves no bytes and takes its room throughout. The prices of room and host copies give the extra cost of
/// a chunk without a host copy. Sets of chunks are tried in the order of this cost, the cheapest first. Each set has a
/// plan of its own for all other chunks. Sets that the prices exclude are left out. Buys: without chunks on the device
/// alone `transfer.step_over_reachable_worst` is 1.074 instead of 1.038, and its bound is 1.05. Source: branch and
/// bound with Lagrange bounds (Geoffrion 1974). Cost: at most `visits` / intervals plans, but at least one, and
/// `most_steps` steps of O(intervals of a chunk log rows).
class device_only_search {
 public:
  static constexpr std::size_t visits = 10'000;
  static constexpr std::size_t most_plans = 40;
  static constexpr std::size_t most_steps = 50'000;

  /// @param problem, price   of `input`; all three outlive the search
  device_only_search(const retention_input& input, const retention_problem& problem, const row_prices& price,
                     const retention_effort& effort)
      : input_{input},
        problem_{problem},
        effort_{effort},
        trial_{problem},
        chosen_(input.chunk_bytes.size(), 0),
        missing_{problem.host_copy_bytes() - problem.host_copy_room()},
        plans_left_{std::clamp<std::size_t>(visits / (problem.intervals().size() + 1), 1, most_plans)}
  {
    row_prices free_host_copies{problem.room().size()};
    free_host_copies.set(price.prices());
    bound_ = certified_bytes(problem, free_host_copies);
    for (const retention_problem::host_copy& host_copy : problem.host_copies())
      items_.push_back({host_copy, regret_of(host_copy, free_host_copies)});
    sort_records(std::span{items_}, [](const item& left, const item& right) {
      return left.regret != right.regret ? left.regret < right.regret : left.host_copy.chunk < right.host_copy.chunk;
    });
    bytes_behind_.assign(items_.size() + 1, 0);
    for (std::size_t index = items_.size(); index-- > 0;)
      bytes_behind_[index] = bytes_behind_[index + 1] + items_[index].host_copy.size;
  }

  /// @throws out_of_memory   no set that fits was found
  retention_solution operator()()
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
    retention_problem::host_copy host_copy;
    double regret;  // extra cost of a byte of the chunk on the device alone [moves of a byte]
  };

  double regret_of(const retention_problem::host_copy& host_copy, const row_prices& free_host_copies) const noexcept
  {
    double kept = 0;
    for (std::uint32_t index = host_copy.begin; index < host_copy.end; ++index)
      for (std::uint32_t which = problem_.epochs()[index].begin; which < problem_.epochs()[index].end; ++which)
        kept += free_host_copies(problem_.intervals()[which]);
    return kept - least_cost(problem_, host_copy, free_host_copies);
  }

  [[nodiscard]] bool is_hopeless(double bound) const noexcept
  {
    return found_ && bound > __builtin_fma(-0.999, static_cast<double>(problem_.unit_bytes()),
                                           static_cast<double>(best_.moved_bytes));
  }

  /// Tries the sets that take some of the items from `index` on. @param bytes, bound   of the items chosen so far
  void descend(std::size_t index, std::uint64_t bytes, double bound)
  {
    if (bytes >= missing_) return plan(bytes);
    for (std::size_t next = index; next < items_.size(); ++next) {
      const item& it = items_[next];
      const auto rest = static_cast<double>(missing_ - bytes);
      if (bytes + bytes_behind_[next] < missing_ || is_hopeless(__builtin_fma(it.regret, rest, bound))) return;
      if (plans_left_ == 0 || steps_left_ == 0) return;
      --steps_left_;
      if (!keep(it.host_copy)) continue;
      chosen_[it.host_copy.chunk] = 1;
      descend(next + 1, bytes + it.host_copy.size,
              __builtin_fma(it.regret, static_cast<double>(it.host_copy.size), bound));
      chosen_[it.host_copy.chunk] = 0;
      for (std::uint32_t which = first_interval(it.host_copy); which < last_interval(it.host_copy); ++which)
        trial_.drop(which);
    }
  }

  [[nodiscard]] std::uint32_t first_interval(const retention_problem::host_copy& host_copy) const noexcept
  {
    return host_copy.begin < host_copy.end ? problem_.epochs()[host_copy.begin].begin : 0;
  }
  [[nodiscard]] std::uint32_t last_interval(const retention_problem::host_copy& host_copy) const noexcept
  {
    return host_copy.begin < host_copy.end ? problem_.epochs()[host_copy.end - std::size_t{1}].end : 0;
  }

  /// Keeps all intervals of a chunk, or none. @return   all are kept
  bool keep(const retention_problem::host_copy& host_copy) noexcept
  {
    for (std::uint32_t which = first_interval(host_copy); which < last_interval(host_copy);
         ++which)  // intervals of one chunk share no row
      if (!trial_.fits(which)) return false;
    for (std::uint32_t which = first_interval(host_copy); which < last_interval(host_copy); ++which) trial_.keep(which);
    return true;
  }

  /// Plans all other chunks. Chunks that the set does not need get a host copy again.
  void plan(std::uint64_t bytes)
  {
    --plans_left_;
    sequence<std::uint8_t> device_only = chosen_;
    for (std::size_t index = items_.size(); index-- > 0;) {
      const retention_problem::host_copy& host_copy = items_[index].host_copy;
      if (device_only[host_copy.chunk] == 0 || bytes - host_copy.size < missing_) continue;
      device_only[host_copy.chunk] = 0;
      bytes -= host_copy.size;
    }
    const device_only_input others{input_, device_only};
    retention_solution plan = plan_retention(retention_problem{others.input()}, effort_);
    is_whole_ = is_whole_ && plan.is_optimal;
    if (found_ && plan.moved_bytes >= best_.moved_bytes) return;
    plan.retained = others.retained(plan.retained, device_only);
    plan.undelayed.clear();
    plan.device_only = std::move(device_only);
    best_ = std::move(plan);
    found_ = true;
  }

  const retention_input& input_;
  const retention_problem& problem_;
  retention_effort effort_;
  kept_intervals trial_;
  sequence<std::uint8_t> chosen_;  // by chunk
  std::uint64_t missing_;          // bytes that have to live on the device alone
  std::size_t plans_left_;
  std::size_t steps_left_ = most_steps;
  sequence<item> items_;
  sequence<std::uint64_t> bytes_behind_;
  double bound_ = 0;  // what all move at least, were there room for every host copy
  retention_solution best_;
  bool found_ = false;
  bool is_whole_ = true;  // each plan was proven to be the best with its set
};

/// Chooses the chunks that stay and, where the host has no room for every host copy, the chunks that live on the device
/// alone.
///
///     const retention_solution plan = plan_retention(retention_input{sizes, uses, device_bytes, host_bytes});
///
/// Prices are found for rows and host copies together, so that `certified_bytes` holds for every such choice. Cost:
/// that of one plan where the host has room; otherwise that of a few, see device_only_search.
/// @throws out_of_memory   as retention_problem, or no choice that fits was found
[[nodiscard]] inline retention_solution plan_retention(const retention_input& input,
                                                       const retention_effort& effort = {})
{
  const retention_problem problem{input};
  if (problem.host_copies().empty()) return plan_retention(problem, effort);
  dual_ascent ascent{problem};
  climb_all_widths(ascent, effort.climbs, [] {});
  retention_solution plan = device_only_search{input, problem, ascent.best(), effort}();
  plan.certified_bytes = certified_bytes(problem, ascent.best());
  plan.prices.assign(ascent.best().prices());
  plan.prices.push_back(ascent.best().host_copy());
  return plan;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
