// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/index_set.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// Evicts the chunk with the lowest id: the first in the order of declaration.
///
///     manager<backend::host_arena, eviction::list_order> m{memory};
///
/// What PatrickStar does while it records, and where its next uses tie. Good as a yardstick and where a trainer walks
/// its tensors once in their order; poor when the first ones are wanted again soonest. Source: Fang et al. 2021, arXiv
/// 2108.05818. Cost: O(1) words for each call, 1.02 bits for each chunk.
class list_order {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "list_order";

  void reset(std::uint32_t chunks) { candidates_.reset(chunks); }
  void on_profile(const access_record&) {}
  void enter(const candidate& item) noexcept { candidates_.insert(index_of(item.chunk)); }
  void leave(const candidate& item) noexcept { candidates_.erase(index_of(item.chunk)); }

  [[nodiscard]] chunk_id victim(access_index) const noexcept
  {
    const std::uint32_t lowest = candidates_.first_from(0);
    return lowest == index_set::none ? chunk_id::none : chunk_id{lowest};
  }

 private:
  index_set candidates_;
};

static_assert(eviction_policy<list_order>);

}  // namespace eviction

}  // namespace chunkmem::inline v0
