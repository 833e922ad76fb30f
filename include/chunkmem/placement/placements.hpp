// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/placement/placement_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// optimizer_on_host, which is the default, device_margin, fixed_split and update_share; any_placement is chosen at run
// time.

namespace chunkmem::inline v0 {

namespace placement {

/// Optimizer states stay on the host and are updated there; all else is used on the device.
///
///     manager<backend::host_arena, placement::optimizer_on_host> m{memory};
///
/// Two thirds of the model data then never go to the device. Good when the device is small; poor when it has room left.
/// Source: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840). Cost: none.
struct optimizer_on_host {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "optimizer_on_host";

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }
};

static_assert(placement_policy<optimizer_on_host>);

/// The name before 0.2.
using host_first [[deprecated("use optimizer_on_host")]] = optimizer_on_host;

/// Optimizer states use the memory of the device that the peak of leases leaves free, and are updated there; the rest
/// is on the host.
///
///     manager<backend::host_arena, placement::device_margin> m{memory, {}, placement::device_margin{.share = 0.5}};
///
/// The margin is the capacity of the device minus all other chunks and the peak of leases, so that states push no other
/// chunk out. The first parameters get the margin. Good when the device is larger than parameters, gradients and leases
/// together; where it is smaller this is `optimizer_on_host`. Before the first rehearsed or recorded iteration, all
/// states stay on the host. When the peak of leases grows, tiers are assigned again, and the next iteration is a
/// divergence. Source: PatrickStar's margin placement (Fang et al. 2021, arXiv 2108.05818). Cost: O(parameters) for
/// each assignment.
struct device_margin {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "device_margin";

  /// The part of the margin for states, 0 to 1; the rest covers chunks that the last state shares with others.
  double share = 0.8;

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }

  /// @throws usage_error   the share is not from 0 to 1
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    expects(share >= 0 && share <= 1, "the share of device_margin is not from 0 to 1");
    const bytes taken = now.working + now.peak_leased;
    const std::uint64_t margin = now.is_measured && now.device > taken ? (now.device - taken).count() : 0;
    auto left = static_cast<std::uint64_t>(static_cast<double>(margin) * share);
    bool fits = true;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      fits = fits && now.states[index].count() <= left;
      tiers[index] = fits ? tier::device : tier::host;
      if (fits) left -= now.states[index].count();
    }
  }
};

static_assert(profiled_placement<device_margin>);

/// A static partition: all chunks that are used on the device stay there, and a fixed share of the optimizer states.
///
///     manager<backend::host_arena, placement::fixed_split> m{memory, {}, placement::fixed_split{.device_share = 0.5}};
///
/// Refuses a model that does not fit at once, and moves no chunk: the largest model is the one whose parameters,
/// gradients and leases lie on the device together. Gradients count in bytes of their own until an iteration, or a
/// rehearsal, has shown that they lie in their weights. Good as a baseline, and where no chunk may move; poor for
/// larger models. Source: ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840). Cost: O(parameters) for each assignment.
struct fixed_split {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "fixed_split";

  /// Share of the bytes of states on the device, 0 to 1: the states of the first parameters.
  double device_share = 0.0;

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }

  /// @throws usage_error   the share is not from 0 to 1; config_error   the device is too small
  void assign(const outlook& now, std::span<tier> tiers) const
  {
    expects(device_share >= 0 && device_share <= 1, "the device_share of fixed_split is not from 0 to 1");
    bytes all;
    for (const bytes each : now.states) all += each;
    const auto wanted = static_cast<std::uint64_t>(static_cast<double>(all.count()) * device_share);
    bytes given;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      const bytes with_this = given + now.states[index];
      tiers[index] = with_this.count() <= wanted ? tier::device : tier::host;
      if (tiers[index] == tier::device) given = with_this;
    }
    const bytes need = now.working + now.peak_leased + given;
    if (need <= now.device) return;
    throw config_error{error_text{} << "chunkmem: a static partition of this model needs " << need.count()
                                    << " B on the device, whose capacity is " << now.device.count()
                                    << " B (raise it, make device_share smaller, or use placement::device_margin)"};
  }
};

