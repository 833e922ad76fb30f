// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// Evicts the chunk whose last pin ended longest ago.
///
///     manager<backend::host_arena, eviction::lru> m{memory};
///
/// Good when nothing is known of the future; poor for a trainer that walks its layers in a cycle, where the chunk used
/// longest ago is the next one needed. Cost: a linked list in an array, 16 bytes for each chunk and O(1) for each call;
/// a chunk that comes back after others were let go of takes a step for each of them.
class lru {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "lru";

  void reset(std::uint32_t chunks)
  {
    links_.assign(std::size_t{chunks} + 1, link{});
    end_ = chunks;
    links_[end_] = {end_, end_, 0};
  }
  void on_profile(const access_record&) {}

  void enter(const candidate& item) noexcept
  {
    std::uint32_t before = links_[end_].before;
    if (before != end_ && item.released < links_[before].released) before = place_for(item.released);
    const std::uint32_t after = links_[before].after;
    const std::uint32_t id = index_of(item.chunk);
    links_[id] = {before, after, item.released};
    links_[before].after = id;
    links_[after].before = id;
  }

  void leave(const candidate& item) noexcept
  {
    const link at = links_[index_of(item.chunk)];
    links_[at.before].after = at.after;
    links_[at.after].before = at.before;
  }

  [[nodiscard]] chunk_id victim(access_index) const noexcept
  {
    const std::uint32_t oldest = links_[end_].after;
    return oldest == end_ ? chunk_id::none : chunk_id{oldest};
  }

 private:
  struct link {
    std::uint32_t before = 0;
    std::uint32_t after = 0;
    std::uint64_t released = 0;
  };

  /// Behind whom a chunk belongs that was released earlier than the last one. O(1) at the front, which is where the
  /// victims of a window come back to; else O(chunks released later).
  [[nodiscard]] std::uint32_t place_for(std::uint64_t released) const noexcept
  {
    if (released <= links_[links_[end_].after].released) return end_;
    std::uint32_t before = links_[end_].before;
    while (released < links_[before].released) before = links_[before].before;
    return before;
  }

  sequence<link> links_;  // one for each chunk, and the list's end
  std::uint32_t end_ = 0;
};

static_assert(eviction_policy<lru>);

}  // namespace eviction

}  // namespace chunkmem::inline v0
