// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/free_bound.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/placement_search.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/configurator/rank_places.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
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
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// How far a search is.
///
///     effort.tell = [](const search_progress& it) { std::cerr << it.done << " of " << it.of << '\n'; };
struct search_progress {
  std::uint64_t done = 0;  ///< simulated plans
  std::uint64_t of = 0;    ///< with those that may still be among the best
  double seconds = 0;
  double seconds_left = 0;  ///< if plans to come take as long as those before
};

/// How a search works.
///
///     const plan_search_effort two_cores{.threads = 2};
struct plan_search_effort {
  unsigned threads = 1;
  std::size_t best = 10;  ///< plans that are kept
  placement_effort places{.trials = 24'000, .exact_nodes = 6};
  process_allowance beside{};  ///< of a process, as measured
  std::stop_token stop{};      ///< ends the search early, with the best so far
  /// called by one thread at a time, at most five times a second; must not throw
  std::function<void(const search_progress&)> tell{};
};

/// A plan that fits, and what is known of it.
///
///     std::cout << found.best.front().time.step << " s\n";
struct found_plan {
  parallel_plan plan;
  step_seconds time;
  double bound = 0;  ///< that no placement of it goes below [s]
  memory_proof memory;
};

/// Plans that were left out for one reason.
///
///     for (const rejected_plans& it : found.rejected) std::cout << it.count << ": " << it.why << '\n';
struct rejected_plans {
  std::string why;  ///< what they have in common
  std::uint64_t count = 0;
  std::string example{};                                     ///< one sentence about the fastest of them
  double seconds = std::numeric_limits<double>::infinity();  ///< of that one, as far as it is known
};

/// What a search found.
///
///     const plan_search_result found = find_plans(whole, shape, {.rows = 512});
struct plan_search_result {
  std::vector<found_plan> best;          ///< the fastest first
  std::vector<rejected_plans> rejected;  ///< by reason
  std::uint64_t plans = 0;               ///< of the space
  std::uint64_t simulated = 0;
  std::uint64_t rehearsed = 0;
  bool is_whole = true;  ///< false where it was stopped: there may be faster plans
};

/// The bytes that come and go in each stage because a device has not room for all that works on it.
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

/// The work of find_plans: a search that always goes on with the plan that may be the fastest.
///
/// A plan enters with its free bound, comes back with its simulated time, and is rehearsed when no other plan can be
/// faster. So no plan is simulated whose bound is above the times of the best, and no plan is rehearsed that is slower.
class plan_search {
 public:
  plan_search(const cluster& whole, const trained_model& model, const plan_space& space,
              const plan_search_effort& effort)
      : whole_{whole}, model_{model}, effort_{effort}, latency_{whole, model}
  {
    if (effort.best == 0) throw config_error{"a search that keeps 0 plans (keep one or more)"};
    const free_bound bound{whole};
    for (plan_family& it : families_of(space, model, whole.ranks())) {
      families_.emplace_back();
      families_.back().plans = std::move(it.plans);
      for (std::size_t plan = 0; plan < families_.back().plans.size(); ++plan) {
        const parallel_plan& start = families_.back().plans[plan];
        ++found_.plans;
        try {
          open_.insert({bound.of(start, parts_of(model, start)), families_.size() - 1, plan});
        } catch (const size_overflow& why) {
          reject("more work or bytes than 64 bits count", std::numeric_limits<double>::infinity(), start, why.what());
        }
      }
    }
  }

