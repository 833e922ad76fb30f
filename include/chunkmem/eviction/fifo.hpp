// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// Evicts the chunk that came to the device longest ago: first in, first out.
///
///     manager<backend::host_arena, eviction::fifo> m{memory};
///
/// A chunk keeps its place in the queue while it is pinned; only leaving the device and coming back puts it at the end.
/// Good as a yardstick; poor wherever a chunk is used again and again. What came at the same time goes by the lower id.
/// Cost: a heap in an array, 20 bytes for each chunk and O(log candidates) for each call but `victim`.
class fifo {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "fifo";

  void reset(std::uint32_t chunks)
  {
    heap_.assign(chunks, entry{});
    place_.assign(chunks, 0);
    size_ = 0;
  }
  void on_profile(const access_record&) {}

  void enter(const candidate& item) noexcept
  {
    const std::uint32_t hole = size_++;
    rise(hole, {item.arrived, item.chunk});
  }

  void leave(const candidate& item) noexcept
  {
    const std::uint32_t hole = place_[index_of(item.chunk)];
    const entry last = heap_[--size_];
    if (hole == size_) return;
    if (hole > 0 && last < heap_[(hole - 1) / 2])
      rise(hole, last);
    else
      sink(hole, last);
  }

  [[nodiscard]] chunk_id victim(access_index) const noexcept { return size_ == 0 ? chunk_id::none : heap_[0].chunk; }

 private:
  struct entry {
    std::uint64_t arrived = 0;
    chunk_id chunk{0};
    [[nodiscard]] bool operator<(const entry& other) const noexcept
    {
      return arrived != other.arrived ? arrived < other.arrived : chunk < other.chunk;
    }
  };

  void put(std::uint32_t index, const entry& it) noexcept
  {
    heap_[index] = it;
    place_[index_of(it.chunk)] = index;
  }

  void rise(std::uint32_t hole, const entry& it) noexcept
  {
    for (; hole > 0 && it < heap_[(hole - 1) / 2]; hole = (hole - 1) / 2) put(hole, heap_[(hole - 1) / 2]);
    put(hole, it);
  }

  void sink(std::uint32_t hole, const entry& it) noexcept
  {
    for (std::uint32_t child = 2 * hole + 1; child < size_; child = 2 * hole + 1) {
      if (child + 1 < size_ && heap_[child + 1] < heap_[child]) ++child;
      if (it < heap_[child]) break;
      put(hole, heap_[child]);
      hole = child;
    }
    put(hole, it);
  }

  sequence<entry> heap_;           // the oldest first; the first size_
  sequence<std::uint32_t> place_;  // by chunk: where it is in the heap
  std::uint32_t size_ = 0;
};

static_assert(eviction_policy<fifo>);

}  // namespace eviction

}  // namespace chunkmem::inline v0
