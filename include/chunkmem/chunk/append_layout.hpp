#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/expects.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// Fills one chunk after the other, in the order of declaration; never looks back.
///
/// Neighbours in the model become neighbours in a chunk, which is what a layer-by-layer trainer wants. What does not
/// fit the rest of a chunk opens the next one; what is larger than a frame gets a window of frames for itself.
/// Source: PatrickStar's append order (Fang et al. 2021, arXiv 2108.05818). Cost: O(1) for each tensor.
class append_layout {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "append_layout";

  /// @throws usage_error   `frame` is zero or no multiple of `tensor_alignment`
  explicit constexpr append_layout(bytes frame) : frame_{frame.count()}
  {
    expects(frame_ > 0 && frame_ % tensor_alignment.count() == 0, "a frame must be a positive multiple of 256 B");
  }

  constexpr chunk_place place(bytes size)
  {
    const std::uint64_t padded = align_up(size, tensor_alignment).count();
    if (padded > frame_) return place_alone(padded);
    if (!open_ || frame_ - used_ < padded) {
      current_ = next_chunk_++;
      used_ = 0;
      open_ = true;
    }
    const chunk_place result{current_, used_, 1};
    used_ += padded;
    return result;
  }

 private:
  constexpr chunk_place place_alone(std::uint64_t padded)
  {
    const std::uint64_t frames = (padded - 1) / frame_ + 1;
    if (frames > UINT32_MAX) throw size_overflow{"frames of one tensor", padded, frame_};
    open_ = false;  // what follows is not put back into an older chunk: the order of chunks is the order of use
    return {next_chunk_++, 0, static_cast<std::uint32_t>(frames)};
  }

  std::uint64_t frame_;
  std::uint64_t used_ = 0;
  std::uint32_t current_ = 0;
  std::uint32_t next_chunk_ = 0;
  bool open_ = false;
};

static_assert(chunk_layout<append_layout>);

}  // namespace chunkmem::inline v0
