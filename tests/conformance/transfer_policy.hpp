// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>
#include <conformance/trials.hpp>
#include <support/catch.hpp>
#include <support/oracles/random_iteration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace conformance {

using moves = std::vector<chunkmem::transfer::move>;

/// A start, the moves of demand paging from it, and the end.
struct demand_run {
  support::random_iteration iteration;
  chunkmem::chunk_cache<chunkmem::eviction::belady> start;
  chunkmem::chunk_cache<chunkmem::eviction::belady> end;
  support::cell_memory memory{{}, 0, 0};  ///< at the start
  moves demand;
  bool host_was_short = false;

  [[nodiscard]] chunkmem::transfer::schedule_input input(bool may_move_early) const
  {
    return {iteration.record,
            iteration.chunk_of_slot,
            demand,
            iteration.chunks(),
            start.space(chunkmem::tier::device).frames(),
            may_move_early};
  }
  /// As an iteration_planner asks a policy for the first time. The run has to outlive it.
  [[nodiscard]] chunkmem::transfer::retention_request request() const
  {
    const chunkmem::tier_space& device = start.space(chunkmem::tier::device);
    return {iteration.record,
            iteration.chunk_of_slot,
            start.table().all(),
            start.table().live(),
            chunkmem::bytes{device.frame_bytes()},
            chunkmem::bytes{device.capacity()},
            chunkmem::bytes{start.space(chunkmem::tier::host).capacity()}};
  }
};

/// Runs a random iteration until it repeats from a warm start. @return   it fits its random capacities
inline bool roll_demand(std::uint64_t seed, const support::iteration_traits& traits, bool tight_host, demand_run& out)
{
  using namespace chunkmem;
  support::dice dice{seed};
  out.iteration = support::roll_iteration(dice, traits);
  std::uint32_t all = 0;
  for (const std::uint32_t frames : out.iteration.frames_of_chunk) all += frames;
  const std::uint32_t device = dice.between(1, all + 2);
  const std::uint32_t host = tight_host ? dice.between(all > device ? all - device : 1, all) : all + 4;
  out.start = support::cache_for<eviction::belady>(out.iteration, device, host);
  out.memory = support::cell_memory{out.iteration.chunk_of_slot, device, host};
  try {
    support::iteration_runner runner{out.iteration, out.start, out.memory};
    runner.fill(dice.one_in(2));
    runner.run(false);
    for (std::uint32_t warm = dice.below(3); warm > 0; --warm) {
      out.start.start_of(out.iteration.record);
      out.start.tell_policy(out.iteration.record);
      runner.run(true);
    }
    out.start.start_of(out.iteration.record);
    out.start.tell_policy(out.iteration.record);
    out.end = out.start;
    decision_log log;
    replay<eviction::belady> again;
    const std::uint64_t reclaims = out.end.reclaims();
    again.run(out.iteration.record, out.iteration.chunk_of_slot, out.end, log, true);
    out.demand.assign(log.moves().begin(), log.moves().end());
    out.host_was_short = out.end.reclaims() != reclaims;
  } catch (const out_of_memory&) {
    return false;
  }
  if (!out.memory.mistake.empty()) FAIL("seed " << seed << ": demand paging itself: " << out.memory.mistake);
  return true;
}

/// Each move of the demand log once, none later than it was needed, by access index.
inline std::string mistake_in_times(const moves& demand, const moves& actions, bool may_move_early)
{
  using chunkmem::transfer::move;
  const auto key = [](const move& it) { return std::tuple{it.kind, it.chunk, it.place, it.frames, it.access_index}; };
  const auto by_key = [&](const move& left, const move& right) { return key(left) < key(right); };
  for (std::size_t index = 1; index < actions.size(); ++index)
    if (actions[index].access_index < actions[index - 1].access_index)
      return "actions are not in the order of access indices";
  moves wanted;
  for (const move& it : demand)
    if (it.kind != chunkmem::transfer::move_kind::vacate) wanted.push_back(it);
  moves given = actions;
  if (wanted.size() != given.size()) return "a move is missing or was made twice";
  std::sort(wanted.begin(), wanted.end(), by_key);
  std::sort(given.begin(), given.end(), by_key);
  for (std::size_t index = 0; index < given.size(); ++index) {
    const move& it = given[index];
    const move& demanded = wanted[index];
    if (std::tuple{it.kind, it.chunk, it.place, it.frames} !=
        std::tuple{demanded.kind, demanded.chunk, demanded.place, demanded.frames})
      return "a move is missing or was made twice";
    if (it.access_index > demanded.access_index) return "a move comes later than it is needed";
    if (!may_move_early && it.access_index != demanded.access_index)
      return "a move was made early where that is forbidden";
  }
  return {};
}

inline std::string_view name_of_move(chunkmem::transfer::move_kind kind)
{
  constexpr std::string_view names[] = {"the eviction",   "the load",  "the claim",
                                        "the write-back", "the lease", "the vacated frames"};
  return names[static_cast<std::size_t>(kind)];
}

