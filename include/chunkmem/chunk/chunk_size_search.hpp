// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// The range of frame sizes of a search, both ends included.
///
///     const bytes frame = search.find(frame_limits::of(sizes)).frame;
struct frame_limits {
  bytes least{tensor_alignment};
  bytes most{64_MiB};

  /// From the largest tensor of the body: at most 1.25 times its size, or 64 MiB if that is larger; at least 1/64 of
  /// it, so that none of its frame runs is longer than 64 frames.
  /// @throws size_overflow
  [[nodiscard]] static frame_limits around(bytes largest_of_body)
  {
    const std::uint64_t unit = tensor_alignment.count();
    const std::uint64_t largest = frame_size::padded(largest_of_body);
    const bytes most = std::max(bytes{largest} + bytes{largest / 4 / unit * unit}, bytes{64_MiB});
    return {align_up(bytes{largest / 64}, tensor_alignment), most};
  }
  /// From the sizes of the list with the shortest elements; see largest_of_body.
  [[nodiscard]] static frame_limits of(std::span<const bytes> sizes) { return around(largest_of_body(sizes)); }

  /// The largest tensor that is no embedding table: the largest size that three tensors have, since a model has many
  /// layers but at most two vocabularies and few tables of positions. Where all such tensors are less than 1/100 of the
  /// bytes, the largest tensor of all.
  [[nodiscard]] static bytes largest_of_body(std::span<const bytes> sizes)
  {
    sequence<bytes> sorted(sizes);
    sort_records(std::span{sorted}, [](bytes a, bytes b) { return a > b; });
    double all = 0;
    for (const bytes size : sorted) all += static_cast<double>(size.count());
    for (std::size_t first = 0; first + 2 < sorted.size();) {
      std::size_t last = first + 1;
      while (last < sorted.size() && sorted[last] == sorted[first]) ++last;
      const double same = static_cast<double>(sorted[first].count()) * static_cast<double>(last - first);
      if (last - first > 2 && same * 100 >= all) return sorted[first];
      first = last;
    }
    return sorted.empty() ? bytes{0} : sorted.front();
  }
};

/// Finds the size of frames with which a layout wastes the least bytes; exact.
///
///     chunk_size_search<append_layout> search;
///     search.add(sizes, 2);  // in two lists
///     const bytes frame = search.find(frame_limits{.least = 1_MiB, .most = 64_MiB}).frame;
///
/// A group is one role in one list, or in several lists of equal element size. All groups have frames of one size. The
/// search goes from one size at which a decision of the layout may change to the next, and passes over sizes that could
/// not win even if all chunks were full: `n` frames of a larger size hold the payload only from `payload / n` on.
/// Cost: one run of the layout for each size that is left; nothing between them.
template <searchable_layout Layout>
class chunk_size_search {
 public:
  struct result {
    bytes frame;                    ///< 0 B: no tensor was added
    std::uint64_t frames = 0;       ///< of all groups and lists
    bytes payload;                  ///< bytes of all tensors
    std::uint64_t evaluations = 0;  ///< sizes for which tensors were placed

    /// The part of the frames that no tensor fills.
    [[nodiscard]] double waste() const
    {
      const double held = static_cast<double>(frame.count()) * static_cast<double>(frames);
      return held > 0 ? (held - static_cast<double>(payload.count())) / held : 0;
    }
  };

  explicit chunk_size_search(Layout prototype = {}) : prototype_{std::move(prototype)} {}

  /// The tensors of one role, in order, as they lie in each of `lists` lists. @throws size_overflow
  void add(std::span<const bytes> sizes, std::uint32_t lists = 1)
  {
    group added{prototype_, sequence<bytes>{sizes}, bytes{}, bytes{}, lists};
    for (const bytes size : sizes) {
      added.payload += size;
      added.padded += bytes{frame_size::padded(size)};
    }
    payload_ += added.payload * lists;
    places_.resize(std::max(places_.size(), sizes.size()));
    if (!sizes.empty() && lists > 0) groups_.push_back(std::move(added));
  }

