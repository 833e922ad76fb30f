// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Knows which frames are taken at which accesses of an iteration that repeats, and finds a window of frames that is
/// free for a while.
///
///     frame_calendar calendar;
///     calendar.reset(100, frames);
///     const frame_id first = calendar.lowest({.begin = 90, .length = 20}, 2, frames);  // around the end
///     if (first != frame_id::none) calendar.take({.begin = 90, .length = 20}, first, 2);
///
/// Each node of a tree over the accesses has two sets of frames: the frames that are taken at all of its accesses, and
/// the frames that are taken at one of its accesses. Cost: O(log accesses * frames / 64) for each call, and
/// `memory_bits` for the sets.
class frame_calendar {
 public:
  /// The accesses from `begin` on, around the end of the iteration.
  struct span_of_time {
    std::uint32_t begin = 0;   ///< below the number of accesses
    std::uint32_t length = 0;  ///< in accesses, 1 to all
  };

  /// The memory that `reset` asks for [bits].
  [[nodiscard]] static std::uint64_t memory_bits(std::uint32_t accesses, std::uint32_t frames) noexcept
  {
    return std::uint64_t{4} * std::bit_ceil(std::max(accesses, 1U)) * ((frames + 63) / 64 * 64);
  }

  /// All frames are free at all accesses.
  void reset(std::uint32_t accesses, std::uint32_t frames)
  {
    accesses_ = accesses;
    leaves_ = std::bit_ceil(std::max(accesses, 1U));
    words_ = (frames + 63) / 64;
    at_all_.assign(2 * leaves_ * words_, 0);
    at_one_.assign(2 * leaves_ * words_, 0);
    taken_.assign(words_, 0);
  }

  /// The first frame of the lowest window of `count` frames that is free all the time, or none.
  /// @param border   the window lies below this frame; at most the number of frames
  [[nodiscard]] frame_id lowest(span_of_time when, std::uint32_t count, std::uint32_t border) noexcept
  {
    collect(when);
    std::uint32_t length = 0;
    for (std::uint32_t frame = 0; frame < border; ++frame) {
      if (frame % 64 == 0 && taken_[frame / 64] == ~std::uint64_t{0}) {
        frame += 63;
        length = 0;
        continue;
      }
      length = is_taken(frame) ? 0 : length + 1;
      if (length == count) return frame_id{frame + 1 - count};
    }
    return frame_id::none;
  }

  /// The window is free all the time.
  [[nodiscard]] bool is_free(span_of_time when, frame_id first, std::uint32_t count) noexcept
  {
    collect(when);
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame)
      if (is_taken(frame)) return false;
    return true;
  }

  void take(span_of_time when, frame_id first, std::uint32_t count) noexcept
  {
    for_parts(when, [&](std::size_t begin, std::size_t end) {
      for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame)
        mark(begin, end, frame / 64, std::uint64_t{1} << (frame % 64));
    });
  }

 private:
  [[nodiscard]] bool is_taken(std::uint32_t frame) const noexcept
  {
    return (taken_[frame / 64] >> (frame % 64) & 1) != 0;
  }

  /// Calls `visit(begin, end)` for the leaves of the one or two parts that do not go around the end.
  template <class Visit>
  void for_parts(span_of_time when, Visit visit) const
  {
    const std::uint32_t here = std::min(when.length, accesses_ - when.begin);
    visit(leaves_ + when.begin, leaves_ + when.begin + here);
    if (when.length > here) visit(leaves_, leaves_ + (when.length - here));
  }

  void mark(std::size_t begin, std::size_t end, std::size_t word, std::uint64_t bit) noexcept
  {
    const auto note = [&](std::size_t node) {
      at_all_[node * words_ + word] |= bit;
      for (; node > 0; node /= 2) at_one_[node * words_ + word] |= bit;
    };
    for (; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 != 0) note(begin++);
      if (end % 2 != 0) note(--end);
    }
  }

  /// Finds the frames that are taken at one of the accesses.
  void collect(span_of_time when) noexcept
  {
    std::fill(taken_.begin(), taken_.end(), 0);
    const auto add = [&](const sequence<std::uint64_t>& sets, std::size_t node) {
      for (std::size_t word = 0; word < words_; ++word) taken_[word] |= sets[node * words_ + word];
    };
    for_parts(when, [&](std::size_t begin, std::size_t end) {
      // What is taken at all accesses of a node above is taken at the first or at the last access.
      for (std::size_t node = begin; node > 0; node /= 2) add(at_all_, node);
      for (std::size_t node = end - 1; node > 0; node /= 2) add(at_all_, node);
      for (; begin < end; begin /= 2, end /= 2) {
        if (begin % 2 != 0) add(at_one_, begin++);
        if (end % 2 != 0) add(at_one_, --end);
      }
    });
  }

  std::uint32_t accesses_ = 0;
  std::size_t leaves_ = 1;
  std::size_t words_ = 0;           // of a set
  sequence<std::uint64_t> at_all_;  // by node: frames taken at all of its accesses
  sequence<std::uint64_t> at_one_;  // by node: at one of them, as far as the nodes below and itself know
  sequence<std::uint64_t> taken_;   // of the last question
};

}  // namespace chunkmem::inline v0
