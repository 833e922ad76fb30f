// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/engine_core.hpp>
#include <chunkmem/manager/iteration_planner.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Drives iterations: which record is followed, by which plan, and what happens when either does not hold.
///
/// An iteration that starts where nothing has been proven is replayed first; where it would not fit, the device is
/// cleared, which is the start that a rehearsal proves. So a rehearsed step fits always, also after a failure or
/// another loop in between, where the host holds all chunks. Not for users: see manager.
template <stream_backend Backend, tensor_rules Rules, eviction_policy Eviction, transfer_policy Transfer, class Mover,
          trace_sink Sink, check_policy Checks = checks::none>
class iteration_driver : public engine_core<Backend, Rules, Eviction, Mover, Sink, Checks> {
  using base = engine_core<Backend, Rules, Eviction, Mover, Sink, Checks>;

 public:
  iteration_driver(Backend& backend, const manager_options& options, Eviction eviction, Transfer transfer, Mover mover,
                   Sink sink)
      : base{backend, options, std::move(eviction), std::move(mover), std::move(sink)}, planner_{std::move(transfer)}
  {
  }

  /// Starts an iteration: follows its record with a plan, or records it. Guarantee: basic, no iteration has begun.
  void begin_iteration(std::string_view name)
  {
    this->ensure_arenas();
    if (places_.is_pending() && !is_inside()) settle_gradients();  // inside, the next line refuses
    const bool reload = recorder_.begin(name, this->pending_.any());
    try {
      places_.begin(recorder_.index());
      if (reload) load_moments();
      this->mask_pending();
      residency_.begin_round();
      recorder_.is_logging() ? start_recording() : start_following();
    } catch (...) {
      following_plan_ = exceptional_ = steady_ = false;
      recorder_.end(false, registry_.chunk_of_slot(), residency_.chunks(), [](std::uint32_t, at) { return 0U; });
      // whoever asks the policy next tells it of this record, not of the one before
      residency_.start_of(recorder_.record());
      throw;
    }
    ++serial_;
  }

  /// Ends it. @param complete   false where an exception ended it: its record is then kept as it was
  void end_iteration(bool complete)
  {
    set_pass(pass::none), set_micro_batch(0);
    for (slot& it : registry_.slots())
      if (machine::is_legal(it.state, tensor_event::reset))
        it.state = static_cast<tensor_state>(machine::next(it.state, tensor_event::reset));
    ++counts_.iterations;
    const bool planned = std::exchange(following_plan_, false);
    const bool exceptional = std::exchange(exceptional_, false);
    const bool counted = std::exchange(counted_divergence_, false);
    steady_ = has_repeated_ = false;
    auto outcome = iteration_outcome::abandoned;
    try {
      outcome = recorder_.end(complete && !exceptional, registry_.chunk_of_slot(), residency_.chunks(),
                              [this](std::uint32_t slot, at place) { return registry_.slots()[slot].pins_in(place); });
    } catch (...) {
      residency_.silence_policy();  // it starts over before it is asked again
      throw;
    }
    const std::size_t record = recorder_.index();
    last_changed_ = outcome == iteration_outcome::changed;
    const bool is_new = last_changed_ || outcome == iteration_outcome::recorded;
    if (is_new) places_.learn(recorder_.record(), registry_);
    if (last_changed_ && !counted) ++counts_.divergences;
    if (is_new && record < plans_.size()) plans_[record].forget();
    if (last_changed_) residency_.start_of(recorder_.record());
    has_repeated_ = outcome == iteration_outcome::repeated && planned;
    steady_ = outcome == iteration_outcome::repeated && (!Transfer::plans || (planned && plans_[record].periodic));
    steady_record_ = record;
    copies_.note(happening::iteration, tier::device, counts_.iterations);
  }

  /// This iteration is not what the next ones will be: its record stays as it was.
  void keep_record() noexcept { exceptional_ = recorder_.is_inside(); }
  void set_pass(pass during) noexcept
  {
    constexpr tensor_event events[] = {tensor_event::release, tensor_event::release_forward,
                                       tensor_event::release_backward};
    release_event_ = events[static_cast<std::size_t>(pass_ = during)];
  }
  void set_micro_batch(std::uint16_t at) noexcept { micro_batch_ = at; }
  /// The trainer named a pass: the trace says so.
  void enter_pass(pass during, std::uint16_t micro_batch) noexcept
  {
    set_pass(during), set_micro_batch(micro_batch);
    if (during != pass::none)
      copies_.note(during == pass::forward ? happening::forward : happening::backward, tier::device, micro_batch);
  }
  /// An optimizer's step begins: the trace says so.
  void note_update() noexcept { copies_.note(happening::update, tier::device, 0); }
  [[nodiscard]] bool is_inside() const noexcept { return recorder_.is_inside(); }
  [[nodiscard]] bool last_changed() const noexcept { return last_changed_; }

