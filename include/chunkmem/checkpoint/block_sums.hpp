// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/checksum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The bytes of a block: after the header, so many bytes of a file have one checksum. The last block may be shorter.
inline constexpr std::uint64_t sum_block = std::uint64_t{4} << 20;

namespace detail {
/// So many bytes are read or written, and summed, at a time: the second of the two finds them in the cache.
inline constexpr std::size_t sum_step = std::size_t{256} << 10;
}  // namespace detail

/// Where blocks begin and end in a file: block 0 is its header.
///
///     const block_range second = block_at(1, size, header);
struct block_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return end - begin; }
};

/// Blocks of a file of `size` bytes, whose header has `header` bytes. @pre   header <= size
[[nodiscard]] constexpr std::uint64_t blocks_in(std::uint64_t size, std::uint64_t header) noexcept
{
  const std::uint64_t behind = size - header;
  return 1 + behind / sum_block + (behind % sum_block == 0 ? 0 : 1);
}
[[nodiscard]] constexpr block_range block_at(std::uint64_t block, std::uint64_t size, std::uint64_t header) noexcept
{
  if (block == 0) return {0, header};
  const std::uint64_t begin = header + (block - 1) * sum_block;
  return {begin, begin + std::min(sum_block, size - begin)};
}
/// The block that holds this byte of a file.
[[nodiscard]] constexpr std::uint64_t block_of(std::uint64_t byte, std::uint64_t header) noexcept
{
  return byte < header ? 0 : 1 + (byte - header) / sum_block;
}

/// Checksums of the blocks of a file that is written from its begin to its end, in any pieces.
///
///     block_sums sums{header.size()};
///     sums.add(header);
///     sums.add(content);
///     const std::vector<std::uint64_t> all = sums.take();  // of the header, then of each 4 MiB
class block_sums {
 public:
  block_sums() = default;
  /// @param header   bytes of it
  explicit block_sums(std::uint64_t header) : room_{header} {}

  void add(std::span<const std::byte> content)
  {
    while (!content.empty()) {
      if (room_ == 0) end_block();
      const std::span part = content.first(static_cast<std::size_t>(std::min<std::uint64_t>(room_, content.size())));
      sum_.add(part);
      room_ -= part.size();
      content = content.subspan(part.size());
    }
  }
  /// Nothing is added afterwards.
  [[nodiscard]] std::vector<std::uint64_t> take()
  {
    sums_.push_back(sum_.value());
    return std::move(sums_);
  }

 private:
  void end_block()
  {
    sums_.push_back(sum_.value());
    sum_ = {};
    room_ = sum_block;
  }

  io::checksum sum_;
  std::uint64_t room_ = 0;  // of the block that is being added to
  std::vector<std::uint64_t> sums_;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
