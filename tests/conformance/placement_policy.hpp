// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/placement/placement_policy.hpp>
#include <conformance/trials.hpp>
#include <support/oracles/dice.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace conformance {

/// One trial of the laws of placement_policy, for one role: the answer is device or host and depends on the arguments
/// alone.
template <chunkmem::placement_policy Placement>
[[nodiscard]] std::string mistake_in_tiers(const Placement& placement, std::uint64_t number)
{
  using namespace chunkmem;
  if (std::string_view{Placement::name}.empty()) return "a policy without a name";
  const auto part = static_cast<role>((number - 1) % role_count);
  const Placement copy = placement;
  for (int round = 0; round < 2; ++round)
    for (const bytes size : {bytes{0}, bytes{1}, bytes{256}, 1_MiB, bytes{UINT64_MAX}, bytes{1}}) {
      const auto said = [&](const char* law) {
        return std::string{law} + ": " + std::string{name_of(part)} + " of " + std::to_string(size.count()) + " B";
      };
      const tier preferred = placement.preferred_tier(part, size);
      if (preferred != tier::device && preferred != tier::host) return said("a tier is neither device nor host");
      if (placement.preferred_tier(part, size) != preferred) return said("the same arguments gave two tiers");
      if (copy.preferred_tier(part, size) != preferred) return said("a copy gives another tier");
    }
  return {};
}

inline constexpr std::uint64_t placement_trials = 2 * chunkmem::role_count;

/// The broken law of placement_policy; empty: none.
template <chunkmem::placement_policy Placement>
[[nodiscard]] std::string mistake_in_placement_policy(const Placement& placement = {})
{
  return first_mistake(placement_trials, [&](std::uint64_t number) { return mistake_in_tiers(placement, number); });
}

/// The laws of placement_policy.
template <chunkmem::placement_policy Placement>
void placement_policy_laws(const Placement& placement = {})
{
  require_trials(placement_trials, [&](std::uint64_t number) { return mistake_in_tiers(placement, number); });
}

/// One outlook on a growing device, and the tiers that a placement gave on the last one.
template <chunkmem::profiled_placement Placement>
class outlook_trial {
 public:
  outlook_trial(const Placement& placement, std::uint64_t seed) : placement_{&placement}, copy_{placement}, dice_{seed}
  {
    using chunkmem::bytes;
    states_.resize(dice_.between(1, 20));
    for (bytes& each : states_) each = bytes{dice_.below(1'000)};
    now_ = {bytes{0}, bytes{dice_.below(5'000)}, bytes{dice_.below(3'000)}, dice_.one_in(2), states_};
  }
  outlook_trial(const outlook_trial&) = delete;
  outlook_trial& operator=(const outlook_trial&) = delete;

  [[nodiscard]] const char* mistake()
  {
    for (std::uint64_t device = 0; device < 20'000; device += 1 + dice_.below(900)) {
      now_.device = chunkmem::bytes{device};
      if (const char* mistake = mistake_here(); mistake != nullptr) return mistake;
    }
    return nullptr;
  }

 private:
  using tiers = std::vector<chunkmem::tier>;

  /// None where the placement refuses the outlook.
  [[nodiscard]] tiers tiers_of(const Placement& policy, chunkmem::tier before) const
  {
    tiers given(states_.size(), before);
    try {
      policy.assign(now_, given);
    } catch (const chunkmem::config_error&) {
      given.clear();
    }
    return given;
  }
  [[nodiscard]] const char* mistake_here()
  {
    using chunkmem::tier;
    const tiers given = tiers_of(*placement_, chunkmem::no_tier);
    for (const tier preferred : given)
      if (preferred != tier::device && preferred != tier::host)
        return "assign left a tier as it found it, or gave one that is neither device nor host";
    if (tiers_of(*placement_, tier::host) != given) return "the same outlook gave two answers";
    if (tiers_of(copy_, chunkmem::no_tier) != given) return "a copy gives another tier";
    if (given.size() < smaller_.size()) return "a larger device was refused";
    for (std::size_t index = 0; index < smaller_.size(); ++index)
      if (smaller_[index] == tier::device && given[index] == tier::host)
        return "a larger device moved a state to the host";
    smaller_ = given;
    return nullptr;
  }

  const Placement* placement_;
  Placement copy_;
  support::dice dice_;
  std::vector<chunkmem::bytes> states_;
  chunkmem::placement::outlook now_;
  tiers smaller_;  ///< what the last, smaller device got; none: refused
};

/// One trial of the laws of profiled_placement.
template <chunkmem::profiled_placement Placement>
[[nodiscard]] std::string mistake_in_outlooks(const Placement& placement, std::uint64_t seed)
{
  outlook_trial<Placement> trial{placement, seed};
  const char* const mistake = trial.mistake();
  return mistake == nullptr ? "" : mistake;
}

inline constexpr std::uint64_t outlook_trials = 300;

/// The broken law of profiled_placement; empty: none.
template <chunkmem::profiled_placement Placement>
[[nodiscard]] std::string mistake_in_profiled_placement(const Placement& placement = {})
{
  const std::string mistake = mistake_in_placement_policy(placement);
  if (!mistake.empty()) return mistake;
  return first_mistake(outlook_trials, [&](std::uint64_t seed) { return mistake_in_outlooks(placement, seed); });
}

/// The laws of profiled_placement: tiers for everyone, the same for the same outlook, and never fewer on a larger
/// device. An outlook that the placement refuses is one that it refuses every time, and on every smaller device.
template <chunkmem::profiled_placement Placement>
void profiled_placement_laws(const Placement& placement = {})
{
  placement_policy_laws(placement);
  require_trials(outlook_trials, [&](std::uint64_t seed) { return mistake_in_outlooks(placement, seed); });
}

}  // namespace conformance
