// SPDX-License-Identifier: Apache-2.0
#include <conformance/chunk_layout.hpp>

#include "verdict.hpp"

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/core/bytes.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wrong_layouts_test {

using namespace chunkmem;

namespace {

/// Right: one chunk after the other, windows of several frames alone. The layouts below change it by one mistake each.
struct in_order {
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "in_order";
  void reset(bytes size)
  {
    frame = frame_size{size};
    used = frame.count();
    next = 0;
  }
  chunk_place place(bytes size)
  {
    const std::uint64_t padded = frame_size::padded(size);
    const std::uint32_t frames = frame.frames_for(padded);
    if (frames > 1) return window(frames);
    if (frame.count() - used < padded) open();
    return at(std::exchange(used, used + padded));
  }
  chunk_place window(std::uint32_t frames)
  {
    used = frame.count();
    return {next++, 0, frames};
  }
  void open() { used = 0, ++next; }
  chunk_place at(std::uint64_t offset) const { return {next - 1, offset, 1}; }

  frame_size frame;
  std::uint64_t used = frame.count();
  std::uint32_t next = 0;
};

/// Puts tensors side by side, byte to byte.
struct forgets_alignment : in_order {
  chunk_place place(bytes size)
  {
    const std::uint32_t frames = frame.frames_for(size.count());
    if (frames > 1) return window(frames);
    if (frame.count() - used < size.count()) open();
    return at(std::exchange(used, used + size.count()));
  }
};

/// Rounds a tensor down to whole units.
struct rounds_down : in_order {
  chunk_place place(bytes size)
  {
    const std::uint32_t frames = frame.frames_for(frame_size::padded(size));
    if (frames > 1) return window(frames);
    if (frame.count() - used < size.count()) open();
    return at(std::exchange(used, used + size.count() / 256 * 256));
  }
};

/// Counts a window by its frames, not as one chunk.
struct numbers_frames : in_order {
  chunk_place place(bytes size)
  {
    const chunk_place result = in_order::place(size);
    next += result.frames - 1;
    return result;
  }
};

/// Asks whether a chunk is full, and not whether the tensor fits.
struct fills_to_the_brim : in_order {
  chunk_place place(bytes size)
  {
    const std::uint64_t padded = frame_size::padded(size);
    const std::uint32_t frames = frame.frames_for(padded);
    if (frames > 1) return window(frames);
    if (used >= frame.count()) open();
    return at(std::exchange(used, used + padded));
  }
};

/// Divides and adds one: a tensor of just one frame gets two.
struct takes_a_frame_too_many : in_order {
  chunk_place place(bytes size)
  {
    const std::uint64_t frames = size.count() / frame.count() + 1;
    return frames > 1 && frames <= UINT32_MAX ? window(static_cast<std::uint32_t>(frames)) : in_order::place(size);
  }
};

/// Never heard of windows of several frames.
struct knows_one_frame : in_order {
  chunk_place place(bytes size)
  {
    chunk_place result = in_order::place(size);
    result.frames = 1;
    return result;
  }
};

/// Goes on with the chunk numbers of the last list.
struct keeps_numbers_over_reset : in_order {
  void reset(bytes size)
  {
    const std::uint32_t last = next;
    in_order::reset(size), next = last;
  }
};

/// Draws an empty unit between tensors now and then, to spread them.
struct spreads_at_random : in_order {
  chunk_place place(bytes size)
  {
    static std::uint32_t state = 1;
    state = state * 1'664'525 + 1'013'904'223;
    if (state >> 31U != 0 && used + 256 <= frame.count()) used += 256;
    return in_order::place(size);
  }
};

/// A copy goes on in the chunks of the original.
struct shares_its_chunks {
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "shares_its_chunks";
  void reset(bytes size) { shared = std::make_shared<in_order>(), shared->reset(size); }
  chunk_place place(bytes size) { return shared->place(size); }
  std::shared_ptr<in_order> shared;
};

/// Rounds a frame up to whole units, so that every frame will do.
struct rounds_frames_up : in_order {
  void reset(bytes size) { in_order::reset(std::max(bytes{256}, align_up(size, bytes{256}))); }
};

/// Opens the chunk, and asks then for its length.
struct counts_before_it_asks : in_order {
  chunk_place place(bytes size)
  {
    if (frame.count() - used >= size.count()) return in_order::place(size);
    used = frame.count();
    const std::uint32_t opened = next++;
    const std::uint32_t frames = frame.frames_for(frame_size::padded(size));
    if (frames == 1) used = frame_size::padded(size);
    return {opened, 0, frames};
  }
};

/// Counts frames in 32 bits.
struct counts_frames_in_32_bits : in_order {
  chunk_place place(bytes size)
  {
    const std::uint64_t frames = (frame_size::padded(size) - 1) / frame.count() + 1;
    return frames > 1 ? window(static_cast<std::uint32_t>(frames)) : in_order::place(size);
  }
};

/// Places the largest first, and forgets to put the answers back into the order of the sizes.
struct arranges_and_forgets_the_order : in_order {
  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    std::vector<bytes> sorted(sizes.begin(), sizes.end());
    std::sort(sorted.begin(), sorted.end(), [](bytes left, bytes right) { return left > right; });
    for (std::size_t index = 0; index < sorted.size(); ++index) places[index] = place(sorted[index]);
  }
};
static_assert(arranging_layout<arranges_and_forgets_the_order>);

/// Names the first frame with which something changes, and one unit more.
struct promises_a_unit_too_much : append_layout {
  bytes changes_at() const
  {
    const bytes changes = append_layout::changes_at();
    return changes == bytes{UINT64_MAX} ? changes : changes + bytes{256};
  }
};

/// Names the frame that it has.
struct promises_nothing : append_layout {
  void reset(bytes size) { append_layout::reset(size), frame = size; }
  bytes changes_at() const { return frame; }
  bytes frame;
};

/// Expects that nothing changes below 1 MiB, whatever the sizes are.
struct promises_a_constant : append_layout {
  bytes changes_at() const { return std::max(append_layout::changes_at(), 1_MiB); }
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_chunk_layout<Policy>()};
}
template <class Policy>
laws::verdict judge_search(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_searchable_layout<Policy>()};
}
}  // namespace