static_assert(profiled_placement<fixed_split>);

/// A share of the optimizer states is updated on the device, in the first chunks or evenly spread chunks; the rest on
/// the host.
///
///     const placement::update_share quarter{.device_share = 0.25};
///     manager<backend::host_arena, placement::update_share> m{memory, {}, quarter};
///
/// Decides where updates run, not where bytes stay: these states move like any other chunk, so any share fits as long
/// as the host holds the other states. Good with a share from planner::plan_memory, and where the device updates faster
/// than the link copies states; poor with a guessed share. For states that must not move, use fixed_split. The
/// parameters of a chunk are updated in one place: otherwise a chunk would move for a few of them. The share is rounded
/// to the nearest chunk, so a model of one chunk is updated on the device from a share of a half. Chunks are in the
/// order of their first parameters. By default the device takes the first chunks: their gradients come last, when the
/// host has updated the others. With `in_turn` it takes chunks spread evenly, for a device with room for the states of
/// few parameters: host, device and both directions of the link then work at once. Source: interleaved updates of Deep
/// Optimizer States (Maurya et al. 2024, arXiv 2410.21316). Cost: O(parameters) for each assignment.
struct update_share {
  using policy_kind = placement_kind;
  static constexpr std::string_view name = "update_share";

  double device_share = 0.0;  ///< of the bytes of states, 0 to 1
  bool in_turn = false;       ///< spread evenly over the chunks, in place of the first chunks; never above the share

  [[nodiscard]] constexpr tier preferred_tier(role part, bytes) const noexcept
  {
    return part == role::optimizer_state ? tier::host : tier::device;
  }

  /// @throws usage_error   the share is not from 0 to 1
  void assign(const placement::outlook& now, std::span<tier> tiers) const
  {
    expects(device_share >= 0 && device_share <= 1, "the device_share of update_share is not from 0 to 1");
    constexpr double rounding = 1 + 1e-9;  // a share of k / n chunks is k chunks
    const auto chunk_of = [&](std::size_t index) { return now.chunks.empty() ? index : now.chunks[index]; };
    std::vector<double> sizes;  // of the states of each chunk; negative once it has a tier
    double all = 0;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      sizes.resize(std::max(sizes.size(), chunk_of(index) + 1));
      sizes[chunk_of(index)] += static_cast<double>(now.states[index].count());
      all += static_cast<double>(now.states[index].count());
    }
    std::vector<tier> tier_of(sizes.size(), tier::host);
    double seen = 0;
    double given = 0;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      double& size = sizes[chunk_of(index)];
      if (size >= 0) {
        seen += size;
        const bool fits =
            in_turn ? given + size <= seen * device_share * rounding : seen - size / 2 <= all * device_share * rounding;
        if (device_share > 0 && fits) {
          tier_of[chunk_of(index)] = tier::device;
          given += size;
        }
        size = -1;
      }
      tiers[index] = tier_of[chunk_of(index)];
    }
  }
};

static_assert(profiled_placement<update_share>);

/// One placement out of a list, chosen at run time: `any_placement<optimizer_on_host, device_margin>{"device_margin"}`.
///
/// If one of the list is a profiled_placement, so is this. A chosen policy that is not one assigns the tiers of its
/// `preferred_tier`. Good and poor as policy_choice. Cost: one indirect call for each assignment, or each parameter.
template <placement_policy... Policies>
class any_placement : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_placement";
  using policy_choice<Policies...>::policy_choice;

  [[nodiscard]] tier preferred_tier(role part, bytes size) const
  {
    return this->ask([&](const auto& chosen) { return chosen.preferred_tier(part, size); });
  }

  void assign(const outlook& now, std::span<tier> tiers) const
    requires(profiled_placement<Policies> || ...)
  {
    this->ask([&]<class Chosen>(const Chosen& chosen) {
      if constexpr (profiled_placement<Chosen>)
        chosen.assign(now, tiers);
      else
        for (std::size_t index = 0; index < tiers.size(); ++index)
          tiers[index] = chosen.preferred_tier(role::optimizer_state, now.states[index]);
    });
  }
};

}  // namespace placement

}  // namespace chunkmem::inline v0
