// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/free_bound.hpp>
#include <chunkmem/configurator/least_memory.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/placement_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/stage_cuts.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The progress of a search.
///
///     effort.tell = [](const search_progress& it) { std::cerr << it.best << " s, at least " << it.bound << " s\n"; };
struct search_progress {
  std::uint64_t done = 0;  ///< simulated plans
  std::uint64_t of = 0;    ///< `done`, and the plans that may still be among the best
  double seconds = 0;
  double seconds_left = 0;                                ///< estimate, if later plans take as long as earlier ones
  double best = std::numeric_limits<double>::infinity();  ///< the step of the best plan that fits, so far [s]
  double bound = 0;                                       ///< no plan is faster [s]; see plan_search_result
};

/// The options of a search.
///
///     const plan_search_effort two_cores{.threads = 2};
struct plan_search_effort {
  unsigned threads = 1;
  std::size_t best = 10;  ///< plans that are kept
  placement_effort places{.trials = 24'000, .exact_nodes = 6};
  process_allowance beside{};              ///< of a process, as measured
  pipeline::interruption stop{};           ///< ends the search early, within a simulation too, with the best so far
  std::uint64_t simulations = UINT64_MAX;  ///< ends it once this many plans were simulated
  /// called by one thread at a time, at most five times a second; must not throw
  std::function<void(const search_progress&)> tell{};
};

/// A plan that fits, with its time and memory.
///
///     std::cout << found.best.front().time.step << " s\n";
struct found_plan {
  parallel_plan plan;
  step_seconds time;
  double bound = 0;  ///< a lower bound for all its placements [s]
  memory_proof memory;
  /// false: only a part of its micro-batches was rehearsed, and chunks leave and return: a device may need some more
  /// chunks
  bool has_exact_memory = true;
};

/// Plans that were rejected for one reason.
///
///     for (const rejected_plans& it : found.rejected) std::cout << it.count << ": " << it.why << '\n';
struct rejected_plans {
  std::string why;  ///< the common reason
  std::uint64_t count = 0;
  std::string example{};                                     ///< one sentence about the fastest of them
  double seconds = std::numeric_limits<double>::infinity();  ///< of that one, as far as it is known
};

/// The result of a search.
///
///     const plan_search_result found = find_plans(whole, shape, {.rows = 512});
struct plan_search_result {
  std::vector<found_plan> best;          ///< the fastest first
  std::vector<rejected_plans> rejected;  ///< by reason
  /// A lower bound of all plans [s]: the least of the best plan and of all plans that were not fully evaluated, by
  /// their free bound or on the places that were tried. The time of the best plan where the search is whole.
  double bound = 0;
  std::uint64_t plans = 0;  ///< of the space
  std::uint64_t simulated = 0;
  std::uint64_t rehearsed = 0;
  bool is_whole = true;  ///< false where it was stopped: there may be faster plans, or places
};

/// The bytes that are copied in each stage because a device has no room for all chunks and leases of its work.
///
///     const double seconds = latency.of(plan, moved_by(whole, plan, proof)).step;
///
/// Gathered weights stay in the bytes that the device has above `smallest_device`. Gathered weights without room there
/// are gathered again for each run. All other chunks of a run share the rest of the device.
/// @param proof   with all stages
[[nodiscard]] inline std::vector<moved_bytes> moved_by(const cluster& whole, const parallel_plan& plan,
                                                       const memory_proof& proof, const process_allowance& beside = {})
{
  std::vector<moved_bytes> all;
  for (std::uint32_t stage = 0; stage < plan.stages; ++stage) {
    const stage_memory& it = proof.stages[stage];
    const bytes room = room_of_stage(whole, plan, stage, beside)[tier::device];
    const bytes gathered = plan.zero == 3 ? it.gathered : bytes{};
    const bytes in_runs = it.everything - it.states - gathered;
    const bytes again = gathered - std::min(gathered, room - std::min(room, it.smallest_device));
    const bytes kept = in_runs + gathered - again;
    moved_bytes moved{.each_run = kept - std::min(kept, room)};
    if (again > bytes{})
      moved.gathered_share = static_cast<double>(again.count()) / static_cast<double>(gathered.count());
    if (!plan.states_on_host) moved.each_step = std::min(it.states, it.everything - std::min(it.everything, room));
    all.push_back(moved);
  }
  return all;
}

namespace detail {

/// The work of find_plans: a search that goes on with the plan that may be the fastest.
///
/// A plan enters with its free bound, comes back with its simulated time, and is rehearsed when no other plan can be
/// faster. So no plan is simulated whose bound is above the times of the best, and no slower plan is rehearsed.
/// Every second turn is for degrees without a plan that fits: their best plan by the bound, of those that likely fit,
/// is simulated and rehearsed immediately. So a search that is stopped has a good plan, and bounds cut off more.
/// Plans have the places of their family. Those of six to eight groups of ranks that may be among the best then get
/// places of their own. A plan counts as no faster than it was simulated on the places of its family: so the best plans
/// do not depend on the order in which threads come back.
class plan_search {
 public:
  plan_search(const cluster& whole, const trained_model& model, const plan_space& space,
              const plan_search_effort& effort)
      : whole_{whole},
        model_{model},
        space_{space},
        effort_{effort},
        begin_{clock::now()},
        latency_{whole, model, effort.stop}
  {
    if (effort.best == 0) throw config_error{"a search that keeps 0 plans (keep one or more)"};
  }

