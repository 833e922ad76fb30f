// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/expects.hpp>

#include <algorithm>
#include <cstdint>

namespace chunkmem::inline v0 {

/// The size of a frame, and what follows from it for tensors: the arithmetic that all layouts share.
///
///     const frame_size frame{1_MiB};
///     const std::uint32_t frames = frame.frames_for(frame_size::padded(3_MiB));  // 3
class frame_size {
 public:
  static constexpr std::uint64_t never = UINT64_MAX;  ///< no frame is as large as that

  constexpr frame_size() = default;
  /// @throws usage_error   zero or no multiple of `tensor_alignment`
  explicit constexpr frame_size(bytes frame) : count_{frame.count()}
  {
    expects(count_ > 0 && count_ % tensor_alignment.count() == 0, "a frame must be a positive multiple of 256 B");
  }

  [[nodiscard]] constexpr std::uint64_t count() const noexcept { return count_; }

  /// What a tensor takes: whole units of the alignment, at least one, so that no two tensors share an address.
  /// @throws size_overflow
  [[nodiscard]] static constexpr std::uint64_t padded(bytes size)
  {
    return std::max(align_up(size, tensor_alignment), tensor_alignment).count();
  }
  /// Frames that hold so many bytes. @throws size_overflow   more than a chunk can count
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

}  // namespace chunkmem::inline v0
