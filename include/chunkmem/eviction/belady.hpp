// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/index_set.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/eviction/lru.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// Evicts the chunk whose next use is farthest away, by the recorded iteration; the default.
///
///     manager<backend::host_arena, eviction::belady> m{memory};
///
/// The fewest loads that any policy can reach with frames of one size. Without a record it is `lru`. An access belongs
/// to one chunk, so next uses are unique keys: a bit for each access replaces a heap. Chunks that the record never
/// touches go first, lowest id first. Source: Belady 1966 (IBM Systems Journal 5.2). Cost: O(1) words for each call,
/// 1.02 bits for each access and chunk, 4 bytes for each access, and the 16 for each chunk of lru.
class belady {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "belady";

  void reset(std::uint32_t chunks)
  {
    recent_.reset(chunks);
    idle_.reset(chunks);
    next_uses_.reset(0);
    owner_.clear();
    profiled_ = false;
    chunks_ = chunks;
  }

  void on_profile(const access_record& record)
  {
    recent_.reset(chunks_);
    idle_.reset(chunks_);
    next_uses_.reset(record.size());
    owner_.resize(record.size());
    profiled_ = !record.empty();
  }

  void enter(const candidate& item) noexcept
  {
    if (!profiled_) return recent_.enter(item);
    if (item.next_use == access_index::none) return idle_.insert(index_of(item.chunk));
    owner_[index_of(item.next_use)] = item.chunk;
    next_uses_.insert(index_of(item.next_use));
  }

  void leave(const candidate& item) noexcept
  {
    if (!profiled_) return recent_.leave(item);
    if (item.next_use == access_index::none) return idle_.erase(index_of(item.chunk));
    next_uses_.erase(index_of(item.next_use));
  }

  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    if (!profiled_) return recent_.victim(now);
    if (const std::uint32_t unused = idle_.first_from(0); unused != index_set::none) return chunk_id{unused};
    std::uint32_t farthest = next_uses_.last_before(index_of(now));  // already past: needed in the next iteration
    if (farthest == index_set::none) farthest = next_uses_.last_before(index_set::none);
    return farthest == index_set::none ? chunk_id::none : owner_[farthest];
  }

 private:
  lru recent_;
  index_set idle_;
  index_set next_uses_;
  sequence<chunk_id> owner_;  // of each access in next_uses_
  std::uint32_t chunks_ = 0;
  bool profiled_ = false;
};

static_assert(eviction_policy<belady>);

}  // namespace eviction

}  // namespace chunkmem::inline v0