  [[nodiscard]] plan_search_result run()
  {
    add_families();
    {
      std::vector<std::jthread> workers;
      for (unsigned it = 1; it < std::max(1U, effort_.threads); ++it) workers.emplace_back([this] { work(); });
      work();
    }
    if (error_) std::rethrow_exception(error_);
    found_.is_whole = are_all_added_ && are_all_improved_ && !may_go_on();
    found_.bound = bound();
    for (const degree& each : degrees_)
      for (const open_plan& it : each.open) reject(why_left(it), it.seconds, plan_of(it), {});
    hand_over();
    for (auto& [why, it] : rejected_) found_.rejected.push_back(std::move(it));
    std::ranges::sort(found_.rejected, std::greater{}, &rejected_plans::count);
    return std::move(found_);
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::uint32_t small_cluster = 8;           // groups whose places are improved one by one
  static constexpr std::uint32_t simulations_of_small = 500;  // for each start
  static constexpr std::uint32_t most_tried = 6;              // groups of which every order is tried for room
  static constexpr std::uint32_t most_dives = 3;              // for a plan of some degrees that fits
  /// A plan whose fate is open.
  struct open_plan {
    double seconds = 0;  // that it takes at least, or takes
    std::size_t family = 0;
    std::size_t plan = 0;
    bool is_simulated = false;
    bool is_for_room = false;  // its places were chosen by the bytes of nodes
    bool likely_fits = true;
    [[nodiscard]] auto operator<=>(const open_plan&) const = default;
  };
  /// A plan that fits.
  struct kept_plan {
    double seconds = 0;  // no less than simulated on the places of its family
    found_plan found;
  };
  struct device_choice {
    std::vector<std::uint32_t> devices;
    free_bound bound;
  };
  struct family {
    const device_choice* choice = nullptr;
    std::size_t degree = 0;
    std::vector<parallel_plan> plans;
    std::once_flag is_placed;
    std::vector<std::vector<std::uint32_t>> places;
    /// Of plans whose activations alone are more than their devices have. Plans that differ in their states alone have
    /// the same activations.
    std::vector<std::pair<parallel_plan, memory_proof>> refused;
  };
  /// Plans with the same devices, and as many stages, replicas, and ranks that share layers.
  struct degree {
    std::set<open_plan> open{};
    std::set<open_plan> likely{};  // of these, those that likely fit
    std::uint32_t dives = 0;
    bool is_proven = false;

    void put(const open_plan& it)
    {
      open.insert(it);
      if (it.likely_fits) likely.insert(it);
    }
    void take(const open_plan& it)
    {
      open.erase(it);
      likely.erase(it);
    }
  };

  void add_families()
  {
    std::exception_ptr nothing_divides;
    for (std::vector<std::uint32_t>& devices : device_choices(whole_)) {
      const free_bound bound{whole_, devices, model_.trainer, effort_.beside};
      const device_choice& choice = choices_.emplace_back(std::move(devices), bound);
      try {
        for (plan_family& it : families_of(space_, model_, static_cast<std::uint32_t>(choice.devices.size()))) {
          add_cuts(choice, it.plans);
          add_family(choice, std::move(it.plans));
        }
      } catch (const config_error&) {
        if (!nothing_divides) nothing_divides = std::current_exception();
      }
    }
    if (families_.empty()) std::rethrow_exception(nothing_divides);
  }
  /// Plans whose stages have one part get a twin, whose stages take equal times as the profile has them.
  void add_cuts(const device_choice& choice, std::vector<parallel_plan>& plans) const
  {
    if (!model_.profile || !space_.with_cuts || plans.front().stages == 1 || !are_all_added_) return;
    std::array<std::vector<std::uint64_t>, 2> cuts;  // without and with recompute
    for (std::size_t index = 0, equal = plans.size(); index < equal; ++index) {
      parallel_plan plan = plans[index];
      if (plan.parts > 1) continue;
      std::vector<std::uint64_t>& of_plan = cuts[plan.recomputes ? 1 : 0];
      if (of_plan.empty()) of_plan = cuts_of(choice, plan);
      const std::vector<std::uint64_t> borders = detail::borders_of(model_, plan);
      if (of_plan.empty() || std::ranges::equal(of_plan, std::span{borders}.subspan(1, of_plan.size()))) continue;
      plan.cuts = of_plan;
      plans.push_back(std::move(plan));
    }
  }
  /// The cuts; empty where they are unknown, as for a device that was not measured at the plan's degree. The plan with
  /// equal stages is then rejected.
  [[nodiscard]] std::vector<std::uint64_t> cuts_of(const device_choice& choice, parallel_plan plan) const
  {
    plan.devices = choice.devices;
    try {
      return balanced_cuts(whole_, model_, std::move(plan));
    } catch (const error&) {
      return {};
    }
  }
  void add_family(const device_choice& choice, std::vector<parallel_plan> plans)
  {
    const parallel_plan& first = plans.front();
    const std::tuple degrees{choice.devices.size(), first.tensor, first.stages};
    const auto [place, is_new] = degree_of_.emplace(degrees, degrees_.size());
    if (is_new) degrees_.emplace_back();
    found_.plans += plans.size();
    if (are_all_added_ && effort_.stop.is_wanted()) are_all_added_ = false;
    family& it = families_.emplace_back();
    it.choice = &choice;
    it.degree = place->second;
    it.plans = std::move(plans);
    forms_.clear();
    for (std::size_t plan = 0; plan < it.plans.size(); ++plan) add_plan(choice, it, plan);
  }
  void add_plan(const device_choice& choice, const family& of, std::size_t index)
  {
    const parallel_plan& plan = of.plans[index];
    constexpr double none = std::numeric_limits<double>::infinity();
    if (!are_all_added_) return reject("not looked at: the search was stopped", none, plan, {});
    try {
      auto of_form = forms_.find({plan.parts, plan.recomputes, plan.cuts});
      if (of_form == forms_.end())
        of_form = forms_.emplace(form{plan.parts, plan.recomputes, plan.cuts}, parts_of(model_, plan)).first;
      const std::vector<model_part>& parts = of_form->second;
      const double seconds = choice.bound.of(plan, parts);
      if (const memory_proof memory = choice.bound.memory_of(plan, parts); !memory.fits)
        return reject(memory.why_class, seconds, plan, memory.why_not);
      degrees_[of.degree].put({.seconds = seconds,
                               .family = families_.size() - 1,
                               .plan = index,
                               .likely_fits = choice.bound.likely_fits(plan, parts)});
    } catch (const size_overflow& why) {
      reject("more work or bytes than 64 bits count", none, plan, why.what());
    }
  }

  [[nodiscard]] parallel_plan& plan_of(const open_plan& it) { return families_[it.family].plans[it.plan]; }
  [[nodiscard]] degree& degree_of(const open_plan& it) { return degrees_[families_[it.family].degree]; }
  /// The degrees of the open plan with the least seconds. @pre locked   @return   null where no plan is open
  [[nodiscard]] degree* least()
  {
    degree* found = nullptr;
    for (degree& it : degrees_)
      if (!it.open.empty() && (found == nullptr || *it.open.begin() < *found->open.begin())) found = &it;
    return found;
  }
  /// The degrees without a proven plan, of the likely plan with the least seconds. @pre locked
  /// @return   null where there is none, or none that may be faster than the best
  [[nodiscard]] degree* unproven()
  {
    degree* found = nullptr;
    for (degree& it : degrees_) {
      if (it.likely.empty() || it.is_proven || it.dives >= most_dives) continue;
      if (found == nullptr || *it.likely.begin() < *found->likely.begin()) found = &it;
    }
    return found != nullptr && found->likely.begin()->seconds < fastest() ? found : nullptr;
  }
  [[nodiscard]] double fastest() const
  {
    double seconds = std::numeric_limits<double>::infinity();
    for (const kept_plan& it : kept_) seconds = std::min(seconds, it.found.time.step);
    return seconds;
  }
  /// As kept_plan has them.
  [[nodiscard]] double slowest_of_best() const
  {
    return kept_.size() < effort_.best ? std::numeric_limits<double>::infinity() : kept_.back().seconds;
  }
  /// Whether an open plan may be among the best. @pre locked
  [[nodiscard]] bool may_go_on()
  {
    const degree* const it = least();
    return it != nullptr && it->open.begin()->seconds <= slowest_of_best();
  }
  /// @pre locked
  [[nodiscard]] double bound()
  {
    double seconds = fastest();
    if (const degree* const it = least()) seconds = std::min(seconds, it->open.begin()->seconds);
    for (const double it : at_work_) seconds = std::min(seconds, it);
    return are_all_added_ ? seconds : 0;
  }

  [[nodiscard]] const char* why_left(const open_plan& it) const
  {
    if (it.seconds <= slowest_of_best()) return "not looked at: the search was stopped";
    return it.is_simulated ? "slower than the best, simulated" : "slower than the best, by the free bound";
  }

  void work() noexcept
  {
    std::unique_lock lock{mutex_};
    try {
      while (!error_ && !is_stopped()) {
        if (!may_go_on()) {
          if (at_work_.empty()) break;
          changed_.wait(lock);  // what others work on may come back
          continue;
        }
        degree* const of_dive = ++turns_ % 2 == 1 ? unproven() : nullptr;
        const bool dives = of_dive != nullptr;
        degree& from = dives ? *of_dive : *least();
        if (dives) ++from.dives;
        const open_plan next = *(dives ? from.likely : from.open).begin();
        from.take(next);
        const auto at_work = at_work_.insert(next.seconds);
        lock.unlock();
        const bool is_whole = look_at(next, dives);
        lock.lock();
        at_work_.erase(at_work);
        if (!is_whole) from.put(next);
        tell();
        changed_.notify_all();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      if (!error_) error_ = std::current_exception();
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool is_stopped() { return found_.simulated >= effort_.simulations || effort_.stop.is_wanted(); }

  /// @param dives   rehearse the plan too, whatever its time   @return   false where the search was stopped meanwhile
  [[nodiscard]] bool look_at(open_plan it, bool dives)
  {
    try {
      if (!it.is_simulated) {
        if (!simulate(it)) return true;
        if (!dives) {
          const std::scoped_lock lock{mutex_};
          degree_of(it).put(it);
          return true;
        }
      }
      prove(it);
      return true;
    } catch (const pipeline::interrupted&) {
      return false;
    }
  }

  /// The seconds of a plan on its devices, with the least bytes that are copied there.
  [[nodiscard]] double seconds_of(const parallel_plan& plan, const std::vector<least_memory>& memory) const
  {
    std::vector<moved_bytes> moved;
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
      moved.push_back(
          least_moved(plan, memory[stage], room_of_stage(whole_, plan, stage, effort_.beside)[tier::device]));
    return latency_.of(plan, moved).step;
  }

  /// @return   false where its schedule is impossible
  [[nodiscard]] bool simulate(open_plan& it)
  {
    family& of = families_[it.family];
    parallel_plan plan = of.plans[it.plan];
    std::call_once(of.is_placed, [&] { of.places = places_of_family(of); });
    plan.devices = of.places.front();
    if (of.places.size() == 1) {
      const std::scoped_lock lock{mutex_};
      if (const memory_proof* const refusal = refusal_of(of, plan)) {
        reject(refusal->why_class, it.seconds, plan, refusal->why_not);
        return false;
      }
    }
    const std::vector<least_memory> memory = least_memory_of(plan, parts_of(model_, plan), model_.trainer);
    const auto seconds_on = [&](const parallel_plan& placed) { return seconds_of(placed, memory); };
    double shortest = std::numeric_limits<double>::infinity();
    std::vector<std::uint32_t> best;
    try {
      (void)with_few_micro_batches(plan, model_);  // too many for a rehearsal are too many here
      for (const std::vector<std::uint32_t>& devices : of.places) {
        plan.devices = devices;
        const double seconds = seconds_on(plan);
        if (seconds >= shortest) continue;
        shortest = seconds;
        best = plan.devices;
      }
    } catch (const config_error& why) {
      const std::scoped_lock lock{mutex_};
      reject("the schedule is impossible", it.seconds, plan, why.what());
      return false;
    }
    const std::scoped_lock lock{mutex_};
    of.plans[it.plan].devices = best;
    it.seconds = std::max(shortest, it.seconds);
    it.is_simulated = true;
    ++found_.simulated;
    return true;
  }

  /// The same for all plans of a family. Those of a small cluster are improved by the clock of one plan.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> places_of_family(const family& of) const
  {
    const auto is_usual = [](const parallel_plan& it) {
      return it.schedule == schedule_kind::one_f_one_b && it.cuts.empty() && !it.recomputes;
    };
    const auto usual = std::ranges::find_if(of.plans, is_usual);
    parallel_plan plan = usual == of.plans.end() ? of.plans.front() : *usual;
    parallel_plan placed = plan;
    placed.parts = 1;
    placed.recomputes = false;
    placed.devices = of.choice->devices;
    placement_effort effort = effort_.places;
    effort.stop = effort_.stop;
    std::vector<std::vector<std::uint32_t>> places =
        group_places{whole_, placed, parts_of(model_, placed)}.promising(effort);
    if (!is_small(plan, places)) return places;
    for (const std::vector<std::uint32_t>& devices : std::vector{places}) {
      plan.devices = devices;
      try {
        exchange(plan);
      } catch (const config_error&) {  // its schedule is impossible
        return places;
      }
      if (std::ranges::find(places, plan.devices) == places.end()) places.push_back(plan.devices);
    }
    return places;
  }
  [[nodiscard]] static bool is_small(const parallel_plan& plan, const std::vector<std::vector<std::uint32_t>>& places)
  {
    const std::uint32_t groups = plan.stages * plan.replicas;
    return groups > all_tried && groups <= small_cluster && places.size() > 1;
  }
  /// Exchanges devices of a plan as long as its seconds fall.
  void exchange(parallel_plan& plan) const
  {
    const std::vector<least_memory> memory = least_memory_of(plan, parts_of(model_, plan), model_.trainer);
    (void)improve_places(plan, simulations_of_small, [&](const parallel_plan& it) { return seconds_of(it, memory); });
  }

  /// The refusal of a plan with the same activations on the same devices, which this plan shares. @pre locked
  /// @return   null where there is none
  [[nodiscard]] static const memory_proof* refusal_of(const family& of, const parallel_plan& plan)
  {
    const auto same = std::ranges::find_if(of.refused, [&](const auto& it) {
      const parallel_plan& other = it.first;
      return std::tie(other.schedule, other.parts, other.recomputes, other.cuts, other.devices) ==
             std::tie(plan.schedule, plan.parts, plan.recomputes, plan.cuts, plan.devices);
    });
    return same == of.refused.end() ? nullptr : &same->second;
  }

  void prove(const open_plan& it)
  {
    family& of = families_[it.family];
    found_plan fresh = proven(of, of.plans[it.plan]);
    const bool may_improve = is_small(fresh.plan, of.places) && (fresh.memory.fits || has_unequal_rooms(fresh.plan));
    if (may_improve && !it.is_for_room && is_among_best(it.seconds)) improve(of, fresh);
    if (!fresh.memory.fits && !it.is_for_room && find_room(it)) return;
    const std::scoped_lock lock{mutex_};
    if (!fresh.memory.fits) return reject(fresh.memory.why_class, it.seconds, fresh.plan, fresh.memory.why_not);
    degree_of(it).is_proven = true;
    keep({std::max(it.seconds, fresh.time.step), std::move(fresh)});
  }
  /// A plan on its devices with its bytes, and with its seconds if it fits.
  [[nodiscard]] found_plan proven(family& of, const parallel_plan& plan)
  {
    found_plan fresh{
        .plan = plan, .time = {}, .bound = of.choice->bound.of(plan, parts_of(model_, plan)), .memory = {}};
    {
      const std::scoped_lock lock{mutex_};
      if (const memory_proof* const refusal = refusal_of(of, plan)) {
        fresh.memory = *refusal;
        return fresh;
      }
    }
    const planned_work work = work_for(with_few_micro_batches(plan, model_));
    fresh.memory = refuse_by_leases(whole_, work, effort_.beside);
    const bool needs_rehearsal = fresh.memory.fits;
    if (needs_rehearsal) rehearse(fresh, work);
    const std::scoped_lock lock{mutex_};
    if (needs_rehearsal)
      ++found_.rehearsed;
    else
      of.refused.emplace_back(plan, fresh.memory);
    return fresh;
  }
  [[nodiscard]] planned_work work_for(const parallel_plan& plan) const
  {
    const std::uint32_t batches = plan.schedule == schedule_kind::two_versions ? 3 : 1;
    return work_of(model_, plan, latency_.typical_seconds(plan), batches, effort_.stop);
  }
  /// Finds the bytes of a plan, and its seconds if it fits. @param few   its work, with few micro-batches
  void rehearse(found_plan& it, const planned_work& few) const
  {
    it.memory = prove_memory(whole_, few, effort_.beside, refused_stages::are_left_out);
    if (it.memory.fits && few.plan.micro_batches < it.plan.micro_batches && lacks_room(it.plan, it.memory)) {
      it.has_exact_memory = it.plan.micro_batches <= most_rehearsed(model_, it.plan);
      if (it.has_exact_memory)
        it.memory = prove_memory(whole_, work_for(it.plan), effort_.beside, refused_stages::are_left_out);
    }
    if (it.memory.fits) it.time = latency_.of(it.plan, moved_by(whole_, it.plan, it.memory, effort_.beside));
  }
  [[nodiscard]] bool is_among_best(double seconds)
  {
    const std::scoped_lock lock{mutex_};
    return seconds <= slowest_of_best();
  }
  /// Gives a plan places of its own, if it fits only there or is faster there. A search that is stopped leaves a plan
  /// that fits where it is.
  void improve(family& of, found_plan& it)
  {
    try {
      parallel_plan placed = it.plan;
      exchange(placed);
      if (placed.devices == it.plan.devices) return;
      found_plan other = proven(of, placed);
      if (other.memory.fits && (!it.memory.fits || other.time.step < it.time.step)) it = std::move(other);
    } catch (const pipeline::interrupted&) {
      if (!it.memory.fits) throw;  // its own places may have room
      const std::scoped_lock lock{mutex_};
      are_all_improved_ = false;
    }
  }
  /// Whether ranks of the plan have unequal bytes: their places then decide whether it fits.
  [[nodiscard]] bool has_unequal_rooms(const parallel_plan& plan) const
  {
    const std::vector<std::uint32_t> node_of = whole_.nodes_of_ranks();
    std::vector<std::uint64_t> ranks(whole_.nodes.size(), 0);
    for (const std::uint32_t device : plan.devices) ++ranks[node_of[device]];
    const auto room = [&](std::uint32_t device) {
      const cluster_node& it = whole_.nodes[node_of[device]];
      return std::pair{it.device_bytes, it.host_bytes.count() / ranks[node_of[device]]};
    };
    return std::ranges::adjacent_find(plan.devices, std::not_equal_to{}, room) != plan.devices.end();
  }

  /// Whether a device of the plan has no room for all its chunks and leases. @param proof   one that fits
  [[nodiscard]] bool lacks_room(const parallel_plan& plan, const memory_proof& proof) const
  {
    for (std::uint32_t stage = 0; stage < plan.stages; ++stage)
      if (room_of_stage(whole_, plan, stage, effort_.beside)[tier::device] < proof.stages[stage].everything)
        return true;
    return false;
  }

  /// Whether other places may have the bytes that the plan lacks.
  [[nodiscard]] bool may_find_room(const parallel_plan& plan) const
  {
    const auto least = [](const cluster_node& node) { return node.device_bytes; };
    return plan.stages * plan.replicas <= most_tried && std::ranges::min(whole_.nodes, {}, least).device_bytes !=
                                                            std::ranges::max(whole_.nodes, {}, least).device_bytes;
  }
  /// Puts a plan back with the fastest places whose devices have the bytes that its stages need: a stage may need a
  /// larger node. @return   whether there are such places
  [[nodiscard]] bool find_room(const open_plan& it)
  {
    parallel_plan plan = plan_of(it);
    const std::vector<std::uint32_t> there = families_[it.family].choice->devices;
    if (!may_find_room(plan)) return false;
    const memory_proof needs = prove_memory(whole_, work_for(with_few_micro_batches(plan, model_)), effort_.beside);
    const std::vector<least_memory> memory = least_memory_of(plan, parts_of(model_, plan), model_.trainer);
    rank_placement order = identity_placement(plan.stages * plan.replicas);
    std::vector<std::uint32_t> best;
    double seconds = std::numeric_limits<double>::infinity();
    do {
      for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank)
        plan.devices[rank] = there[order[rank / plan.tensor] * plan.tensor + rank % plan.tensor];
      const auto lacks = [&](std::uint32_t stage) {
        return room_of_stage(whole_, plan, stage, effort_.beside)[tier::device] < needs.stages[stage].smallest_device;
      };
      if (std::ranges::any_of(std::views::iota(0U, plan.stages), lacks)) continue;
      if (const double of_order = seconds_of(plan, memory); of_order < seconds) {
        seconds = of_order;
        best = plan.devices;
      }
    } while (std::ranges::next_permutation(order).found);
    if (best.empty()) return false;
    const std::scoped_lock lock{mutex_};
    plan_of(it).devices = best;
    open_plan placed = it;
    placed.seconds = std::max(seconds, it.seconds);
    placed.is_simulated = placed.is_for_room = true;
    degree_of(it).put(placed);
    return true;
  }

  /// Of equal plans, the one that uses less of everything is first.
  [[nodiscard]] static auto key(double seconds, const parallel_plan& plan)
  {
    return std::tuple{seconds,         plan.tensor,         plan.stages, plan.replicas, plan.micro_batch,
                      plan.recomputes, plan.states_on_host, plan.zero,   plan.schedule, plan.parts,
                      plan.cuts};
  }
  void keep(kept_plan fresh)
  {
    const auto key_of = [](const kept_plan& it) { return key(it.seconds, it.found.plan); };
    kept_.insert(std::ranges::upper_bound(kept_, key_of(fresh), {}, key_of), std::move(fresh));
    if (kept_.size() <= effort_.best) return;
    const found_plan& last = kept_.back().found;
    reject("slower than the best, simulated", last.time.step, last.plan, {});
    kept_.pop_back();
  }
  /// The fastest first, each on its own places.
  void hand_over()
  {
    for (kept_plan& it : kept_) found_.best.push_back(std::move(it.found));
    std::ranges::sort(found_.best, {}, [](const found_plan& it) { return key(it.time.step, it.plan); });
  }
  void reject(const std::string& why, double seconds, const parallel_plan& plan, const std::string& sentence)
  {
    rejected_plans& it = rejected_[why];
    it.why = why;
    ++it.count;
    if (seconds >= it.seconds && !it.example.empty()) return;
    it.seconds = seconds;
    it.example = text_of(plan) + (sentence.empty() ? std::string{} : ": " + sentence);
  }
  /// At most five times a second: it counts open plans.
  void tell()
  {
    const double seconds = std::chrono::duration<double>{clock::now() - begin_}.count();
    if (!effort_.tell || seconds < told_ + 0.2) return;
    told_ = seconds;
    std::uint64_t left = 0;
    for (const degree& each : degrees_)
      for (const open_plan& it : each.open) left += !it.is_simulated && it.seconds <= slowest_of_best() ? 1U : 0U;
    const std::uint64_t done = found_.simulated + 1;
    search_progress now{.done = found_.simulated, .of = found_.simulated + left, .seconds = seconds};
    now.seconds_left = seconds / static_cast<double>(done) * static_cast<double>(left);
    now.best = fastest();
    now.bound = bound();
    effort_.tell(now);
  }

  const cluster& whole_;
  const trained_model& model_;
  const plan_space& space_;
  const plan_search_effort& effort_;
  clock::time_point begin_;
  step_latency latency_;
  std::deque<device_choice> choices_;
  std::deque<family> families_;
  std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::size_t> degree_of_;
  using form = std::tuple<std::uint32_t, bool, std::vector<std::uint64_t>>;  // plans of a family that have equal parts
  std::map<form, std::vector<model_part>> forms_;                            // of the family that is added

  std::mutex mutex_;  // of all below, and of the devices of plans
  std::condition_variable changed_;
  std::deque<degree> degrees_;
  std::multiset<double> at_work_;  // seconds of plans that are looked at
  std::uint64_t turns_ = 0;
  bool are_all_added_ = true;
  bool are_all_improved_ = true;  // of the plans that are kept
  std::vector<kept_plan> kept_;   // by their seconds
  plan_search_result found_;
  std::map<std::string, rejected_plans> rejected_;
  double told_ = 0;
  std::exception_ptr error_;
};

}  // namespace detail

/// Finds the fastest plans of a space that fit a cluster.
///
/// A plan is rejected without a simulation only where its free bound is above the times of the best plans, or where its
/// least bytes exceed the largest device and host. So the best plans are never cut off. A plan whose simulated time is
/// good enough is rehearsed: it is kept if each of its ranks has the bytes that it needs. Where a device has no room
/// for all chunks and leases, copies lengthen its runs: the bound and the first simulation use a lower bound of these
/// bytes. Plans may leave devices idle, see device_choices.
///
/// The best plans of a whole search do not depend on the number of threads, nor on their speed. Counts of rejected
/// plans may: several threads evaluate some plans that a single one skips. On six to eight groups of ranks, plans are
/// compared on the places of their family. The best ones, and those that do not fit there, then get places of their
/// own.
///
///     plan_search_result found = find_plans(whole, shape, {.rows = 512}, {.threads = 2});
///     if (found.best.empty()) std::cerr << found.rejected.front().example << '\n';
///
/// @throws config_error   the cluster or the model is invalid, or no plan divides the devices
/// Cost: a simulation for each plan that the bound does not reject, a rehearsal for each fast plan
/// Source: the search of Pipette (Yim et al. 2024, arXiv 2405.18093), with an exact simulator and an exact memory
[[nodiscard]] inline plan_search_result find_plans(const cluster& whole, const trained_model& model,
                                                   const plan_space& space, const plan_search_effort& effort = {})
{
  return detail::plan_search{whole, model, space, effort}.run();
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
