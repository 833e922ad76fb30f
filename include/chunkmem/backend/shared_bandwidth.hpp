// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cost_table.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// A rate that several works share in virtual time.
///
///     shared_bandwidth memory{50e9};
///     const std::uint64_t first = memory.serve(0, 1'000'000, bytes{25'000'000});  // half of the rate until 1'000'000
///     const std::uint64_t second = memory.serve(0, 500'000, bytes{50'000'000});   // what is left, until 1'500'000
///
/// Each work takes its bytes at an even pace over its own time. What was given first keeps its pace; what is given
/// later gets what is left, and lasts longer where that is too little. So no more than the rate is ever in use, and
/// what starts earlier than something given before it finds the rate unused until then. Good where works are many and
/// short against the whole; poor as a model of fairness: real memory slows all of them down, and which one is late
/// matters to what waits for it. Cost: O(log + changes of the rate while the work lasts); memory for the changes that
/// are not forgotten.
///
/// @threads   one caller at a time
class shared_bandwidth {
 public:
  /// @pre the rate is above zero [B/s]
  explicit shared_bandwidth(double bytes_per_second)
      : all_{.latency_nanoseconds = 0, .bytes_per_second = bytes_per_second}, pieces_{{0, 1.0}}
  {
  }

  /// Gives the rate one more work, and says when it ends [ns].
  /// @param begin         when it starts [ns]
  /// @param nanoseconds   what it would last alone with all the bandwidth it likes; it never lasts less
  /// @param size          bytes that it takes in that time
  /// @throws std::bad_alloc   nothing was changed
  [[nodiscard]] std::uint64_t serve(std::uint64_t begin, std::uint64_t nanoseconds, bytes size)
  {
    const std::uint64_t least = all_.nanoseconds_for(size);
    const std::uint64_t lasts = nanoseconds < least ? least : nanoseconds;
    if (size == bytes{}) return begin > UINT64_MAX - lasts ? UINT64_MAX : begin + lasts;
    // centuries from now
    if (lasts >= horizon || begin >= horizon || pieces_.back().begin >= horizon) return UINT64_MAX;
    const double wanted = static_cast<double>(size.count()) / all_.bytes_per_second * 1e9 / static_cast<double>(lasts);
    pieces_.reserve(pieces_.size() + 2);
    const std::size_t first = split(begin);
    const std::size_t last = take(first, wanted < 1 ? wanted : 1.0, static_cast<double>(lasts));
    const std::uint64_t end = pieces_[last].begin;
    merge(first == 0 ? 0 : first - 1, last);
    return end;
  }

  /// Nothing will start before `now` any more: what was in use until then takes no memory.
  void forget_before(std::uint64_t now)
  {
    const std::size_t gone = piece_at(now);
    if (2 * gone > pieces_.size()) pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(gone));
  }

  /// Changes of the rate that are kept.
  [[nodiscard]] std::size_t changes() const noexcept { return pieces_.size(); }

 private:
  static constexpr std::uint64_t horizon = std::uint64_t{1} << 62;

  /// From `begin` to the next piece's this share of the rate is unused. The last piece is unused for ever.
  struct piece {
    std::uint64_t begin;
    double unused;
  };

  // The last one that begins at `now` or before it; the first, if none does.
  [[nodiscard]] std::size_t piece_at(std::uint64_t now) const noexcept
  {
    std::size_t low = 0;
    for (std::size_t high = pieces_.size(); high - low > 1;) {
      const std::size_t middle = low + (high - low) / 2;
      (pieces_[middle].begin <= now ? low : high) = middle;
    }
    return low;
  }

  // The piece that begins at `now`, which is made if there is none.
  std::size_t split(std::uint64_t now)
  {
    const std::size_t index = piece_at(now);
    if (pieces_[index].begin >= now) return index;
    pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(index) + 1, {now, pieces_[index].unused});
    return index + 1;
  }

  // Takes what the work wants, or what is there, from `at` on until it is done. Returns the piece that begins when it
  // ends.
  std::size_t take(std::size_t index, double wanted, double left)
  {
    for (;; ++index) {
      piece& now = pieces_[index];
      const bool is_short = now.unused < wanted;
      const double pace = is_short ? now.unused / wanted : 1.0;
      if (index + 1 == pieces_.size() || left <= static_cast<double>(pieces_[index + 1].begin - now.begin) * pace) {
        const double lasts = left / pace;
        auto whole = static_cast<std::uint64_t>(lasts);
        if (static_cast<double>(whole) < lasts) ++whole;
        const std::size_t end = split(now.begin + whole);
        pieces_[index].unused = is_short ? 0.0 : pieces_[index].unused - wanted;
        return end;
      }
      left -= static_cast<double>(pieces_[index + 1].begin - now.begin) * pace;
      now.unused = is_short ? 0.0 : now.unused - wanted;
    }
  }

  // Neighbours of one share become one piece.
  void merge(std::size_t first, std::size_t last)
  {
    std::size_t kept = first;
    for (std::size_t index = first + 1; index <= last; ++index)
      if (pieces_[index].unused != pieces_[kept].unused) pieces_[++kept] = pieces_[index];
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(kept) + 1,
                  pieces_.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  }

  link_cost all_;
  std::vector<piece> pieces_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
