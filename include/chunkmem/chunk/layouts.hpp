// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

// append_layout and best_fit_layout with its chunk_gaps; any_layout is one layout out of a list. The default,
// size_class_layout, is in chunk/size_class_layout.hpp.

namespace chunkmem::inline v0 {

/// Fills one chunk after the other, in the order of declaration; never looks back.
///
///     manager<backend::host_arena, append_layout> m{memory};
///
/// Only neighbours in the model become neighbours in a chunk. Poor for bytes: up to a third of the chunks stays empty
/// where `size_class_layout` fills them. A tensor that does not fit the rest of a chunk opens the next one; a tensor
/// larger than a frame gets a run of frames for itself.
/// Source: PatrickStar's append order (Fang et al. 2021, arXiv 2108.05818). Cost: O(1) for each tensor.
class append_layout {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "append_layout";

  constexpr void reset(bytes frame) { *this = append_layout{frame_size{frame}}; }

  constexpr chunk_place place(bytes size)
  {
    const std::uint64_t padded = frame_size::padded(size);
    const std::uint32_t frames = frame_.frames_for(padded);
    note(frame_.fewer_from(padded));
    if (frames > 1) {
      open_ = false;  // no later tensor goes into an older chunk: the order of chunks is the order of use
      return {next_chunk_++, 0, frames};
    }
    if (open_ && frame_.count() - used_ < padded) {
      note(frame_size::holds_from(used_ + padded, 1));
      open_ = false;
    }
    if (!open_) {
      current_ = next_chunk_++;
      used_ = 0;
      open_ = true;
    }
    used_ += padded;
    return {current_, used_ - padded, 1};
  }

  [[nodiscard]] constexpr bytes changes_at() const noexcept { return bytes{changes_}; }

  constexpr append_layout() = default;

 private:
  explicit constexpr append_layout(frame_size frame) : frame_{frame} {}

  constexpr void note(std::uint64_t other_frame) noexcept { changes_ = std::min(changes_, other_frame); }

  frame_size frame_;
  std::uint64_t used_ = 0;
  std::uint64_t changes_ = frame_size::never;
  std::uint32_t current_ = 0;
  std::uint32_t next_chunk_ = 0;
  bool open_ = false;
};

static_assert(searchable_layout<append_layout>);

/// The free bytes of chunks: finds the tightest gap for a tensor.
///
///     chunk_gaps gaps;
///     gaps.reset(frame_size{1_MiB});
///     if (!gaps.tightest(512)) gaps.open(1);  // no gap is that large: one more chunk
///     gaps.take(*gaps.tightest(512), 512);
///
/// Each chunk has one gap at most, at its end. Cost: O(log gaps) for each call, times the number of different chunk
/// lengths for a search.
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
    by_size_.clear();
    changes_ = frame_size::never;
  }

  /// Opens a new chunk, all of it free.
  gap open(std::uint32_t frames)
  {
    const auto chunk = static_cast<std::uint32_t>(frames_of_.size());
    const std::uint64_t length = (bytes{frame_.count()} * frames).count();
    frames_of_.push_back(frames);
    if (const auto at = find_kind(frames); at == kinds_.end() || at->frames != frames)
      kinds_.insert(at, {frames, false});
    by_size_.insert({frames, length, chunk, 0});
    return {chunk, 0, length};
  }

  /// The smallest gap with this many bytes; of equal ones that of the shorter, then of the older chunk.
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

  /// Takes the first bytes of a gap.
  void take(const gap& from, std::uint64_t count)
  {
    auto size = by_size_.extract({frames_of_[from.chunk], from.length, from.chunk, from.begin});
    if (from.length == count) {
      find_kind(frames_of_[from.chunk])->has_full = true;
      return;
    }
    size.value().begin += count;
    size.value().length -= count;
    by_size_.insert(std::move(size));
  }

  [[nodiscard]] std::uint32_t frames_of(std::uint32_t chunk) const noexcept { return frames_of_[chunk]; }
  /// The frame size below which every search since the reset gives the same result.
  [[nodiscard]] std::uint64_t changes_at() const noexcept { return changes_; }

 private:
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
  /// Notes a decision. A gap at the end of a chunk grows by `frames` bytes with each byte of the frame.
  void note(std::uint64_t missing, std::uint32_t frames) noexcept
  {
    changes_ = std::min(changes_, frame_.count() + frame_size::holds_from(missing, frames));
  }

  frame_size frame_;
  sequence<std::uint32_t> frames_of_;  // by chunk
  sequence<kind> kinds_;               // the different lengths, ascending
  std::set<key> by_size_;
  std::uint64_t changes_ = frame_size::never;
};

/// Puts each tensor into the tightest gap, in the order of declaration; a new chunk is the last resort.
///
///     manager<backend::host_arena, best_fit_layout> m{memory};
///
/// Good where sizes vary. The rest of a run of several frames is filled too. Poor for neighbours: a small tensor may
/// land in a chunk that is used at quite another time.
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
    const std::uint32_t frames = frame_.frames_for(padded);
    changes_ = std::min(changes_, frame_.fewer_from(padded));
    const auto found = gaps_.tightest(padded);
    const chunk_gaps::gap target = found ? *found : gaps_.open(frames);
    gaps_.take(target, padded);
    return {target.chunk, target.begin, gaps_.frames_of(target.chunk)};
  }

  [[nodiscard]] bytes changes_at() const noexcept { return bytes{std::min(changes_, gaps_.changes_at())}; }

 private:
  frame_size frame_;
  chunk_gaps gaps_;
  std::uint64_t changes_ = frame_size::never;
};

static_assert(searchable_layout<best_fit_layout>);

/// A layout chosen when the program runs: `any_layout<append_layout, size_class_layout>{"size_class_layout"}`.
///
/// Arranges as the chosen layout does, or one by one where that cannot arrange. Searchable where all of the list are.
/// Cost: one indirect call more for each tensor.
template <chunk_layout... Layouts>
class any_layout : public policy_choice<Layouts...> {
 public:
  static constexpr std::string_view name = "any_layout";
  using policy_choice<Layouts...>::policy_choice;

  void reset(bytes frame)
  {
    this->ask([&](auto& it) { it.reset(frame); });
  }
  chunk_place place(bytes size)
  {
    return this->ask([&](auto& it) { return it.place(size); });
  }
  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    this->ask([&](auto& it) { place_all(it, sizes, places); });
  }
  [[nodiscard]] bytes changes_at() const
    requires(searchable_layout<Layouts> && ...)
  {
    return this->ask([](const auto& it) { return it.changes_at(); });
  }
};

}  // namespace chunkmem::inline v0