  [[nodiscard]] plan_search_result run()
  {
    begin_ = clock::now();
    {
      std::vector<std::jthread> workers;
      for (unsigned it = 1; it < std::max(1U, effort_.threads); ++it) workers.emplace_back([this] { work(); });
      work();
    }
    if (error_) std::rethrow_exception(error_);
    found_.is_whole = !may_go_on();
    for (const open_plan& it : open_) reject(why_left(it), it.seconds, plan_of(it), {});
    for (auto& [why, it] : rejected_) found_.rejected.push_back(std::move(it));
    std::ranges::sort(found_.rejected, std::greater{}, &rejected_plans::count);
    return std::move(found_);
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::uint32_t small_cluster = 8;           // groups whose places are improved one by one
  static constexpr std::uint32_t simulations_of_small = 500;  // for each start
  static constexpr std::uint32_t most_tried = 6;              // groups of which every order is tried for room
  /// A plan whose fate is open.
  struct open_plan {
    double seconds = 0;  // that it takes at least, or takes
    std::size_t family = 0;
    std::size_t plan = 0;
    bool is_simulated = false;
    bool is_for_room = false;  // its places were chosen by the bytes of nodes
    [[nodiscard]] auto operator<=>(const open_plan&) const = default;
  };
  struct family {
    std::vector<parallel_plan> plans;
    std::once_flag is_placed;
    std::vector<std::vector<std::uint32_t>> places;
  };

  [[nodiscard]] parallel_plan& plan_of(const open_plan& it) { return families_[it.family].plans[it.plan]; }
  /// An open plan may be among the best. @pre locked
  [[nodiscard]] bool may_go_on() const
  {
    return !open_.empty() &&
           (found_.best.size() < effort_.best || open_.begin()->seconds <= found_.best.back().time.step);
  }

  [[nodiscard]] const char* why_left(const open_plan& it) const
  {
    if (found_.best.size() < effort_.best || it.seconds <= found_.best.back().time.step)
      return "not looked at: the search was stopped";
    return it.is_simulated ? "slower than the best, simulated" : "slower than the best, by the free bound";
  }

  void work() noexcept
  {
    std::unique_lock lock{mutex_};
    try {
      while (!error_ && !effort_.stop.stop_requested()) {
        if (!may_go_on()) {
          if (working_ == 0) break;
          changed_.wait(lock);  // what others work on may come back
          continue;
        }
        const open_plan next = *open_.begin();
        open_.erase(open_.begin());
        ++working_;
        lock.unlock();
        next.is_simulated ? prove(next) : simulate(next);
        lock.lock();
        --working_;
        tell();
        changed_.notify_all();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      --working_;
      if (!error_) error_ = std::current_exception();
    }
    changed_.notify_all();
  }

  void simulate(const open_plan& it)
  {
    family& of = families_[it.family];
    parallel_plan plan = plan_of(it);
    std::call_once(of.is_placed, [&] { of.places = places_of_family(plan); });
    double least = std::numeric_limits<double>::infinity();
    std::vector<std::uint32_t> best;
    const std::uint32_t groups = plan.stages * plan.replicas;
    const bool is_small = groups > all_tried && groups <= small_cluster && of.places.size() > 1;
    try {
      for (const std::vector<std::uint32_t>& devices : of.places) {
        plan.devices = devices;
        const double seconds = is_small ? improve_places(latency_, plan, simulations_of_small) : latency_.of(plan).step;
        if (seconds >= least) continue;
        least = seconds;
        best = plan.devices;
      }
    } catch (const config_error& why) {
      const std::scoped_lock lock{mutex_};
      return reject("the schedule cannot be", it.seconds, plan, why.what());
    }
    const std::scoped_lock lock{mutex_};
    plan_of(it).devices = best;
    open_.insert({least, it.family, it.plan, true, false});
    ++found_.simulated;
  }

  /// The same for all plans of a family, however many parts a stage has.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> places_of_family(parallel_plan plan) const
  {
    plan.parts = 1;
    plan.recomputes = false;
    return group_places{whole_, plan, parts_of(model_, plan)}.promising(effort_.places);
  }

  void prove(const open_plan& it)
  {
    const parallel_plan plan = plan_of(it);
    const std::uint32_t batches = plan.schedule == schedule_kind::two_versions ? 3 : 1;
    const planned_work work = work_of(model_, plan, latency_.typical_seconds(plan), batches);
    found_plan fresh{
        .plan = plan, .time = {}, .bound = free_bound{whole_}.of(plan, parts_of(model_, plan)), .memory = {}};
    fresh.memory = refuse_by_leases(whole_, work, effort_.beside);
    const bool needs_rehearsal = fresh.memory.fits;
    if (needs_rehearsal) fresh.memory = prove_memory(whole_, work, effort_.beside, refused_stages::are_left_out);
    if (!fresh.memory.fits && !it.is_for_room && find_room(it, work)) return;
    if (fresh.memory.fits) fresh.time = latency_.of(plan, moved_by(whole_, plan, fresh.memory, effort_.beside));
    const std::scoped_lock lock{mutex_};
    found_.rehearsed += needs_rehearsal ? 1 : 0;
    if (!fresh.memory.fits) return reject(fresh.memory.why_class, it.seconds, plan, fresh.memory.why_not);
    keep(std::move(fresh));
  }

  /// Puts a plan back with the fastest places whose devices have the bytes that its stages need: a stage may need a
  /// node that has more. @return   there are such places
  [[nodiscard]] bool find_room(const open_plan& it, const planned_work& work)
  {
    parallel_plan plan = work.plan;
    const std::uint32_t groups = plan.stages * plan.replicas;
    const auto least = [](const cluster_node& node) { return node.device_bytes; };
    if (groups > most_tried || std::ranges::min(whole_.nodes, {}, least).device_bytes ==
                                   std::ranges::max(whole_.nodes, {}, least).device_bytes)
      return false;
    const memory_proof needs = prove_memory(whole_, work, effort_.beside);
    rank_placement order = identity_placement(groups);
    std::vector<std::uint32_t> best;
    double seconds = std::numeric_limits<double>::infinity();
    do {
      for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank)
        plan.devices[rank] = order[rank / plan.tensor] * plan.tensor + rank % plan.tensor;
      const auto lacks = [&](std::uint32_t stage) {
        return room_of_stage(whole_, plan, stage, effort_.beside)[tier::device] < needs.stages[stage].smallest_device;
      };
      if (std::ranges::any_of(std::views::iota(0U, plan.stages), lacks)) continue;
      if (const double of_order = latency_.of(plan).step; of_order < seconds) {
        seconds = of_order;
        best = plan.devices;
      }
    } while (std::ranges::next_permutation(order).found);
    if (best.empty()) return false;
    const std::scoped_lock lock{mutex_};
    plan_of(it).devices = best;
    open_.insert({std::max(seconds, it.seconds), it.family, it.plan, true, true});
    return true;
  }

  /// Of equal plans, the one that uses less of everything is first.
  [[nodiscard]] static auto key(const found_plan& it)
  {
    const parallel_plan& plan = it.plan;
    return std::tuple{it.time.step,    plan.tensor,         plan.stages, plan.replicas, plan.micro_batch,
                      plan.recomputes, plan.states_on_host, plan.zero,   plan.schedule, plan.parts};
  }
  void keep(found_plan fresh)
  {
    found_.best.insert(std::ranges::upper_bound(found_.best, key(fresh), {}, key), std::move(fresh));
    if (found_.best.size() <= effort_.best) return;
    const found_plan& last = found_.best.back();
    reject("slower than the best, simulated", last.time.step, last.plan, {});
    found_.best.pop_back();
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
    const double most =
        found_.best.size() < effort_.best ? std::numeric_limits<double>::infinity() : found_.best.back().time.step;
    std::uint64_t left = 0;
    for (const open_plan& it : open_) left += !it.is_simulated && it.seconds <= most ? 1 : 0;
    const std::uint64_t done = found_.simulated + 1;
    effort_.tell({found_.simulated, found_.simulated + left, seconds,
                  seconds / static_cast<double>(done) * static_cast<double>(left)});
  }

  const cluster& whole_;
  const trained_model& model_;
  const plan_search_effort& effort_;
  step_latency latency_;
  std::deque<family> families_;
  clock::time_point begin_;

  std::mutex mutex_;  // of all below, and of the devices of plans
  std::condition_variable changed_;
  std::set<open_plan> open_;
  std::size_t working_ = 0;
  plan_search_result found_;
  std::map<std::string, rejected_plans> rejected_;
  double told_ = 0;
  std::exception_ptr error_;
};

}  // namespace detail

/// Finds the fastest plans of a space that fit a cluster.
///
/// A plan is left out without a simulation only where its free bound is above the times of the best plans, so these are
/// never cut off. A plan whose simulated time is good enough is rehearsed: it stays if each of its ranks has the bytes
/// that it needs. Where a device has not room for all that works there, the bytes that come and go lengthen its runs.
///
/// The best plans do not depend on the number of threads, nor on their speed. Counts of rejected plans may: threads
/// look at some plans that a single one need not.
///
///     plan_search_result found = find_plans(whole, shape, {.rows = 512}, {.threads = 2});
///     if (found.best.empty()) std::cerr << found.rejected.front().example << '\n';
///
/// @throws config_error   the cluster or the model cannot be, or no plan divides the devices
/// Cost: a simulation for each plan that the bound does not leave out, a rehearsal for each that is fast
/// Source: the search of Pipette (Yim et al. 2024, arXiv 2405.18093), with an exact simulator and an exact memory
[[nodiscard]] inline plan_search_result find_plans(const cluster& whole, const trained_model& model,
                                                   const plan_space& space, const plan_search_effort& effort = {})
{
  return detail::plan_search{whole, model, space, effort}.run();
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
