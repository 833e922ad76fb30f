// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_gaps.hpp>
#include <chunkmem/chunk/frame_size.hpp>
#include <chunkmem/chunk/reusing_layout.hpp>
#include <chunkmem/chunk/searchable_layout.hpp>
#include <chunkmem/core/expects.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

/// Puts each tensor where the least room is left over, in the order of declaration; a new chunk is the last resort.
///
///     manager<backend::host_arena, best_fit_layout> m{memory};
///
/// Good where sizes vary, and where tensors come and go: what is given back is used again. The rest of a window of
/// several frames is filled too. Poor for neighbours: a small tensor may land in a chunk that is used at quite another
/// time.
/// Source: best fit (Johnson 1973). Cost: O(log chunks) for each tensor.
class best_fit_layout {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "best_fit_layout";

  void reset(bytes frame)
  {
    frame_ = frame_size{frame};
    gaps_.reset(frame_);
    changes_ = frame_size::never;
  }

  chunk_place place(bytes size)
  {
    const std::uint64_t padded = frame_size::padded(size);
    return put(padded, padded);
  }

  bool place_together(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    expects(sizes.size() == places.size(), "a layout needs one place for each size");
    bytes total;
    std::uint64_t largest = 0;
    for (const bytes size : sizes) {
      total += bytes{frame_size::padded(size)};
      largest = std::max(largest, frame_size::padded(size));
    }
    const std::uint32_t frames = frame_.frames_for(largest);
    if (total > bytes{frame_.count()} * frames) {
      changes_ = std::min(changes_, frame_size::holds_from(total.count(), frames));
      return false;
    }
    if (sizes.empty()) return true;
    chunk_place next = put(total.count(), largest);
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      places[index] = next;
      next.offset += frame_size::padded(sizes[index]);
    }
    return true;
  }

  void erase(const chunk_place& place, bytes size) { gaps_.give(place.chunk, place.offset, frame_size::padded(size)); }

  [[nodiscard]] bytes changes_at() const noexcept { return bytes{std::min(changes_, gaps_.changes_at())}; }

 private:
  /// Bytes that lie together, in a chunk that its largest tensor needs.
  chunk_place put(std::uint64_t total, std::uint64_t largest)
  {
    const std::uint32_t frames = frame_.frames_for(largest);
    changes_ = std::min(changes_, frame_.fewer_from(largest));
    const auto found = gaps_.tightest(total);
    const chunk_gaps::gap target = found ? *found : gaps_.open(frames);
    gaps_.take(target, total);
    return {target.chunk, target.begin, gaps_.frames_of(target.chunk)};
  }

  frame_size frame_;
  chunk_gaps gaps_;
  std::uint64_t changes_ = frame_size::never;
};

static_assert(reusing_layout<best_fit_layout> && searchable_layout<best_fit_layout>);

}  // namespace chunkmem::inline v0
