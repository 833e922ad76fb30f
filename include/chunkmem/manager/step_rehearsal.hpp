// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/capacity_check.hpp>
#include <chunkmem/manager/gradient_ledger.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/manager/rehearse_on.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// Runs a trainer's step without bytes, and finds the least capacities at which it runs.
///
/// `run(step, on)` is what basic_manager::rehearse does. Cost: the step's calls, once or a few times, and the replays
/// of `rehearsal`.
/// @tparam Builder   model_builder: places the model and gives states their tiers
template <class Engine, class Builder>
class step_rehearsal {
 public:
  using eviction_type = typename Engine::eviction_type;

  /// All of them outlive this. @param eviction   policy to simulate with
  step_rehearsal(Engine& engine, Builder& builder, gradient_ledger& ledger, eviction_type eviction)
      : engine_{&engine}, builder_{&builder}, ledger_{&ledger}, eviction_{std::move(eviction)}
  {
  }
  step_rehearsal(const step_rehearsal&) = delete;

  [[nodiscard]] bool is_running() const noexcept { return engine_->rehearsing().is_running(); }

  /// @throws config_error, usage_error   see basic_manager::rehearse
  template <class Step>
  memory_requirement run(Step& step, rehearse_on on)
  {
    using transfer_type = typename Engine::transfer_type;
    builder_->place();
    engine_->pending().finish();
    auto tiers = builder_->try_tiers();
    const scratch_until_end scratch{*engine_, on};
    run_without_bytes(step);
    const auto& log = engine_->rehearsing();
    builder_->measured(most_leased_of(log, tier::device));
    memory_requirement need = builder_->requirement();
    const per_tier<bytes> given = engine_->arenas().capacities();
    measure_need<transfer_type>(engine_->frames(), log, eviction_, given, need,
                                [&](bytes device) { return settle(device, step); });
    refuse_too_small_for_step(given, need);
    builder_->note_fit();
    engine_->note_step_need({{need.smallest_device, need.smallest_host}});
    if (builder_->assign_tiers()) run_without_bytes(step);
    tiers.keep();
    return need;
  }

 private:
  /// The record becomes that of a device of this size. @return   false where the placement refuses it
  template <class Step>
  bool settle(bytes device, Step& step)
  try {
    if (builder_->assign_tiers(device)) run_without_bytes(step);
    return true;
  } catch (const config_error&) {
    return false;
  }

  template <class Step>
  void run_without_bytes(Step& step)
  {
    expects(!engine_->schedule().is_inside() && !is_running(), "a rehearsal inside an iteration or another rehearsal");
    engine_->health().expect_alive();
    auto& log = engine_->rehearsing();
    ledger_->begin_rehearsal();
    try {
      log.begin(engine_->tensors());
      step();
      while (log.wants_next(engine_->pending().any())) {
        log.begin_next(engine_->pending().any());
        step();
      }
      expects(!engine_->scratch().is_on() || log.held() == 0,
              "a pin or lease of a rehearsal on scratch bytes outlived the step: its bytes are no tensor's (end all of "
              "them in the step)");
    } catch (...) {
      end();
      throw;
    }
    end();
    builder_->learn_order(log.last_record());
    engine_->places().learn(log.last_record(), engine_->tensors());
    engine_->settle_gradients();
    log.finish(engine_->tensors());
  }

  void end() noexcept
  {
    if (is_running()) engine_->rehearsing().end();
    engine_->pending().discard();
    ledger_->end_rehearsal();
    builder_->forget_ready();
  }

  /// Pins and leases point to scratch bytes while it lives. Kernels that were launched on them are waited for.
  class scratch_until_end {
   public:
    scratch_until_end(Engine& engine, rehearse_on on)
    {
      if (on == rehearse_on::nothing || engine.rehearsing().is_running()) return;  // inside another one it is refused
      expects(Engine::host_addressable,
              "a rehearsal on scratch bytes, of a device that the calling thread cannot address: its kernels "
              "could not work on them (rehearse on nothing, and skip kernels where rehearsing() is true)");
      std::uint64_t largest = 0;
      for (const slot& slot_state : engine.tensors().slots()) largest = std::max(largest, slot_state.size);
      engine.scratch().begin(largest);
      engine_ = &engine;
    }
    scratch_until_end(const scratch_until_end&) = delete;
    ~scratch_until_end()
    {
      if (engine_ == nullptr) return;
      engine_->arenas().wait_for_agents();
      engine_->scratch().end(engine_->rehearsing().held() > 0);
    }

   private:
    Engine* engine_ = nullptr;
  };

  Engine* engine_;
  Builder* builder_;
  gradient_ledger* ledger_;
  eviction_type eviction_;
};

}  // namespace chunkmem::inline v0