  /// The frame with the least waste within the limits, among equal ones the smallest; but no smaller than half of a
  /// frame that wastes at most `enough`: large frames are cheap to move and to manage. A negative `enough` searches all
  /// sizes.
  /// @throws usage_error   limits that are no multiples of 256 B, or in the wrong order
  result find(const frame_limits& limits, double enough = 0.001)
  {
    expects(frame_size{limits.least}.count() <= frame_size{limits.most}.count(),
            "the least frame is larger than the most");
    result best{bytes{}, 0, payload_, 0};
    std::uint64_t high = limits.most.count();
    while (!groups_.empty()) {
      const std::uint64_t low = std::max(frame_size::holds_from(high, 2), limits.least.count());
      search(low, high, best);
      if (best.waste() <= enough || low == limits.least.count()) break;
      high = low - tensor_alignment.count();
    }
    return best;
  }

  /// The result with frames of one size. @throws usage_error   no multiple of 256 B
  result measure(bytes frame)
  {
    result found{frame, 0, payload_, 1};
    for (group& each : groups_) found.frames += frames_of(each, frame) * each.lists;
    return found;
  }

 private:
  struct group {
    Layout layout;  // of its own: it may remember what it saw last
    sequence<bytes> sizes;
    bytes payload;
    bytes padded;
    std::uint32_t lists;
  };

  /// Searches from `low` to `high`; takes a result that is less than `best`, or equal to that of a larger frame.
  void search(std::uint64_t low, std::uint64_t high, result& best)
  {
    std::uint64_t limit = best.frames == 0 ? frame_size::never : best.frame.count() * best.frames + 1;
    for (std::uint64_t index = low; index <= high;) {
      changes_ = frame_size::never;
      const std::uint64_t frames = frames_below(limit, index, best.evaluations);
      if (frames * index < limit) {
        limit = frames * index;
        best = {bytes{index}, frames, payload_, best.evaluations};
      }
      index = changes_;  // up to there nothing is better than here
    }
  }

  /// Frames of all groups; or, as soon as they cannot be less than `limit` bytes, the number that shows it.
  std::uint64_t frames_below(std::uint64_t limit, std::uint64_t frame, std::uint64_t& evaluations)
  {
    std::uint64_t frames = 0;
    for (const group& each : groups_) frames += full_frames(each, frame) * each.lists;
    for (group& each : groups_) {
      if (frames * frame >= limit) {
        note_fewer(each, frame);
        continue;
      }
      evaluations += &each == groups_.data() ? 1U : 0U;
      frames += (frames_of(each, bytes{frame}) - full_frames(each, frame)) * each.lists;
    }
    return frames;
  }

  /// Frames that would be needed if all were full.
  [[nodiscard]] static std::uint64_t full_frames(const group& of, std::uint64_t frame) noexcept
  {
    return (of.padded.count() - 1) / frame + 1;
  }
  void note_fewer(const group& of, std::uint64_t frame) noexcept
  {
    const std::uint64_t full = full_frames(of, frame);
    if (full > 1) changes_ = std::min(changes_, frame_size::holds_from(of.padded.count(), full - 1));
  }

  std::uint64_t frames_of(group& each, bytes frame)
  {
    const std::span<chunk_place> places{places_.data(), each.sizes.size()};
    each.layout.reset(frame);
    place_all(each.layout, std::span<const bytes>{each.sizes}, places);
    changes_ = std::min(changes_, each.layout.changes_at().count());
    frames_.clear();
    for (const chunk_place& place : places) {
      if (place.chunk >= frames_.size()) frames_.resize(place.chunk + 1, 0);
      frames_[place.chunk] = std::max(frames_[place.chunk], place.frames);
    }
    std::uint64_t total = 0;
    for (const std::uint32_t one : frames_) total += one;
    return total;
  }

  Layout prototype_;
  std::vector<group> groups_;
  sequence<chunk_place> places_;
  sequence<std::uint32_t> frames_;
  bytes payload_;
  std::uint64_t changes_ = frame_size::never;
};

}  // namespace chunkmem::inline v0