  /// The bytes of two lists change places. @throws usage_error   inside an iteration, or as registry::exchange
  void exchange(list_id left, list_id right)
  {
    expects(!recorder_.is_inside(), "lists can be exchanged only between iterations");
    this->finish_updates(), this->exchange_lists(left, right);
    forget_plans();
  }

  /// For captured_step, as all down to `replay`: the last iteration was as recorded and planned; steady: it ended where
  /// it began, and since nothing.
  [[nodiscard]] bool has_repeated() const noexcept { return has_repeated_; }
  [[nodiscard]] bool is_steady() const noexcept { return steady_; }
  [[nodiscard]] const chunk_table& places_now() const noexcept { return residency_.table(); }
  /// Changes whenever slots come to lie elsewhere in their chunks.
  [[nodiscard]] std::uint64_t arrangement() const noexcept { return arrangement_; }
  /// All that is not pinned leaves the device, as far as the host has room. @throws device_error   some may have left
  void clear_device()
  {
    steady_ = false;
    residency_.evict_all(copies_);
  }
  /// Brings things back to where they lay, as far as nothing has to be loaded. @param clears   onto a cleared device
  void return_to(const chunk_table& before, bool clears)
  {
    if (clears) clear_device();
    residency_.give_up_copies(before, copies_);
  }
  /// One more iteration, done by the device alone. @pre   everything lies where the graph expects it
  template <class Graph>
  void replay(Graph& graph, const report& moved)
  {
    this->health().starting([&] { this->backend().launch(graph); });
    copies_.replayed(moved);
    ++counts_.iterations, ++serial_;
    copies_.note(happening::iteration, tier::device, counts_.iterations);
  }

  /// Gradients go to where the records say that they may lie. @pre outside of iterations
  void settle_gradients()
  {
    if (this->pending_.any() && places_.is_wanting()) this->finish_updates();  // gradients that wait cannot move
    if (!places_.settle(registry_)) return;
    recorder_.relink(registry_.chunk_of_slot(), static_cast<std::uint32_t>(registry_.frames_of_chunk().size()));
    forget_plans();
  }

 protected:
  using machine = state_machine<Rules>;
  using base::copies_, base::counts_, base::places_, base::recorder_, base::registry_, base::residency_;

  /// An access outside of an iteration may move what a plan relies on.
  void note_access() noexcept { steady_ = steady_ && recorder_.is_inside(); }

  /// The iteration is not the recorded one.
  [[gnu::noinline, gnu::cold]] void diverge()
  {
    recorder_.diverge([this](std::uint32_t slot, at place) { return registry_.slots()[slot].pins_in(place); });
    counted_divergence_ = true;
    ++counts_.divergences;
    copies_.note(happening::divergence, tier::device, 0);
    if (following_plan_) leave_plan();
  }

  /// The plan is over for this iteration; the policy decides again.
  [[gnu::noinline, gnu::cold]] void leave_plan()
  {
    following_plan_ = false;
    give_up_plan();
  }

  /// Whatever comes next may ask the policy.
  void ensure_policy()
  {
    if (following_plan_) return leave_plan();
    if (!residency_.is_telling()) residency_.tell_policy(recorder_.record());
  }

  /// Carries out what was planned for this moment. @return   where the plan puts a lease, or no_place
  [[gnu::noinline]] std::uint64_t run_actions(std::uint32_t now)
  {
    std::uint64_t lease = tier_space::no_place;
    if (!following_plan_) return lease;
    const auto& actions = plans_[recorder_.index()].actions;
    try {
      for (; next_action_ < actions.size() && actions[next_action_].moment <= now; ++next_action_) {
        const transfer::move& action = actions[next_action_];
        if (action.kind == transfer::move_kind::lease)
          lease = action.place;
        else if (!run(action))
          ++counts_.skipped_moves;
      }
    } catch (...) {
      leave_plan();
      throw;
    }
    return lease;
  }

