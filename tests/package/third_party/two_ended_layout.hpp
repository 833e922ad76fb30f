// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>

#include <cstdint>
#include <string_view>

/// Fills a chunk from both ends: small tensors from the back, all others from the front, until one does not fit.
///
/// Weights of neighbouring layers stay in the order of the model, and their biases and norms are one run of bytes at
/// the end of the same chunk: one copy for an optimizer that takes them together. Poor where small tensors are most of
/// a model. Cost: O(1) for each tensor.
class two_ended_layout {
 public:
  using policy_kind = chunkmem::layout_kind;
  static constexpr std::string_view name = "two_ended_layout";

  /// Tensors below this share of a frame are small.
  std::uint64_t small_share = 16;

  void reset(chunkmem::bytes frame)
  {
    frame_ = chunkmem::frame_size{frame};
    front_ = back_ = 0;
    next_chunk_ = 0;
  }

  chunkmem::chunk_place place(chunkmem::bytes size)
  {
    const std::uint64_t padded = chunkmem::frame_size::padded(size);
    const std::uint32_t frames = frame_.frames_for(padded);
    if (frames > 1) {  // a window of its own; what follows begins a chunk
      front_ = back_ = 0;
      return {next_chunk_++, 0, frames};
    }
    if (back_ - front_ < padded) {
      front_ = 0;
      back_ = frame_.count() / chunkmem::tensor_alignment.count() * chunkmem::tensor_alignment.count();
      ++next_chunk_;
    }
    const bool is_small = padded * small_share <= frame_.count();
    if (is_small)
      back_ -= padded;
    else
      front_ += padded;
    return {next_chunk_ - 1, is_small ? back_ : front_ - padded, 1};
  }

 private:
  chunkmem::frame_size frame_;
  std::uint64_t front_ = 0;
  std::uint64_t back_ = 0;
  std::uint32_t next_chunk_ = 0;
};

static_assert(chunkmem::chunk_layout<two_ended_layout>);
