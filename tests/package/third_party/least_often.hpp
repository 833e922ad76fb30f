// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

/// Evicts a chunk that was used least often, counted up to eight; the first in the order of declaration among equals.
///
/// Good where a few tensors are used all the time, such as a tied table, and nothing is known of the future; poor where
/// what was used often is over. Source: not frequently used, of the textbooks. Cost: O(1) words for each call, 8 bits
/// and 16 bytes for each chunk.
class least_often {
 public:
  using policy_kind = chunkmem::eviction_kind;
  static constexpr std::string_view name = "least_often";

  void reset(std::uint32_t chunks)
  {
    for (chunkmem::index_set& each : used_times_) each.reset(chunks);
    uses_.assign(chunks, uses{});
  }
  void on_profile(const chunkmem::access_record&) {}

  void enter(const chunkmem::eviction::candidate& item) noexcept
  {
    uses& known = uses_[index_of(item.chunk)];
    if (known.last != item.released) {  // else it was only asked about, and comes back as it was
      known.last = item.released;
      known.count = std::min(known.count + 1, most);
    }
    used_times_[known.count].insert(index_of(item.chunk));
  }
  void leave(const chunkmem::eviction::candidate& item) noexcept
  {
    used_times_[uses_[index_of(item.chunk)].count].erase(index_of(item.chunk));
  }
  [[nodiscard]] chunkmem::chunk_id victim(chunkmem::access_index) const noexcept
  {
    for (const chunkmem::index_set& each : used_times_)
      if (!each.empty()) return chunkmem::chunk_id{each.first_from(0)};
    return chunkmem::chunk_id::none;
  }

 private:
  static constexpr std::uint32_t most = 8;
  struct uses {
    std::uint64_t last = UINT64_MAX;
    std::uint32_t count = 0;
  };
  std::array<chunkmem::index_set, most + 1> used_times_;
  std::vector<uses> uses_;
};

static_assert(chunkmem::eviction_policy<least_often>);
