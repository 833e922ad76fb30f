// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstddef>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// A rule of a few lines: candidates are compared by a key and the smallest goes.
template <class Rule>
concept scanned_rule = requires(const candidate& item) {
  {
    Rule::name
  } -> std::convertible_to<std::string_view>;
  {
    Rule::key(item) < Rule::key(item)
  } -> std::convertible_to<bool>;
};

/// Turns a rule into an eviction policy by looking at every candidate.
///
/// Good for trying an idea and for small models; poor with many chunks, since each decision is O(candidates). Equal
/// keys go by the lower chunk id. `Rule::key` must not throw.
///
/// @tparam Rule   `name` and `static key(const candidate&)`; see scanned_rule
template <scanned_rule Rule>
class scanning {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = Rule::name;

  void reset(std::uint32_t chunks) { items_.assign(chunks, candidate{}); }
  void on_profile(const access_record&) {}
  void enter(const candidate& item) noexcept { items_[index_of(item.chunk)] = item; }
  void leave(const candidate& item) noexcept { items_[index_of(item.chunk)] = candidate{}; }

  [[nodiscard]] chunk_id victim(access_index) const noexcept
  {
    const candidate* best = nullptr;
    for (const candidate& item : items_)
      if (item.chunk != chunk_id::none && (best == nullptr || Rule::key(item) < Rule::key(*best))) best = &item;
    return best == nullptr ? chunk_id::none : best->chunk;
  }

 private:
  sequence<candidate> items_;  // by chunk id; an id of none is no candidate
};

}  // namespace eviction

}  // namespace chunkmem::inline v0
