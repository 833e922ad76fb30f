// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_input.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// An iteration in which some chunks live on the device alone: each of their uses lasts until the next one begins, so
/// that nothing is left to choose for them. All others are as they were.
///
/// Cost: O(uses + chunks). @pre the iteration repeats, and the host uses none of these chunks
class device_only_input {
 public:
  /// @param device_only   by chunk: it lives on the device alone
  device_only_input(const retention_input& what, std::span<const std::uint8_t> device_only) : what_{what}
  {
    const auto moments = static_cast<std::uint32_t>(what.device_bytes.size());
    constexpr std::uint32_t none = UINT32_MAX;
    std::vector<std::uint32_t> next(what.chunk_bytes.size(), none);  // where the chunk's next use begins
    uses_.assign(what.uses.begin(), what.uses.end());
    std::vector<retention_use> around;  // what the end of an iteration holds is there when the next one begins
    for (std::size_t at = uses_.size(); at-- > 0;) {
      retention_use& it = uses_[at];
      if (device_only[it.chunk] == 0) continue;
      const bool is_last = next[it.chunk] == none;
      if (it.kind != use_kind::drop) {
        it.end = std::max(it.end, is_last ? moments : next[it.chunk]);
        if (is_last) around.push_back({it.chunk, 0, 0, use_kind::update});
      }
      next[it.chunk] = it.begin;
    }
    for (retention_use& it : around) it.end = next[it.chunk];
    std::erase_if(around, [](const retention_use& it) { return it.end == 0; });
    added_ = around.size();
    uses_.insert(uses_.begin(), around.begin(), around.end());
  }

  [[nodiscard]] retention_input input() const noexcept
  {
    return {what_.chunk_bytes, uses_, what_.device_bytes, {}, what_.repeats};
  }

  /// For each use of the iteration as it was: its chunk stays. @param stays   by use of `input()`
  [[nodiscard]] std::vector<std::uint8_t> stays(std::span<const std::uint8_t> stays,
                                                std::span<const std::uint8_t> device_only) const
  {
    const auto mine = stays.subspan(added_);
    std::vector<std::uint8_t> all(mine.begin(), mine.end());
    for (std::size_t at = 0; at < all.size(); ++at)
      if (device_only[what_.uses[at].chunk] != 0) all[at] = 1;
    return all;
  }

 private:
  const retention_input& what_;
  std::vector<retention_use> uses_;
  std::size_t added_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
