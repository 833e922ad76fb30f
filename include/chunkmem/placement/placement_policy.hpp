// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Decides the tier of a role. The tier of the optimizer states is also the place of the update.
///
/// It is called for the states of each parameter, with their bytes in all lists together. Laws: the answer is `device`
/// or `host` and depends on the arguments alone.
template <class Placement>
concept placement_policy = names_itself<Placement> && std::same_as<typename Placement::policy_kind, placement_kind> &&
                           requires(const Placement placement, role part, bytes size) {
                             {
                               placement.preferred_tier(part, size)
                             } -> std::same_as<tier>;
                           };

namespace placement {

/// The input of a placement, which gives the states of each parameter a tier.
///
///     struct my_placement {
///       void assign(const outlook& now, std::span<tier> tiers) const
///       {
///         for (tier& it : tiers) it = now.working + now.peak_leased < now.device ? tier::device : tier::host;
///       }
///     };
struct outlook {
  bytes device;                   ///< its capacity
  bytes working;                  ///< all chunks without states, in whole frames: they are used on the device
  bytes peak_leased;              ///< the peak of leases on the device, as far as it is known
  bool is_measured = false;       ///< the peak of leases of a whole iteration is known
  std::span<const bytes> states;  ///< of each parameter, in all lists, in the order of declaration
  /// the chunk of each parameter: parameters of one chunk move together. Empty: each has its own
  std::span<const std::uint32_t> chunks{};
};

}  // namespace placement

/// A placement that decides by the measurements of an iteration.
///
/// Laws: `assign` gives every parameter `device` or `host`, and the same tiers for the same outlook; more device never
/// moves a state to the host. `preferred_tier` gives the tier of states before a measurement.
/// @throws config_error   from `assign` alone: this model cannot be placed by this rule
template <class Placement>
concept profiled_placement =
    placement_policy<Placement> && requires(const Placement placement, const placement::outlook& now,
                                            std::span<tier> tiers) { placement.assign(now, tiers); };

}  // namespace chunkmem::inline v0
