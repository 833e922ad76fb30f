// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/mixed_reference.hpp>

#include <algorithm>
#include <array>
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
  std::array<std::uint8_t, axes> at{};

  [[nodiscard]] bool operator==(const setting&) const noexcept = default;

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
        {"host_first", "device_margin", "fixed_split"},
        {"updates at once", "late updates", "early updates"}};
    std::string all;
    for (std::size_t it = 0; it < axes; ++it) all += (it == 0 ? "" : ", ") + std::string{names[it][at[it]]};
    return all;
  }
};

inline constexpr std::array<std::uint8_t, setting::axes> extents{5, 4, 3, 2, 2, 3, 2, 4, 3, 3, 3};

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
  std::vector<setting> all;
  setting it;
  for (;;) {
    all.push_back(it);
    std::size_t axis = 0;
    while (axis < setting::layout && ++it.at[axis] == extents[axis]) it.at[axis++] = 0;
    if (axis == setting::layout) return all;
  }
}

/// Which pairs of values of two axes were seen.
class pairs {
 public:
  /// @return   how many pairs of this one were not seen before
  [[nodiscard]] std::size_t fresh(const setting& it) const
  {
    std::size_t count = 0;
    visit(it, [&](std::size_t pair) { count += seen_[pair] ? 0 : 1; });
    return count;
  }
  void add(const setting& it)
  {
    visit(it, [&](std::size_t pair) {
      total_ += seen_[pair] ? 0 : 1;
      seen_[pair] = true;
    });
  }
  [[nodiscard]] std::size_t total() const noexcept { return total_; }

 private:
  template <class See>
  static void visit(const setting& it, See see)
  {
    for (std::size_t left = 0; left < setting::axes; ++left)
      for (std::size_t right = left + 1; right < setting::axes; ++right)
        see(((left * setting::axes + right) * 5 + it.at[left]) * 5 + it.at[right]);
  }

  std::vector<bool> seen_ = std::vector<bool>(setting::axes * setting::axes * 25);
  std::size_t total_ = 0;
};

/// Adds settings until those chosen have every pair of values that any allowed one has: always the one that adds most.
/// @return   how many were added
inline std::size_t cover_pairs(const std::vector<setting>& allowed, pairs seen, std::vector<setting>& chosen)
{
  for (std::size_t added = 0;; ++added) {
    const setting* best = nullptr;
    std::size_t most = 0;
    for (const setting& it : allowed)
      if (const std::size_t count = seen.fresh(it); count > most) {
        best = &it;
        most = count;
      }
    if (best == nullptr) return added;
    seen.add(*best);
    chosen.push_back(*best);
  }
}

/// Gives each setting the layout, placement and way to update that add most pairs.
inline void arrange(std::vector<setting>& chosen)
{
  pairs seen;
  for (setting& it : chosen) {
    setting best = it;
    for (std::size_t which = 0; which < arrangements; ++which)
      if (const setting other = arranged(it, which); seen.fresh(other) > seen.fresh(best)) best = other;
    it = best;
    seen.add(it);
  }
}

/// Every pair that is not refused, and among gradients in place every pair of the other axes; then a second cover out
/// of the rest, as far as there is room for it.
[[nodiscard]] inline std::vector<setting> pairwise_cover()
{
  std::vector<setting> in_place;
  std::vector<setting> allowed;
  for (const setting& it : all_settings()) {
    if (it.is_refused()) continue;
    allowed.push_back(it);
    if (it.in_place()) in_place.push_back(it);
  }
  std::vector<setting> chosen;
  cover_pairs(in_place, {}, chosen);
  pairs seen;
  for (const setting& it : chosen) seen.add(it);
  cover_pairs(allowed, seen, chosen);
  std::erase_if(allowed,
                [&](const setting& it) { return std::find(chosen.begin(), chosen.end(), it) != chosen.end(); });
  std::reverse(allowed.begin(), allowed.end());  // from the other end, where all choices are others
  cover_pairs(allowed, {}, chosen);
  chosen.resize(std::min(chosen.size(), most_runs));
  arrange(chosen);
  return chosen;
}

}  // namespace precision
