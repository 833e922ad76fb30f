// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/index_set.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// The free frames of a tier, handed out lowest first as windows of neighbours.
///
///     frame_pool frames;
///     frames.reset(8);
///     if (const frame_id first = frames.lowest(3); first != frame_pool::none) frames.take(first, 3);
///
/// Lowest first keeps the top of the arena free for leases. Cost: O(1) words for one frame; for a window O(free runs).
class frame_pool {
 public:
  static constexpr frame_id none = frame_id::none;

  /// All of `frames` frames are free.
  void reset(std::uint32_t frames)
  {
    free_.reset(frames);
    for (std::uint32_t frame = 0; frame < frames; ++frame) free_.insert(frame);
    frames_ = frames;
    free_count_ = frames;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return frames_; }
  [[nodiscard]] std::uint32_t free_count() const noexcept { return free_count_; }
  [[nodiscard]] bool is_free(frame_id frame) const noexcept { return free_.contains(index_of(frame)); }

  /// The first frame of the lowest free window of `count` frames, or none. Takes nothing.
  [[nodiscard]] frame_id lowest(std::uint32_t count) const noexcept
  {
    std::uint32_t first = free_.first_from(0);
    if (count == 1 || first == index_set::none) return frame_id{first};
    std::uint32_t length = 1;
    while (length < count) {
      const std::uint32_t next = free_.first_from(first + length);
      if (next == index_set::none) return none;
      if (next == first + length) {
        ++length;
      } else {
        first = next;
        length = 1;
      }
    }
    return frame_id{first};
  }

  /// The same from the other end: the first frame of the highest free window.
  [[nodiscard]] frame_id highest(std::uint32_t count) const noexcept
  {
    std::uint32_t last = free_.last_before(frames_);
    std::uint32_t length = 1;
    while (last != index_set::none && length < count) {
      const std::uint32_t next = free_.last_before(last + 1 - length);
      if (next == index_set::none) return none;
      if (next + length == last) {
        ++length;
      } else {
        last = next;
        length = 1;
      }
    }
    return last == index_set::none ? none : frame_id{last + 1 - length};
  }

  /// The highest free frame below `border`, or none.
  [[nodiscard]] frame_id highest_below(std::uint32_t border) const noexcept
  {
    return frame_id{free_.last_before(border < frames_ ? border : frames_)};
  }

  [[nodiscard]] bool is_free(frame_id first, std::uint32_t count) const noexcept
  {
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame)
      if (frame >= frames_ || !free_.contains(frame)) return false;
    return true;
  }

  /// @pre the window is free
  void take(frame_id first, std::uint32_t count) noexcept
  {
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame) free_.erase(frame);
    free_count_ -= count;
  }

  /// @pre the window is taken
  void give(frame_id first, std::uint32_t count) noexcept
  {
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame) free_.insert(frame);
    free_count_ += count;
  }

  [[nodiscard]] bool operator==(const frame_pool&) const noexcept = default;

 private:
  index_set free_;
  std::uint32_t frames_ = 0;
  std::uint32_t free_count_ = 0;
};

}  // namespace chunkmem::inline v0
