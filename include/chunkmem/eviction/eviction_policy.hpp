// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// A chunk that may leave the device now: resident and unpinned. Numbers only, never bytes.
///
///     struct clean_first {  // a rule for scanning
///       static constexpr std::string_view name = "clean_first";
///       static bool key(const candidate& item) noexcept { return item.dirty; }
///     };
struct candidate {
  chunk_id chunk = chunk_id::none;
  access_index next_use =
      access_index::none;  ///< the next use with a load, in the followed record; none: no such use, or no record
  std::uint32_t frames = 1;
  bool dirty = false;          ///< leaving costs a write-back
  std::uint64_t arrived = 0;   ///< stamp of its arrival on the device, growing with each arrival
  std::uint64_t released = 0;  ///< stamp of the end of its last pin, growing likewise
};

}  // namespace eviction

/// Keeps its own set of candidates.
template <class Policy>
concept keeps_candidates = requires(Policy policy, const eviction::candidate& item, std::uint32_t chunks) {
  policy.reset(chunks);
  {
    policy.enter(item)
  } noexcept;
  {
    policy.leave(item)
  } noexcept;
};

/// Names the candidate to evict.
template <class Policy>
concept chooses_victim = requires(Policy policy, access_index now) {
  {
    policy.victim(now)
  } noexcept -> std::same_as<chunk_id>;
};

/// Is told of a finished record.
template <class Policy>
concept hears_profile = requires(Policy policy, const access_record& record) { policy.on_profile(record); };

/// Decides which chunk gives up its frames.
///
/// Laws: `reset(chunks)` forgets all candidates and the profile, and knows the ids 0 to chunks - 1; `enter` adds a
/// candidate that is not in the set, `leave` removes one with the `next_use` it entered with; `victim(now)` is one of
/// the candidates, or none if there are none, and does not remove it (candidates that leave and enter again unchanged,
/// the last that left first, are in the set as before); `on_profile` may allocate, comes when the set is
/// empty, and an empty record means that next uses are unknown; no other call allocates or throws; the same calls give
/// the same victims.
template <class Policy>
concept eviction_policy =
    names_itself<Policy> && std::same_as<typename Policy::policy_kind, eviction_kind> && std::semiregular<Policy> &&
    keeps_candidates<Policy> && chooses_victim<Policy> && hears_profile<Policy>;

/// A policy with settings that a simulation can choose, once for each record: `choose(variant)` takes one of them,
/// numbered from 0, which is the setting where nothing was simulated.
///
/// Laws: those of eviction_policy for each variant; `choose` comes when the set is empty and lasts over `reset`.
template <class Policy>
concept tuned_eviction =
    eviction_policy<Policy> && requires(Policy policy, const Policy& known, std::uint32_t variant) {
      {
        known.variants()
      } noexcept -> std::same_as<std::uint32_t>;
      {
        policy.choose(variant)
      } noexcept;
    };

/// An eviction policy that knows the frames that leases will reach: a chunk is placed below its lease limit if
/// possible.
template <class Policy>
concept bounded_eviction =
    eviction_policy<Policy> && requires(const Policy& policy, const eviction::candidate& item, access_index now) {
      {
        policy.gives_up(item)
      } noexcept -> std::same_as<bool>;
      {
        policy.lease_limit(now)
      } noexcept -> std::same_as<std::uint32_t>;
    };

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
