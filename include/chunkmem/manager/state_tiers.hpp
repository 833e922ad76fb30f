// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// The tier in which the optimizer states of each parameter live, by the placement policy and by measured leases.
///
///     state_tiers<placement::host_first> tiers{{}};
///     tiers.reset(tensors, 1_MiB, 64_MiB);
///     const tier where = tiers.preferred_tier(weight);
///
/// `reset` asks the policy once the model is sealed. `measured` tells how much an iteration leased at once, and
/// `assign` asks the policy again. Cost: O(slots) for each assignment.
template <placement_policy Placement>
class state_tiers {
 public:
  static constexpr bool is_profiled = profiled_placement<Placement>;

  explicit state_tiers(Placement policy) : policy_{std::move(policy)} {}

  [[nodiscard]] const Placement& policy() const noexcept { return policy_; }
  [[nodiscard]] tier preferred_tier(slot_id value_slot) const noexcept { return tiers_[index_of(value_slot)]; }
  /// The highest tide that tiers were given by, and whether it is that of a whole iteration.
  [[nodiscard]] bytes tide() const noexcept { return tide_; }
  [[nodiscard]] bool is_measured() const noexcept { return measured_; }

  [[nodiscard]] bool is_ready() const noexcept { return ready_; }
  /// Nothing is known but the declarations. @pre sealed @throws config_error   the policy cannot place this model
  void reset(const registry& tensors, bytes frame, bytes device)
  {
    states_.assign(tensors.parameters(), bytes{});
    working_ = bytes{};
    sequence<std::uint8_t> counted(tensors.frames_of_chunk().size(), 0);
    for (const slot_id each : tensors.slot_ids()) add(tensors, frame, each, counted);
    tiers_.clear();
    for (const bytes size : states_) tiers_.push_back(policy_.preferred_tier(role::optimizer_state, size));
    assign(device);
    ready_ = true;
  }

  /// An iteration leased that much at once.
  void measured(bytes tide) noexcept
  {
    tide_ = std::max(tide_, tide);
    measured_ = true;
  }

  /// Puts back the tiers and what was measured, unless `keep()` was called: for calls that may be refused.
  class trial {
   public:
    explicit trial(state_tiers& of) : of_{of}, tiers_{of.tiers_}, tide_{of.tide_}, measured_{of.measured_} {}
    trial(const trial&) = delete;
    ~trial()
    {
      if (is_kept_) return;
      std::swap(of_.tiers_, tiers_);
      of_.tide_ = tide_;
      of_.measured_ = measured_;
    }
    void keep() noexcept { is_kept_ = true; }

   private:
    state_tiers& of_;
    sequence<tier> tiers_;
    bytes tide_;
    bool measured_;
    bool is_kept_ = false;
  };

  /// Gives tiers for a device of this size. @return   one changed   @throws config_error   as reset; tiers as before
  bool assign(bytes device)
  {
    if constexpr (!is_profiled)
      return false;
    else {
      fresh_.assign(tiers_.size(), tier::host);
      policy_.assign({device, working_, tide_, measured_, states_}, fresh_);
      std::swap(tiers_, fresh_);
      return tiers_ != fresh_;
    }
  }

 private:
  void add(const registry& tensors, bytes frame, slot_id id, sequence<std::uint8_t>& counted)
  {
    const slot& slot_state = tensors[id];
    if (slot_state.chunk == chunk_id::none) return;
    if (tensors.is_state(id))
      states_[index_of(tensors.value_of(id))] += bytes{slot_state.size};
    else if (std::exchange(counted[index_of(slot_state.chunk)], std::uint8_t{1}) == 0)
      working_ += tensors.frames_of_chunk()[index_of(slot_state.chunk)] * frame;
  }

  Placement policy_;
  sequence<tier> tiers_;  // by value slot
  sequence<tier> fresh_;
  sequence<bytes> states_;
  bytes working_;
  bytes tide_;
  bool measured_ = false;
  bool ready_ = false;
};

}  // namespace chunkmem::inline v0
