// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/frame_size.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/sequence.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace chunkmem::inline v0 {

/// The free bytes of chunks: finds the tightest gap for a tensor, and joins what is given back with its neighbours.
///
///     chunk_gaps gaps;
///     gaps.reset(frame_size{1_MiB});
///     if (!gaps.tightest(512)) gaps.open(1);  // no gap is that large: one more chunk
///     gaps.take(*gaps.tightest(512), 512);
///     gaps.give(0, 0, 512);
///
/// A gap is one entry in two orders, by place and by size, and no two gaps touch: that is what keeps a byte from being
/// handed out twice. Cost: O(log gaps) for each call, times the number of different chunk lengths for a search.
class chunk_gaps {
 public:
  struct gap {
    std::uint32_t chunk;
    std::uint64_t begin;
    std::uint64_t length;
  };

  void reset(frame_size frame)
  {
    frame_ = frame;
    frames_of_.clear();
    kinds_.clear();
    by_place_.clear();
    by_size_.clear();
    changes_ = frame_size::never;
  }

  /// A new chunk, all of it free.
  gap open(std::uint32_t frames)
  {
    const auto chunk = static_cast<std::uint32_t>(frames_of_.size());
    const std::uint64_t length = (bytes{frame_.count()} * frames).count();
    frames_of_.push_back(frames);
    if (const auto at = find_kind(frames); at == kinds_.end() || at->frames != frames)
      kinds_.insert(at, {frames, false});
    add(chunk, 0, length);
    return {chunk, 0, length};
  }

  /// The smallest gap with so many bytes; of equal ones that of the shorter, then of the older chunk.
  [[nodiscard]] std::optional<gap> tightest(std::uint64_t need)
  {
    const key* best = nullptr;
    for (const auto& [frames, has_full] : kinds_) {
      const auto found = by_size_.lower_bound({frames, need, 0, 0});
      if (found != by_size_.begin() && std::prev(found)->frames == frames)
        note(need - std::prev(found)->length, frames);
      else if (has_full)
        note(need, frames);
      if (found == by_size_.end() || found->frames != frames) continue;
      if (best != nullptr && found->length >= best->length) continue;
      if (best != nullptr)
        note(best->length - found->length, frames - best->frames);  // from there on the other is tighter
      best = &*found;
    }
    if (best == nullptr) return std::nullopt;
    return gap{best->chunk, best->begin, best->length};
  }

  /// The first bytes of a gap are free no more.
  void take(const gap& from, std::uint64_t count)
  {
    auto where = by_place_.extract({from.chunk, from.begin});
    auto size = by_size_.extract({frames_of_[from.chunk], from.length, from.chunk, from.begin});
    if (from.length == count) {
      find_kind(frames_of_[from.chunk])->has_full = true;
      return;
    }
    where.key().begin += count;
    where.mapped() -= count;
    size.value().begin += count;
    size.value().length -= count;
    by_place_.insert(std::move(where));
    by_size_.insert(std::move(size));
  }

  /// @throws usage_error   bytes that are free, or of no chunk; nothing changed
  void give(std::uint32_t chunk, std::uint64_t begin, std::uint64_t count)
  {
    constexpr auto not_taken = "a place was given back that this layout did not give";
    expects(chunk < frames_of_.size(), not_taken);
    const std::uint64_t whole = frame_.count() * frames_of_[chunk];
    expects(begin <= whole && count <= whole - begin, not_taken);
    std::uint64_t end = begin + count;
    const auto after = by_place_.lower_bound({chunk, begin});
    const bool has_after = after != by_place_.end() && after->first.chunk == chunk;
    const bool has_before = after != by_place_.begin() && std::prev(after)->first.chunk == chunk;
    expects(!has_after || end <= after->first.begin, not_taken);
    expects(!has_before || std::prev(after)->first.begin + std::prev(after)->second <= begin, not_taken);
    const auto before = has_before ? std::prev(after) : by_place_.end();
    if (has_after && after->first.begin == end) {
      end += after->second;
      remove(after);
    }
    if (has_before && before->first.begin + before->second == begin) {
      begin = before->first.begin;
      remove(before);
    }
    add(chunk, begin, end - begin);
  }

  [[nodiscard]] std::uint32_t frames_of(std::uint32_t chunk) const noexcept { return frames_of_[chunk]; }
  /// With frames below it every search since the reset finds the same, if nothing was given back.
  [[nodiscard]] std::uint64_t changes_at() const noexcept { return changes_; }

 private:
  struct place {
    std::uint32_t chunk;
    std::uint64_t begin;
    [[nodiscard]] auto operator<=>(const place&) const noexcept = default;
  };
  struct key {
    std::uint32_t frames;
    std::uint64_t length;
    std::uint32_t chunk;
    std::uint64_t begin;
    [[nodiscard]] auto operator<=>(const key&) const noexcept = default;
  };

  struct kind {
    std::uint32_t frames;
    bool has_full;  ///< a chunk may have no gap at its end, where a larger frame would bring one
  };

  sequence<kind>::iterator find_kind(std::uint32_t frames)
  {
    return std::lower_bound(kinds_.begin(), kinds_.end(), frames,
                            [](const kind& it, std::uint32_t wanted) { return it.frames < wanted; });
  }
  void add(std::uint32_t chunk, std::uint64_t begin, std::uint64_t length)
  {
    by_place_.insert({{chunk, begin}, length});
    by_size_.insert({frames_of_[chunk], length, chunk, begin});
  }
  void remove(std::map<place, std::uint64_t>::iterator at)
  {
    by_size_.erase({frames_of_[at->first.chunk], at->second, at->first.chunk, at->first.begin});
    by_place_.erase(at);
  }
  /// A gap at the end of a chunk grows by `frames` bytes with each byte of the frame.
  void note(std::uint64_t missing, std::uint32_t frames) noexcept
  {
    changes_ = std::min(changes_, frame_.count() + frame_size::holds_from(missing, frames));
  }

  frame_size frame_;
  sequence<std::uint32_t> frames_of_;  // by chunk
  sequence<kind> kinds_;               // the different lengths, ascending
  std::map<place, std::uint64_t> by_place_;
  std::set<key> by_size_;
  std::uint64_t changes_ = frame_size::never;
};

}  // namespace chunkmem::inline v0
