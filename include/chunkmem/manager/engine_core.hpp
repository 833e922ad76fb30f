#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/manager/copy_engine.hpp>
#include <chunkmem/manager/iteration_planner.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal_log.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/manager/residency.hpp>
#include <chunkmem/profile/recorder.hpp>
#include <chunkmem/tensor/state_machine.hpp>

#include <algorithm>
#include <vector>

namespace chunkmem::inline v0 {

/// What a manager is made of, and what its parts do together outside the hot path: arenas, iterations and plans.
///
/// Not for users: see manager.
template <stream_backend Backend, tensor_rules Rules, eviction_policy Eviction, transfer_policy Transfer, class Mover, trace_sink Sink>
class engine_core {
 public:
  engine_core(Backend& backend, const manager_options& options, Eviction eviction, Transfer transfer, Mover mover, Sink sink)
      : backend_{&backend},
        options_{options},
        residency_{std::move(eviction)},
        copies_{backend, std::move(mover), std::move(sink)},
        planner_{std::move(transfer)}
  {
  }
  engine_core(const engine_core&) = delete;
  ~engine_core() { release_arenas(); }

  [[nodiscard]] registry& tensors() noexcept { return registry_; }
  [[nodiscard]] const registry& tensors() const noexcept { return registry_; }
  [[nodiscard]] const manager_options& options() const noexcept { return options_; }
  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }
  [[nodiscard]] rehearsal_log<Rules>& rehearsing() noexcept { return rehearsal_; }
  [[nodiscard]] const rehearsal_log<Rules>& rehearsing() const noexcept { return rehearsal_; }
  [[nodiscard]] std::uint64_t size_of_slot(std::uint32_t at) const noexcept { return registry_.slots()[at].size; }
  static constexpr bool host_addressable = Backend::host_addressable;

