// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/frame_pool.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// The free frames of a tier in the order in which they became free.
///
///     free_frame_order order;
///     order.reset(pool);
///     pool.give(frame, 1);
///     order.freed(frame, false);
///     const frame_id first = order.for_load(pool, border);
///
/// - A load can start when its frame is free, so a load takes the frame that is free the longest.
/// - A chunk without bytes takes the frame that became free last: older frames stay for loads. A frame whose bytes are
///   written back is free later than it seems, so such a chunk takes it only where there is no other frame.
/// - Of frames that were free from the beginning, the highest is the first.
///
/// Buys: without this order `activation.planned_step_over_plan` is above 1.4, and its bound is 1.10.
/// Cost: O(1). Of each kind at most 64 frames above the border are passed over; then a younger frame below it is taken,
/// or the highest.
class free_frame_order {
 public:
  /// All free frames were free from the beginning. O(frames)
  void reset(const frame_pool& pool)
  {
    frames_ = pool.size();
    links_.assign(std::size_t{frames_} + ring_count, {});
    for (std::uint32_t end = frames_; end < links_.size(); ++end) links_[end] = {end, end, 0};
    count_ = 0;
    for (std::uint32_t frame = frames_; frame-- > 0;)
      if (pool.is_free(frame_id{frame})) append(frame, from_beginning);
  }
  /// @param is_written_back   the bytes of the frame are written back before it is free
  void freed(frame_id frame, bool is_written_back) noexcept
  {
    unlink(index_of(frame));
    append(index_of(frame), is_written_back ? after_write_back : at_once);
  }

  /// A free frame below `border` for a chunk that is loaded. None where there is none.
  [[nodiscard]] frame_id for_load(const frame_pool& pool, std::uint32_t border) noexcept
  {
    const std::uint32_t first = find(pool, border, from_beginning, &link::after);
    if (first != none) return frame_id{first};
    const std::uint32_t left = find(pool, border, at_once, &link::after);
    const std::uint32_t right = find(pool, border, after_write_back, &link::after);
    if (left == none || right == none) return either(left, right, pool, border);
    return frame_id{links_[left].number < links_[right].number ? left : right};
  }
  /// A free frame below `border` for a chunk without bytes. None where there is none.
  [[nodiscard]] frame_id for_claim(const frame_pool& pool, std::uint32_t border) noexcept
  {
    const std::uint32_t last = find(pool, border, at_once, &link::before);
    if (last != none) return frame_id{last};
    return either(find(pool, border, from_beginning, &link::after), find(pool, border, after_write_back, &link::after),
                  pool, border);
  }

 private:
  enum ring : std::uint32_t { from_beginning, at_once, after_write_back, ring_count };
  static constexpr std::uint32_t none = UINT32_MAX;
  static constexpr int most_passed = 64;

  /// Neighbours in a ring. Each ring has one end, which is no frame.
  struct link {
    std::uint32_t before = 0;
    std::uint32_t after = 0;
    std::uint32_t number = 0;  ///< counted up as frames become free; 0: in no ring
  };

  [[nodiscard]] static frame_id either(std::uint32_t one, std::uint32_t other, const frame_pool& pool,
                                       std::uint32_t border) noexcept
  {
    if (one != none) return frame_id{one};
    return other != none ? frame_id{other} : pool.highest_below(border);
  }
  void append(std::uint32_t frame, ring which) noexcept
  {
    const std::uint32_t end = frames_ + which;
    links_[frame] = {links_[end].before, end, ++count_};
    links_[links_[end].before].after = frame;
    links_[end].before = frame;
  }
  void unlink(std::uint32_t frame) noexcept
  {
    link& it = links_[frame];
    if (it.number == 0) return;
    links_[it.before].after = it.after;
    links_[it.after].before = it.before;
    it = {};
  }
  /// The first free frame of a ring below `border` in this direction. Frames that were taken since are unlinked.
  [[nodiscard]] std::uint32_t find(const frame_pool& pool, std::uint32_t border, ring which,
                                   std::uint32_t link::*direction) noexcept
  {
    const std::uint32_t end = frames_ + which;
    int passed = 0;
    for (std::uint32_t frame = links_[end].*direction; frame != end && passed < most_passed;) {
      const std::uint32_t next = links_[frame].*direction;
      if (!pool.is_free(frame_id{frame}))
        unlink(frame);
      else if (frame < border)
        return frame;
      else
        ++passed;
      frame = next;
    }
    return none;
  }

  sequence<link> links_;  // by frame; then the ends of the rings
  std::uint32_t frames_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace chunkmem::inline v0
