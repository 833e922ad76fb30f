// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/covering.hpp>
#include <support/mixed_reference.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The matrix of training runs, and a small part of it that still has every pair.
namespace precision {

namespace mixed = support::mixed;

/// One value for each axis of the matrix.
struct setting {
  enum axis : std::size_t {
    eviction,
    size,
    transfer,
    gradient,
    accumulation,
    kind,
    optimizer,
    place,
    layout,
    placement,
    updates,
    axes
  };
  support::point<axes> at{};

  [[nodiscard]] bool lookahead() const noexcept { return at[transfer] == 1; }
  [[nodiscard]] bool in_place() const noexcept { return at[gradient] == 1; }
  [[nodiscard]] std::uint32_t micro_batches() const noexcept { return at[accumulation] == 1 ? 4 : 1; }
  [[nodiscard]] mixed::precision precision() const noexcept { return static_cast<mixed::precision>(at[kind]); }
  [[nodiscard]] bool adversarial() const noexcept { return at[place] >= 2; }
  [[nodiscard]] bool launched() const noexcept { return at[place] % 2 == 1; }

  /// What the library refuses: gradients in place that would have to add up, and such without masters.
  [[nodiscard]] bool is_refused() const noexcept
  {
    return in_place() && (micro_batches() > 1 || precision() == mixed::precision::fp32);
  }
  [[nodiscard]] mixed::recipe recipe() const
  {
    const bool narrow_range = precision() == mixed::precision::fp16;  // overflows by itself in the first step
    const auto which = static_cast<mixed::rule>(at[optimizer]);
    const auto norm = which == mixed::rule::adam ? mixed::norm_kind::l2 : mixed::norm_kind::l1;
    return {.kind = precision(),
            .optimizer = which,
            .micro_batches = micro_batches(),
            .clip = {.norm = which == mixed::rule::adam ? 1.0F : 20.0F, .kind = norm},
            .scale = {.scale = narrow_range ? 131072.0F : 256.0F, .window = 2},
            .updates = static_cast<mixed::updating>(at[updates])};
  }
  [[nodiscard]] std::string name() const
  {
    static constexpr const char* names[axes][5] = {
        {"lru", "belady", "fifo", "list_order", "cost_aware"},
        {"smallest", "1.5x", "3x", "unlimited"},
        {"no_prefetch", "lookahead", "planned"},
        {"separate", "in_place"},
        {"1 micro-batch", "4 micro-batches"},
        {"fp32", "bf16", "fp16"},
        {"Adam", "SGD"},
        {"host_arena", "host_arena launched", "adversarial", "adversarial launched"},
        {"append", "best_fit", "size_class"},
        {"optimizer_on_host", "device_margin", "fixed_split"},
        {"updates at once", "late updates", "early updates"}};
    std::string all;
    for (std::size_t it = 0; it < axes; ++it) all += (it == 0 ? "" : ", ") + std::string{names[it][at[it]]};
    return all;
  }
};

inline constexpr support::point<setting::axes> extents{5, 4, 3, 2, 2, 3, 2, 4, 3, 3, 3};

/// The other layouts, placements and ways to update of a setting: as many as there are of them together.
inline constexpr std::size_t arrangements = 27;
[[nodiscard]] inline setting arranged(setting it, std::size_t which)
{
  it.at[setting::layout] = static_cast<std::uint8_t>(which % 3);
  it.at[setting::placement] = static_cast<std::uint8_t>(which / 3 % 3);
  it.at[setting::updates] = static_cast<std::uint8_t>(which / 9 % 3);
  return it;
}

inline constexpr std::size_t most_runs = 40;  ///< of the cover

/// Every combination of all axes but the last three, the refused ones too; all with the first of those.
[[nodiscard]] inline std::vector<setting> all_settings()
{
  support::point<setting::axes> first_arranged = extents;
  for (const setting::axis last : {setting::layout, setting::placement, setting::updates}) first_arranged[last] = 1;
  std::vector<setting> all;
  for (const auto& at : support::legal_points(first_arranged, [](const auto&) { return true; })) all.push_back({at});
  return all;
}

/// Every pair that is not refused, and among gradients in place every pair of the other axes; then a second cover out
/// of the rest, from the other end, where all choices are others, as far as there is room for it.
[[nodiscard]] inline std::vector<setting> pairwise_cover()
{
  auto allowed = support::legal_points(extents, [](const auto& at) { return !setting{at}.is_refused(); });
  auto in_place = allowed;
  std::erase_if(in_place, [](const auto& at) { return !setting{at}.in_place(); });
  auto chosen = support::covering<2>(extents, in_place);
  const auto append = [&](const std::vector<support::point<setting::axes>>& rows) {
    chosen.insert(chosen.end(), rows.begin(), rows.end());
  };
  append(support::covering<2>(extents, allowed, chosen));
  std::erase_if(allowed, [&](const auto& at) { return std::find(chosen.begin(), chosen.end(), at) != chosen.end(); });
  std::reverse(allowed.begin(), allowed.end());
  append(support::covering<2>(extents, allowed));
  chosen.resize(std::min(chosen.size(), most_runs));
  std::vector<setting> settings;
  for (const auto& at : chosen) settings.push_back({at});
  return settings;
}

}  // namespace precision