  /// Whole frames of a tier, as many as could ever be used; the rest of the arena serves leases.
  [[nodiscard]] std::uint32_t frames_in(bytes capacity) const
  {
    std::uint64_t all = 0;
    for (const std::uint32_t frames : registry_.frames_of_chunk()) all += frames;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(capacity.count() / options_.chunk_bytes.count(), all));
  }

  /// Sets up `target` as this manager's residency would be with the given capacities. Allocates bookkeeping only.
  void shape(residency<Eviction>& target, per_tier<bytes> capacity) const
  {
    target.reset(registry_.frames_of_chunk(), static_cast<std::uint32_t>(registry_.slots().size()));
    for (const tier where : {tier::device, tier::host})
      target.space(where).reset(capacity[where], options_.chunk_bytes, frames_in(capacity[where]));
  }

  [[nodiscard]] per_tier<bytes> capacities() const
  {
    per_tier<bytes> result;
    for (const tier where : {tier::device, tier::host}) result[where] = backend_->capacity(where);
    return result;
  }

  /// Starts an iteration: follows its record with a plan, or records it.
  void begin_iteration(std::string_view name)
  {
    ensure_arenas();
    const bool reload = recorder_.begin(name);
    try {
      if (reload) load_moments();
      if (recorder_.record().empty()) {
        if (!was_empty_) restart_policy();
      } else if constexpr (Transfer::plans) {
        follow_plan();
      } else if (reload || was_empty_) {
        restart_policy();
      }
    } catch (...) {
      recorder_.end(false, registry_.chunk_of_slot(), residency_.chunks());
      throw;
    }
    was_empty_ = recorder_.record().empty();
    ++serial_;
  }

  /// Ends it. @param complete   false where an exception ended it: its record is then kept as it was
  void end_iteration(bool complete)
  {
    release_event_ = tensor_event::release;
    if (!recorder_.is_inside()) return;  // a rehearsal
    for (slot& it : registry_.slots())
      if (machine::is_legal(it.state, tensor_event::reset))
        it.state = static_cast<tensor_state>(machine::next(it.state, tensor_event::reset));
    ++counts_.iterations;
    const auto outcome = recorder_.end(complete, registry_.chunk_of_slot(), residency_.chunks());
    steady_ = outcome == iteration_outcome::repeated && following_plan_ && plans_[recorder_.index()].periodic;
    steady_record_ = recorder_.index();
    following_plan_ = false;
    last_changed_ = outcome != iteration_outcome::repeated;
    if ((outcome == iteration_outcome::changed || outcome == iteration_outcome::recorded) && recorder_.index() < plans_.size())
      plans_[recorder_.index()].valid = false;
    if (outcome == iteration_outcome::changed && !counted_divergence_) ++counts_.divergences;
    counted_divergence_ = false;
    copies_.note(happening::iteration, tier::device, counts_.iterations);
  }

  void set_pass(pass during) noexcept
  {
    constexpr tensor_event events[] = {tensor_event::release, tensor_event::release_forward, tensor_event::release_backward};
    release_event_ = events[static_cast<std::size_t>(during)];
    pass_ = during;
  }
  void set_micro_batch(std::uint16_t at) noexcept { micro_batch_ = at; }
  [[nodiscard]] bool is_inside() const noexcept { return recorder_.is_inside(); }
  [[nodiscard]] bool last_changed() const noexcept { return last_changed_; }
  [[nodiscard]] report snapshot() const
  {
    report result = counts_;
    for (const tier where : {tier::device, tier::host}) {
      result.capacity[where] = backend_->capacity(where);
      result.in_use[where] = bytes{residency_.space(where).in_use()};
      result.peak[where] = bytes{residency_.space(where).peak()};
    }
    copies_.describe(result);
    return result;
  }

  /// The bytes of two lists change places. @throws usage_error   inside an iteration, or as registry::exchange
  void exchange(list_id left, list_id right)
  {
    expects(!recorder_.is_inside(), "lists can be exchanged only between iterations");
    ensure_arenas();
    registry_.exchange(left, right, [this](std::uint32_t a, std::uint32_t b) { residency_.exchange_live(a, b); });
    recorder_.relink(registry_.chunk_of_slot(), residency_.chunks());
    for (auto& plan : plans_) plan.valid = false;
    was_empty_ = true;  // keys of the policy changed: it starts over with the next iteration
  }

 protected:
  using machine = state_machine<Rules>;

  /// The one allocation of a manager in each tier. Guarantee: strong.
  void ensure_arenas()
  {
    if (ready_) [[likely]] return;
    expects(registry_.is_sealed(), "the manager is not sealed");
    const per_tier<bytes> capacity = capacities();
    shape(residency_, capacity);
    try {
      for (const tier where : {tier::device, tier::host})
        if (capacity[where] > bytes{}) arena_[where] = backend_->allocate(where, capacity[where]);
    } catch (...) {
      release_arenas();
      throw;
    }
    copies_.reset(registry_.used(), options_.chunk_bytes.count(), arena_,
                  {{frames_in(capacity[tier::device]), frames_in(capacity[tier::host]), 0}});
    ready_ = true;
  }

  /// An access outside of an iteration may move what a plan relies on.
  void note_access() noexcept { steady_ = steady_ && recorder_.is_inside(); }
  /// From here on the iteration is not the recorded one.
  [[gnu::noinline, gnu::cold]] void diverge()
  {
    recorder_.diverge();
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
    if (following_plan_) leave_plan();
    else if (!residency_.is_telling()) residency_.tell_policy(recorder_.record());
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
        if (action.kind == transfer::move_kind::lease) lease = action.place;
        else if (!run(action)) ++counts_.skipped_moves;
      }
    } catch (...) {
      leave_plan();
      throw;
    }
    return lease;
  }

  Backend* backend_;
  manager_options options_;
  registry registry_;
  residency<Eviction> residency_;
  copy_engine<Backend, Mover, Sink> copies_;
  recorder recorder_;
  rehearsal_log<Rules> rehearsal_;
  bool following_plan_ = false;
  tensor_event release_event_ = tensor_event::release;
  pass pass_ = pass::none;
  std::uint16_t micro_batch_ = 0;
  std::uint32_t serial_ = 0;  // of the iteration, so that a pin of an older one is not logged in this one
  report counts_;

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

  /// Uses the plan of this record where it is still good, else makes it again.
  void follow_plan()
  {
    next_action_ = 0;
    following_plan_ = true;
    if (steady_ && steady_record_ == recorder_.index()) return;  // the last iteration ended as this one begins
    if (plans_.size() <= recorder_.index()) plans_.resize(recorder_.index() + 1);
    iteration_plan<Eviction>& plan = plans_[recorder_.index()];
    if (!plan.valid || !plan.start.same_places(residency_)) {
      if (plan.made++ > 0) {
        ++counts_.replans;
        copies_.note(happening::replan, tier::device, 0);
      }
      planner_.make(plan, residency_, recorder_.record(), registry_.chunk_of_slot());
    }
    residency_.start_of(recorder_.record());
    following_plan_ = plan.valid;
    plan.valid ? residency_.silence_policy() : give_up_plan();
  }

  void give_up_plan()
  {
    ++counts_.abandoned_plans;
    residency_.tell_policy(recorder_.record());
  }

  void release_arenas() noexcept
  {
    if (arena_[tier::device] == nullptr && arena_[tier::host] == nullptr) return;
    try {
      for (unsigned who = 1; who < backend_->agents(); ++who)  // nothing may still write into what is given back
        backend_->wait(agent::host, backend_->record(static_cast<agent>(who)));
    } catch (...) {  // a device that is going away cannot be waited for; its memory goes with it
    }
    for (const tier where : {tier::device, tier::host})
      if (std::byte* const arena = std::exchange(arena_[where], nullptr); arena != nullptr) backend_->release(where, arena);
  }

  iteration_planner<Eviction, Transfer> planner_;
  std::vector<iteration_plan<Eviction>> plans_;  // by record
  std::size_t next_action_ = 0;
  per_tier<std::byte*> arena_;
  std::size_t steady_record_ = 0;
  bool steady_ = false;  // nothing happened since an iteration whose plan ends as it begins
  bool ready_ = false;
  bool was_empty_ = false;          // the last iteration was being recorded
  bool last_changed_ = true;
  bool counted_divergence_ = false;
};

}  // namespace chunkmem::inline v0
