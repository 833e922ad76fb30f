// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/max_tree.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

/// Chunks that are filled from their beginning: finds the first chunk with room, from any chunk on.
///
///     first_fit_chunks chunks;
///     chunks.reset(frame_size{1_MiB});
///     const chunk_place first = chunks.place(512);
///     const chunk_place next = chunks.place(512, first.chunk);  // in the same chunk, if it has room
///
/// Chunks of one length are a kind, since only among these a larger frame never changes which one has more room.
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
    if (near < end && room_of(near) >= padded) return take(near, padded);  // no chunk is skipped
    const std::uint32_t after = find(padded, near, end);
    if (after != end) return take(after, padded);
    const std::uint32_t before = find(padded, 0, near);
    return before != near ? take(before, padded) : open(padded);
  }

  /// The chunk `near`, if it has room; else the first chunk of one frame that has, counted as above; else a new one.
  chunk_place place_apart_from_frame_runs(std::uint64_t padded, std::uint32_t near)
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

  /// Places in a new chunk.
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
  /// The frame size below which every call since the reset gives the same result.
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

  /// The first chunk with room in [begin, end); `end` where there is none.
  std::uint32_t find(std::uint64_t padded, std::uint32_t begin, std::uint32_t end)
  {
    std::uint32_t found = end;
    for (std::size_t which = 0; which < used_kinds_; ++which) {
      const kind& each = kinds_[which];
      const std::size_t index = each.room.first(index_of(each, begin), padded);
      if (index != max_tree::none) found = std::min(found, each.chunks[index]);
    }
    for (std::size_t which = 0; which < used_kinds_; ++which) {  // a chunk that was skipped gets room in a larger frame
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

/// Large tensors first: frame runs for those larger than a frame, then the body, and tiny tensors into the remaining
/// gaps. The default.
///
///     manager<backend::host_arena, size_class_layout> m{memory};
///
/// Good for models whose tensors are all known at the start, as in a sealed manager. The body is tried in the order of
/// declaration, where each tensor goes to the first chunk with room from that of its neighbour on, and by falling size;
/// the order of declaration is kept unless the other one saves frames. A tiny tensor (at most 1/64 of a
/// frame) goes into the chunk of its neighbour, else into the first chunk of one frame with room. The rest of a long
/// frame run, such as a vocabulary, takes no tiny tensors of other layers: each layer would need the whole frame run.
/// Poor where a list has few frames: a frame of tiny tensors is then much of the list, and `best_fit_layout` wastes
/// less. Source: first fit decreasing (Johnson 1973). Cost: O(n log n) for n tensors.
class size_class_layout {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "size_class_layout";
  static constexpr std::uint64_t tiny_fraction = 64;

  void reset(bytes frame)
  {
    frame_ = frame_size{frame};
    chunks_.reset(frame_);
    last_ = 0;
    changes_ = frame_size::never;
  }

  /// One by one, without knowing what follows: the first chunk with room, from the last one on.
  chunk_place place(bytes size)
  {
    const chunk_place result = chunks_.place(frame_size::padded(size), last_);
    last_ = result.chunk;
    return result;
  }

  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    expects(sizes.size() == places.size(), "a layout needs one place for each size");
    expects(chunks_.chunks() == 0, "a layout arranges once after a reset");
    learn(sizes);
    fill(declared_, places, true);
    if (const std::uint64_t declared = chunks_.frames(); declared > fewest()) {
      changes_ = changes_at().count();
      chunks_.reset(frame_);
      fill(falling_, other_, false);
      if (chunks_.frames() < declared) std::copy(other_.begin(), other_.end(), places.begin());
    }
    number_by_declaration(places);
  }

  [[nodiscard]] bytes changes_at() const noexcept { return bytes{std::min(changes_, chunks_.changes_at())}; }

 private:
  /// A search arranges the same sizes many times: their orders stay.
  void learn(std::span<const bytes> sizes)
  {
    const auto same = [](std::uint64_t known, bytes size) { return known == frame_size::padded(size); };
    if (std::equal(padded_.begin(), padded_.end(), sizes.begin(), sizes.end(), same)) return;
    sequence<std::uint64_t> padded;
    for (const bytes size : sizes) padded.push_back(frame_size::padded(size));
    padded_.clear();  // an exception from here on leaves no half of an order
    declared_.resize(sizes.size());
    std::iota(declared_.begin(), declared_.end(), std::uint32_t{0});
    falling_ = declared_;
    sort_records(std::span{falling_}, [&](std::uint32_t a, std::uint32_t b) {
      return padded[a] != padded[b] ? padded[a] > padded[b] : a < b;
    });
    other_.resize(sizes.size());
    padded_.swap(padded);
  }

  /// The body in the given order, near its neighbours or in the first chunk with room; the rest as declared.
  void fill(std::span<const std::uint32_t> order, std::span<chunk_place> places, bool near_neighbours)
  {
    for (std::size_t index = 0; index < padded_.size(); ++index)
      if (padded_[index] > frame_.count()) places[index] = chunks_.open(padded_[index]);
    std::uint32_t near = 0;
    for (const std::uint32_t index : order) {
      if (padded_[index] > frame_.count() || is_tiny(padded_[index])) continue;
      places[index] = chunks_.place(padded_[index], near);
      if (near_neighbours) near = places[index].chunk;
    }
    near = 0;
    for (std::size_t index = 0; index < padded_.size(); ++index) {
      if (is_tiny(padded_[index])) places[index] = chunks_.place_apart_from_frame_runs(padded_[index], near);
      near = places[index].chunk;
    }
  }

  [[nodiscard]] bool is_tiny(std::uint64_t padded)
  {
    if (padded <= frame_.count() / tiny_fraction) return true;
    if (padded <= frame_size::never / tiny_fraction) changes_ = std::min(changes_, padded * tiny_fraction);
    return false;
  }

  /// A lower bound of the frames of this size that any layout takes.
  [[nodiscard]] std::uint64_t fewest()
  {
    bytes total;
    for (const std::uint64_t padded : padded_) total += bytes{padded};
    if (total.count() <= frame_.count()) return total.count() == 0 ? 0 : 1;
    const std::uint64_t frames = (total.count() - 1) / frame_.count() + 1;
    changes_ = std::min(changes_, frame_size::holds_from(total.count(), frames - 1));
    return frames;
  }

  /// Numbers the chunks in the order in which their first tensors were declared.
  void number_by_declaration(std::span<chunk_place> places)
  {
    constexpr std::uint32_t unnumbered = UINT32_MAX;
    numbers_.assign(places.size(), unnumbered);  // there are no more chunks than tensors
    std::uint32_t next = 0;
    for (chunk_place& place : places) {
      if (numbers_[place.chunk] == unnumbered) numbers_[place.chunk] = next++;
      place.chunk = numbers_[place.chunk];
    }
  }

  frame_size frame_;
  first_fit_chunks chunks_;
  sequence<std::uint64_t> padded_;    // sizes of the last arrangement
  sequence<std::uint32_t> declared_;  // tensors, in the order of declaration
  sequence<std::uint32_t> falling_;   // tensors, by falling size
  sequence<chunk_place> other_;
  sequence<std::uint32_t> numbers_;  // of chunks
  std::uint32_t last_ = 0;
  std::uint64_t changes_ = frame_size::never;
};

static_assert(arranging_layout<size_class_layout> && searchable_layout<size_class_layout>);

}  // namespace chunkmem::inline v0
