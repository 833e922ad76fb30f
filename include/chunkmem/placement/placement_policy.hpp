#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/role.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// Decides in which tier a role lives, and with that where the optimizer's update runs: where its states live.
///
/// Laws: the answer is `device` or `host` and depends on the arguments alone.
template <class Placement>
concept placement_policy = names_itself<Placement> && std::same_as<typename Placement::policy_kind, placement_kind> &&
                           requires(const Placement placement, role part, bytes size) {
                             { placement.home_of(part, size) } -> std::same_as<tier>;
                           };

}  // namespace chunkmem::inline v0
