// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Where a tensor of one list lies: its chunk, counted from 0 inside that list, and its first byte there.
///
///     const chunk_place place = layout.place(4_KiB);
struct chunk_place {
  std::uint32_t chunk = 0;
  std::uint64_t offset = 0;  ///< [bytes], a multiple of tensor_alignment
  std::uint32_t frames = 1;  ///< of that chunk

  [[nodiscard]] bool operator==(const chunk_place&) const noexcept = default;
};

/// Places the tensors of one list and role, one after the other, into chunks. A value: its copies are independent.
///
/// `reset(frame)` forgets all and takes frames of that size; `place(size)` finds room for one tensor. Laws: after a
/// reset a model starts with chunk 0 and opens chunks in order; places are aligned to `tensor_alignment`, disjoint and
/// inside their chunk; a chunk has as many frames as its largest tensor needs; the same sizes give the same places; a
/// frame that is no positive multiple of `tensor_alignment` is a usage_error. Optional operations: see arranging_layout
/// and searchable_layout.
template <class Layout>
concept chunk_layout = names_itself<Layout> && std::same_as<typename Layout::policy_kind, layout_kind> &&
                       std::semiregular<Layout> && requires(Layout layout, bytes count) {
                         layout.reset(count);
                         {
                           layout.place(count)
                         } -> std::same_as<chunk_place>;
                       };

/// A layout that sees all tensors of one list and role at once, so that large ones may come before small ones.
///
/// `arrange(sizes, places)` writes the place of each tensor, in their order.
/// Laws: those of chunk_layout hold for the places in the order of the sizes; it is called once after a reset, without
/// `place`; where it throws, reset comes next.
template <class Layout>
concept arranging_layout =
    chunk_layout<Layout> && requires(Layout layout, std::span<const bytes> sizes, std::span<chunk_place> places) {
      layout.arrange(sizes, places);
    };

/// A layout that knows how far its decisions reach, which makes a search over frame sizes exact.
///
/// `changes_at()` is a frame size above the current one, and with every frame between the two the same tensors get the
/// same chunks, offsets and numbers of frames as they did since the reset. The larger it is, the faster is the search.
/// `bytes{UINT64_MAX}` where no larger frame changes anything.
/// Every decision of a layout is whether a tensor fits; one that does not fit `frames * frame - used` fits from a frame
/// of `(used + padded) / frames` on.
template <class Layout>
concept searchable_layout = chunk_layout<Layout> && requires(const Layout layout) {
  {
    layout.changes_at()
  } -> std::same_as<bytes>;
};

/// The size of a frame, and what follows from it for tensors: the arithmetic that all layouts share.
///
///     const frame_size frame{1_MiB};
///     const std::uint32_t frames = frame.frames_for(frame_size::padded(3_MiB));  // 3
class frame_size {
 public:
  static constexpr std::uint64_t never = UINT64_MAX;  ///< larger than any frame

  constexpr frame_size() = default;
  /// @throws usage_error   zero or no multiple of `tensor_alignment`
  explicit constexpr frame_size(bytes frame) : count_{frame.count()}
  {
    expects(count_ > 0 && count_ % tensor_alignment.count() == 0, "a frame must be a positive multiple of 256 B");
  }

  [[nodiscard]] constexpr std::uint64_t count() const noexcept { return count_; }

  /// The bytes that a tensor takes: whole units of the alignment, at least one, so that no two tensors share an
  /// address.
  /// @throws size_overflow
  [[nodiscard]] static constexpr std::uint64_t padded(bytes size)
  {
    return std::max(align_up(size, tensor_alignment), tensor_alignment).count();
  }
  /// Frames that hold this many bytes. @throws size_overflow   more than a chunk can count
  [[nodiscard]] constexpr std::uint32_t frames_for(std::uint64_t need) const
  {
    const std::uint64_t frames = need == 0 ? 1 : (need - 1) / count_ + 1;
    if (frames > UINT32_MAX) throw size_overflow{"frames of one chunk", need, count_};
    return static_cast<std::uint32_t>(frames);
  }

  /// The least frame of which `frames` hold `need` bytes.
  [[nodiscard]] static constexpr std::uint64_t holds_from(std::uint64_t need, std::uint64_t frames) noexcept
  {
    const std::uint64_t least = need / frames + (need % frames != 0 ? 1 : 0);
    const std::uint64_t unit = tensor_alignment.count();
    const std::uint64_t rest = least % unit;
    return rest == 0 ? least : least > never - unit ? never : least + unit - rest;
  }
  /// The least frame with which `need` bytes take fewer frames.
  [[nodiscard]] constexpr std::uint64_t fewer_from(std::uint64_t need) const
  {
    const std::uint32_t frames = frames_for(need);
    return frames == 1 ? never : holds_from(need, frames - 1);
  }

  [[nodiscard]] constexpr bool operator==(const frame_size&) const noexcept = default;

 private:
  std::uint64_t count_ = tensor_alignment.count();
};

/// Places all tensors of one list and role by a layout that was reset: together where it can arrange, else one by one.
///
/// @throws usage_error   not one place for each size; size_overflow
template <chunk_layout Layout>
void place_all(Layout& layout, std::span<const bytes> sizes, std::span<chunk_place> places)
{
  expects(sizes.size() == places.size(), "a layout needs one place for each size");
  if constexpr (arranging_layout<Layout>)
    layout.arrange(sizes, places);
  else
    for (std::size_t index = 0; index < sizes.size(); ++index) places[index] = layout.place(sizes[index]);
}

}  // namespace chunkmem::inline v0
