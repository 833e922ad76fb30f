// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// Fills one chunk after the other, in the order of declaration; never looks back.
///
///     manager<backend::host_arena, append_layout> m{memory};
///
/// Neighbours in the model become neighbours in a chunk, and nothing else does. Poor for bytes: up to a third of the
/// chunks stays empty where `size_class_layout` fills them. What does not fit the rest of a chunk opens the next one;
/// what is larger than a frame gets a window of frames for itself. Bytes that are given back are used again only where
/// they are the last ones of the open chunk.
/// Source: PatrickStar's append order (Fang et al. 2021, arXiv 2108.05818). Cost: O(1) for each tensor.
class append_layout {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "append_layout";

  constexpr void reset(bytes frame) { *this = append_layout{frame_size{frame}}; }

  constexpr chunk_place place(bytes size)
  {
    const std::uint64_t padded = frame_size::padded(size);
    return put(padded, padded);
  }

  constexpr bool place_together(std::span<const bytes> sizes, std::span<chunk_place> places)
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
      note(frame_size::holds_from(total.count(), frames));
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

  constexpr void erase(const chunk_place& place, bytes size)
  {
    const std::uint64_t end = place.offset + frame_size::padded(size);
    const bool in_open = open_ && place.chunk == current_;
    expects(place.chunk < next_chunk_ && (!in_open || end <= used_),
            "a place was given back that this layout did not give");
    if (in_open && end == used_) used_ = place.offset;
  }

  [[nodiscard]] constexpr bytes changes_at() const noexcept { return bytes{changes_}; }

  constexpr append_layout() = default;

 private:
  explicit constexpr append_layout(frame_size frame) : frame_{frame} {}

  /// Bytes that lie together, in a chunk that its largest tensor needs.
  constexpr chunk_place put(std::uint64_t total, std::uint64_t largest)
  {
    const std::uint32_t frames = frame_.frames_for(largest);
    note(frame_.fewer_from(largest));
    if (frames > 1) {
      open_ = false;  // what follows is not put back into an older chunk: the order of chunks is the order of use
      return {next_chunk_++, 0, frames};
    }
    if (open_ && frame_.count() - used_ < total) {
      note(frame_size::holds_from(used_ + total, 1));
      open_ = false;
    }
    if (!open_) {
      current_ = next_chunk_++;
      used_ = 0;
      open_ = true;
    }
    used_ += total;
    return {current_, used_ - total, 1};
  }

  constexpr void note(std::uint64_t other_frame) noexcept { changes_ = std::min(changes_, other_frame); }

  frame_size frame_;
  std::uint64_t used_ = 0;
  std::uint64_t changes_ = frame_size::never;
  std::uint32_t current_ = 0;
  std::uint32_t next_chunk_ = 0;
  bool open_ = false;
};

static_assert(reusing_layout<append_layout> && searchable_layout<append_layout>);

}  // namespace chunkmem::inline v0
