// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/frame_size.hpp>
#include <chunkmem/chunk/max_tree.hpp>
#include <chunkmem/core/sequence.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Chunks that are filled from their beginning: finds the first one with room, from any chunk on.
///
///     first_fit_chunks chunks;
///     chunks.reset(frame_size{1_MiB});
///     const chunk_place first = chunks.place(512);
///     const chunk_place next = chunks.place(512, first.chunk);  // in the same chunk, if it has room
///
/// Chunks of one length are a kind of their own, since only among them a larger frame never changes who has more room.
/// Cost: O(log chunks) for each call, times the number of different lengths.
class first_fit_chunks {
 public:
  void reset(frame_size frame)
  {
    frame_ = frame;
    for (kind& each : kinds_) {
      each.chunks.clear();
      each.room.clear();
      each.frames = 0;
    }
    used_kinds_ = 0;
    chunks_.clear();
    frames_ = 0;
    changes_ = frame_size::never;
  }

  /// The first chunk from `near` on, and after the last one from the beginning, that has room; else a new one.
  chunk_place place(std::uint64_t padded, std::uint32_t near = 0)
  {
    const auto end = static_cast<std::uint32_t>(chunks_.size());
    if (near < end && room_of(near) >= padded) return take(near, padded);  // nobody is passed over
    const std::uint32_t after = find(padded, near, end);
    if (after != end) return take(after, padded);
    const std::uint32_t before = find(padded, 0, near);
    return before != near ? take(before, padded) : open(padded);
  }

  /// The chunk `near`, if it has room; else the first chunk of one frame that has, counted as above; else a new one.
  chunk_place place_apart_from_windows(std::uint64_t padded, std::uint32_t near)
  {
    if (near < chunks_.size()) {
      if (room_of(near) >= padded) return take(near, padded);
      note(padded - room_of(near), kinds_[chunks_[near].kind].frames);
    }
    for (std::size_t which = 0; which < used_kinds_; ++which) {
      if (kinds_[which].frames != 1) continue;
      const kind& each = kinds_[which];
      const std::size_t begin = index_of(each, near);
      for (const std::size_t from : {begin, std::size_t{0}}) {
        const std::size_t found = each.room.first(from, padded);
        const std::size_t end = found != max_tree::none ? found : each.chunks.size();
        if (from < end) note(padded - each.room.largest(from, end), 1);
        if (found != max_tree::none) return take(each.chunks[found], padded);
      }
    }
    return open(padded);
  }

  /// In a new chunk.
  chunk_place open(std::uint64_t padded)
  {
    const std::uint32_t frames = frame_.frames_for(padded);
    changes_ = std::min(changes_, frame_.fewer_from(padded));
    const std::size_t which = kind_of(frames);
    chunks_.push_back({static_cast<std::uint32_t>(which), static_cast<std::uint32_t>(kinds_[which].chunks.size())});
    kinds_[which].chunks.push_back(static_cast<std::uint32_t>(chunks_.size() - 1));
    kinds_[which].room.push_back(frame_.count() * frames);
    frames_ += frames;
    return take(static_cast<std::uint32_t>(chunks_.size() - 1), padded);
  }

  [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  /// With frames below it every call since the reset does the same.
  [[nodiscard]] std::uint64_t changes_at() const noexcept { return changes_; }

 private:
  struct kind {
    std::uint32_t frames = 0;
    sequence<std::uint32_t> chunks;  // ascending
    max_tree room;
  };
  struct position {
    std::uint32_t kind;
    std::uint32_t index;
  };

  [[nodiscard]] std::uint64_t room_of(std::uint32_t chunk) const noexcept
  {
    return kinds_[chunks_[chunk].kind].room.at(chunks_[chunk].index);
  }

  /// In [begin, end); `end` where there is none.
  std::uint32_t find(std::uint64_t padded, std::uint32_t begin, std::uint32_t end)
  {
    std::uint32_t found = end;
    for (std::size_t which = 0; which < used_kinds_; ++which) {
      const kind& each = kinds_[which];
      const std::size_t index = each.room.first(index_of(each, begin), padded);
      if (index != max_tree::none) found = std::min(found, each.chunks[index]);
    }
    for (std::size_t which = 0; which < used_kinds_; ++which) {  // who was passed over gets room in a larger frame
      const kind& each = kinds_[which];
      const std::size_t first = index_of(each, begin);
      const std::size_t last = index_of(each, found);
      if (first < last) note(padded - each.room.largest(first, last), each.frames);
    }
    return found;
  }
  [[nodiscard]] static std::size_t index_of(const kind& in, std::uint32_t chunk) noexcept
  {
    return static_cast<std::size_t>(std::lower_bound(in.chunks.begin(), in.chunks.end(), chunk) - in.chunks.begin());
  }

  chunk_place take(std::uint32_t chunk, std::uint64_t padded)
  {
    const position where = chunks_[chunk];
    kind& of = kinds_[where.kind];
    const std::uint64_t room = of.room.at(where.index);
    of.room.set(where.index, room - padded);
    return {chunk, frame_.count() * of.frames - room, of.frames};
  }

  std::size_t kind_of(std::uint32_t frames)
  {
    for (std::size_t which = 0; which < used_kinds_; ++which)
      if (kinds_[which].frames == frames) return which;
    if (used_kinds_ == kinds_.size()) kinds_.emplace_back();
    kinds_[used_kinds_].frames = frames;
    return used_kinds_++;
  }

  void note(std::uint64_t missing, std::uint32_t frames) noexcept
  {
    changes_ = std::min(changes_, frame_.count() + frame_size::holds_from(missing, frames));
  }

  frame_size frame_;
  std::vector<kind> kinds_;  // the first used_kinds_; the others keep their memory
  std::size_t used_kinds_ = 0;
  sequence<position> chunks_;
  std::uint64_t frames_ = 0;
  std::uint64_t changes_ = frame_size::never;
};

}  // namespace chunkmem::inline v0
