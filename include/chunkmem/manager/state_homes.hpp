// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// The tier in which the optimizer states of each parameter live, by the placement policy and by measured leases.
///
/// `reset` asks the policy once the model is sealed. `measured` tells how much an iteration leased at once, and
/// `assign` asks the policy again. Cost: O(slots) for each assignment.
template <placement_policy Placement>
class state_homes {
 public:
  static constexpr bool is_profiled = profiled_placement<Placement>;

  explicit state_homes(Placement policy) : policy_{std::move(policy)} {}

  [[nodiscard]] const Placement& policy() const noexcept { return policy_; }
  [[nodiscard]] tier home_of(std::uint32_t value_slot) const noexcept { return homes_[value_slot]; }
  /// The highest tide that homes were given by, and whether it is that of a whole iteration.
  [[nodiscard]] bytes tide() const noexcept { return tide_; }
  [[nodiscard]] bool is_measured() const noexcept { return measured_; }

  [[nodiscard]] bool is_ready() const noexcept { return ready_; }
  /// Nothing is known but the declarations. @pre sealed @throws config_error   the policy cannot place this model
  void reset(const registry& tensors, bytes frame, bytes device)
  {
    states_.assign(tensors.parameters(), bytes{});
    working_ = bytes{};
    sequence<std::uint8_t> counted(tensors.frames_of_chunk().size(), 0);
    for (std::uint32_t at = 0; at < tensors.slots().size(); ++at) add(tensors, frame, at, counted);
    homes_.clear();
    for (const bytes size : states_) homes_.push_back(policy_.home_of(role::optimizer_state, size));
    assign(device);
    ready_ = true;
  }

  /// An iteration leased that much at once.
  void measured(bytes tide) noexcept
  {
    tide_ = std::max(tide_, tide);
    measured_ = true;
  }

  /// Gives homes for a device of this size. @return   one changed   @throws config_error   as reset; homes as before
  bool assign(bytes device)
  {
    if constexpr (!is_profiled)
      return false;
    else {
      fresh_.assign(homes_.size(), tier::host);
      policy_.assign({device, working_, tide_, measured_, states_}, fresh_);
      std::swap(homes_, fresh_);
      return homes_ != fresh_;
    }
  }

 private:
  void add(const registry& tensors, bytes frame, std::uint32_t at, sequence<std::uint8_t>& counted)
  {
    const slot& it = tensors.slots()[at];
    if (it.chunk == slot::nowhere) return;
    if (tensors.is_state(at))
      states_[at % tensors.parameters()] += bytes{it.size};
    else if (std::exchange(counted[it.chunk], std::uint8_t{1}) == 0)
      working_ += tensors.frames_of_chunk()[it.chunk] * frame;
  }

  Placement policy_;
  sequence<tier> homes_;  // by value slot
  sequence<tier> fresh_;
  sequence<bytes> states_;
  bytes working_;
  bytes tide_;
  bool measured_ = false;
  bool ready_ = false;
};

}  // namespace chunkmem::inline v0
