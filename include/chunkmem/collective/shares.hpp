// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace collective {

/// How a run of bytes is divided over ranks: equal shares in the order of ranks, the last ones shorter or empty.
///
/// The number of ranks need not divide anything: the rest is less than a share, and the ranks after it have none.
///
/// Use:
///
///     const shares parts = shares::of(chunk_bytes, ranks);
///     ... parts.size(rank)       // [bytes]
struct shares {
  std::uint64_t whole = 0;  ///< [bytes]
  /// [bytes], a multiple of `tensor_alignment`; only the last share that is not empty may be shorter
  std::uint64_t each = 0;
  std::uint32_t ranks = 1;

  /// The least shares of whole units that ranks can have.
  /// @throws usage_error     there are no ranks
  /// @throws size_overflow   the bytes cannot be rounded up
  [[nodiscard]] static constexpr shares of(bytes whole, std::uint32_t ranks)
  {
    if (ranks == 0) throw usage_error{"shares for 0 ranks (give one or more)"};
    const std::uint64_t least = whole.count() / ranks + (whole.count() % ranks != 0 ? 1 : 0);
    return {whole.count(), align_up(bytes{least}, tensor_alignment).count(), ranks};
  }

  [[nodiscard]] constexpr std::uint64_t begin(std::uint32_t rank) const noexcept
  {
    return each != 0 && rank > whole / each ? whole : least_of(rank * each);
  }
  [[nodiscard]] constexpr std::uint64_t end(std::uint32_t rank) const noexcept { return begin(rank + 1); }
  [[nodiscard]] constexpr std::uint64_t size(std::uint32_t rank) const noexcept { return end(rank) - begin(rank); }
  /// Every rank has as much as any other.
  [[nodiscard]] constexpr bool are_equal() const noexcept { return each * ranks == whole; }

  [[nodiscard]] constexpr bool operator==(const shares&) const noexcept = default;

 private:
  [[nodiscard]] constexpr std::uint64_t least_of(std::uint64_t place) const noexcept
  {
    return place < whole ? place : whole;
  }
};

}  // namespace collective

}  // namespace chunkmem::inline v0