  tensor_event release_event_ = tensor_event::release;
  pass pass_ = pass::none;
  std::uint16_t micro_batch_ = 0;
  iteration_planner<Eviction, Transfer> planner_;
  bool following_plan_ = false;
  bool steady_ = false;  // nothing happened since an iteration that can be repeated from where it ended
  std::vector<iteration_plan<Eviction>> plans_;  // by record
  std::uint32_t serial_ = 0;  // of the iteration, so that a pin of an older one is not logged in this one

 private:
  bool run(const transfer::move& action)
  {
    const auto first = static_cast<std::uint32_t>(action.place);
    switch (action.kind) {
      case transfer::move_kind::evict: return residency_.try_evict(action.chunk, copies_);
      case transfer::move_kind::load: return residency_.try_load(action.chunk, first, true, copies_);
      case transfer::move_kind::claim: return residency_.try_load(action.chunk, first, false, copies_);
      case transfer::move_kind::write_back: return residency_.try_write_back(action.chunk, copies_);
      case transfer::move_kind::lease:
      case transfer::move_kind::vacate: break;
    }
    return true;
  }

  void forget_plans() noexcept
  {
    for (auto& plan : plans_) plan.forget();
    steady_ = false;
    ++arrangement_;
  }

  void load_moments() noexcept
  {
    const auto first = recorder_.record().first_of_slot();
    auto& slots = registry_.slots();
    for (std::size_t at = 0; at < slots.size(); ++at) slots[at].next_moment = first[at];
  }

  void restart_policy()
  {
    residency_.start_of(recorder_.record());
    residency_.tell_policy(recorder_.record());
  }

  /// Nothing is known of what comes, but perhaps a rehearsal: what may not fit from here starts on an empty device, as
  /// there.
  void start_recording()
  {
    if (!this->device_holds_all(residency_) ||
        !planner_.can_record(residency_, this->rehearsing().record(this->pending_.any()), registry_.chunk_of_slot()))
      residency_.evict_all(copies_);
    restart_policy();
  }

  void start_following()
  {
    next_action_ = 0;
    if (steady_ && steady_record_ == recorder_.index()) {  // the last iteration ended as this one begins
      following_plan_ = Transfer::plans;
      return;
    }
    if (follow_from_here()) return;
    residency_.evict_all(copies_);
    ++counts_.clean_starts;
    if (follow_from_here()) return;
    residency_.start_of(recorder_.record());
    give_up_plan();
  }

  /// Follows the record from where everything lies now. @return   false where it would not fit
  bool follow_from_here()
  {
    access_record& record = recorder_.record();
    if constexpr (Transfer::plans) {
      if (plans_.size() <= recorder_.index()) plans_.resize(recorder_.index() + 1);
      iteration_plan<Eviction>& plan = plans_[recorder_.index()];
      if (!plan.valid || !plan.start.same_places(residency_.table())) plan_from_here(plan, record);
      if (!plan.valid) return false;
      residency_.start_of(record, plan.without_homes());
      following_plan_ = true;
      return true;
    } else {
      if (!planner_.settles(residency_, record, registry_.chunk_of_slot())) return false;
      restart_policy();
      return true;
    }
  }

  /// The iteration has been followed from here before, or a plan is made.
  void plan_from_here(iteration_plan<Eviction>& plan, access_record& record)
  {
    if (plan.recall(residency_.table())) return planner_.mark(plan, record);
    const bool is_first = plan.made++ == 0;
    if (!is_first) {
      ++counts_.replans;
      copies_.note(happening::replan, tier::device, 0);
    }
    plan.put_aside();
    if (plan.tuned) planner_.settle(plan, residency_, record, registry_.chunk_of_slot());
    planner_.make(plan, residency_, record, registry_.chunk_of_slot());
    if (is_first) plan.reserve();
  }

  void give_up_plan()
  {
    ++counts_.abandoned_plans;
    residency_.tell_policy(recorder_.record());
  }

  std::size_t next_action_ = 0;
  std::size_t steady_record_ = 0;
  bool has_repeated_ = false;
  std::uint64_t arrangement_ = 0;
  bool last_changed_ = false;
  bool counted_divergence_ = false;
  bool exceptional_ = false;
};

}  // namespace chunkmem::inline v0