/// Executes the actions along the iteration: each fits, every access finds its chunk, every read its bytes.
inline std::string mistake_when_followed(const demand_run& run, const moves& actions)
{
  using namespace chunkmem;
  auto state = run.start;
  support::cell_memory memory = run.memory;
  state.silence_policy();
  std::size_t next = 0;
  support::iteration_runner runner{run.iteration, state, memory};
  runner.run(true, [&](std::uint32_t now) {
    std::uint64_t place = tier_space::no_place;
    memory.be_quiet(false);
    for (; next < actions.size() && actions[next].access_index <= now; ++next) {
      const transfer::move& it = actions[next];
      const frame_id first{static_cast<std::uint32_t>(it.place)};
      bool fits = true;
      if (it.kind == transfer::move_kind::evict) fits = state.try_evict(chunk_id{it.chunk}, memory);
      if (it.kind == transfer::move_kind::load) fits = state.try_load(chunk_id{it.chunk}, first, true, memory);
      if (it.kind == transfer::move_kind::claim) fits = state.try_load(chunk_id{it.chunk}, first, false, memory);
      if (it.kind == transfer::move_kind::write_back) fits = state.try_write_back(chunk_id{it.chunk}, memory);
      if (it.kind == transfer::move_kind::lease) place = it.place;
      if (!fits)
        memory.blame(std::string{name_of_move(it.kind)} + " of chunk " + std::to_string(it.chunk) + " at access " +
                     std::to_string(now) + " does not fit");
    }
    memory.be_quiet(true);
    return place;
  });
  if (!memory.mistake.empty()) return memory.mistake;
  if (next != actions.size()) return "actions are left over";
  for (const chunk_id each : state.table().chunk_ids())
    if (state[each].first_frame[tier::device] != run.end[each].first_frame[tier::device] ||
        state[each].is_valid(tier::host) != run.end[each].is_valid(tier::host))
      return "the end is another one";
  return {};
}

inline bool same_actions(const moves& left, const moves& right)
{
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& a, const auto& b) {
    return a.access_index == b.access_index && a.chunk == b.chunk && a.kind == b.kind && a.place == b.place &&
           a.frames == b.frames;
  });
}

/// The counts of trials of transfer policies.
struct transfer_tally {
  std::uint64_t runs = 0;   ///< iterations that fit their random capacities
  std::uint64_t early = 0;  ///< moves that were made earlier than they were needed
};

/// The law that a list of actions breaks; empty: none.
inline std::string mistake_in_actions(const demand_run& run, const moves& actions, bool may_move_early)
{
  std::string mistake = mistake_in_times(run.demand, actions, may_move_early);
  if (!mistake.empty()) return mistake;
  mistake = mistake_when_followed(run, actions);
  return mistake.empty() ? "" : "a move comes before what it depends on: " + mistake;
}

/// One trial of the laws of transfer_policy on a random iteration: with room on the host, or where it is short. The
/// policy goes from trial to trial, beside a new one for each.
template <chunkmem::transfer_policy Transfer>
[[nodiscard]] std::string mistake_in_transfers(const Transfer& prototype, Transfer& policy, std::uint64_t seed,
                                               transfer_tally& tally, allocation_counter allocations = nullptr)
{
  if (std::string_view{Transfer::name}.empty()) return "a policy without a name";
  support::dice dice{seed};
  const support::iteration_traits traits{.entries = dice.between(1, 60), .longest_chunk = dice.between(1, 3)};
  demand_run run;
  if (!roll_demand(seed + 10'000, traits, dice.one_in(3), run)) return {};
  ++tally.runs;
  const auto input = run.input(!run.host_was_short);
  moves actions;
  policy.schedule(input, actions);
  if constexpr (!Transfer::plans) return actions.empty() ? "" : "a policy that plans nothing gave actions";
  Transfer fresh = prototype;
  moves again;
  fresh.schedule(input, again);
  if (!same_actions(actions, again)) return "two plans for one input";
  if (std::string mistake = mistake_in_actions(run, actions, !run.host_was_short); !mistake.empty()) return mistake;
  for (const auto& it : actions)
    tally.early +=
        std::none_of(run.demand.begin(), run.demand.end(), [&](const auto& d) { return same_actions({it}, {d}); }) ? 1
                                                                                                                   : 0;
  allocation_watch watch{allocations};
  watch([&] { policy.schedule(input, again); });  // both have had an input of these sizes
  if (!same_actions(actions, again)) return "two plans for one input";
  if (watch.has_seen_one()) return "schedule allocated for sizes that it had seen";
  policy.schedule(run.input(false), actions);
  const std::string mistake = mistake_in_actions(run, actions, false);
  return mistake.empty() ? "" : "nothing early: " + mistake;
}

inline constexpr std::uint64_t transfer_trials = 150;

/// The broken law of transfer_policy; empty: none.
template <chunkmem::transfer_policy Transfer>
[[nodiscard]] std::string mistake_in_transfer_policy(const Transfer& prototype = {},
                                                     allocation_counter allocations = nullptr)
{
  Transfer policy = prototype;
  transfer_tally tally;
  return first_mistake(transfer_trials, [&](std::uint64_t seed) {
    return mistake_in_transfers(prototype, policy, seed, tally, allocations);
  });
}

/// The laws of transfer_policy on random iterations: with room on the host, and where it is short.
/// @return   the number of moves that were made earlier than needed
template <chunkmem::transfer_policy Transfer>
std::uint64_t transfer_policy_laws(std::uint64_t seeds = transfer_trials, const Transfer& prototype = {},
                                   allocation_counter allocations = nullptr)
{
  Transfer policy = prototype;
  transfer_tally tally;
  require_trials(seeds,
                 [&](std::uint64_t seed) { return mistake_in_transfers(prototype, policy, seed, tally, allocations); });
  CHECK(tally.runs > seeds / 3);
  return tally.early;
}

}  // namespace conformance