TEST_CASE("the laws of layouts hold for one chunk after the other", "[laws][layout]")
{
  conformance::chunk_layout_laws<in_order>();
}

}  // namespace wrong_layouts_test

const laws::verdicts& laws::wrong_layouts()
{
  using namespace wrong_layouts_test;
  static const verdicts all{
      judge<forgets_alignment>("a place is not aligned"),
      judge<rounds_down>("two tensors share a byte"),
      judge<numbers_frames>("a chunk was passed over"),
      judge<fills_to_the_brim>("a tensor reaches beyond its chunk"),
      judge<takes_a_frame_too_many>("a chunk has the wrong length"),
      judge<knows_one_frame>("a tensor reaches beyond its chunk"),
      judge<keeps_numbers_over_reset>("the same sizes gave two places"),
      judge<spreads_at_random>("the same sizes gave two places"),
      judge<shares_its_chunks>("a copy shares its chunks with the original"),
      judge<rounds_frames_up>("a frame of 0 B was no usage_error"),
      judge<counts_before_it_asks>("a refused tensor changed something"),
      judge<counts_frames_in_32_bits>("a tensor beyond the numbers of a chunk was no size_overflow"),
      judge<arranges_and_forgets_the_order>("arranged: "),
      judge_search<promises_a_unit_too_much>("places change before changes_at"),
      judge_search<promises_nothing>("changes_at is no larger frame"),
      judge_search<promises_a_constant>("places change before changes_at"),
  };
  return all;
}
