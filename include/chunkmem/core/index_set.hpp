// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/version.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// A set of small integers that finds its neighbours at once: a tree of 64-bit words.
///
///     index_set free;
///     free.reset(1'000);
///     free.insert(7);
///     const std::uint32_t lowest = free.first_from(0);  // 7
///
/// A million members need four levels; insert and erase touch one word unless a word becomes empty or stops being so.
/// Good for free frames (the lowest) and for Belady keys (the last before now). Memory: 1.02 bits per possible member.
/// Cost: O(levels), no allocation after `reset`.
class index_set {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// Forgets everything and makes room for the members 0 to `universe` - 1. Allocates only when it grows.
  void reset(std::uint32_t universe)
  {
    std::size_t words = 0;
    levels_ = 0;
    for (std::size_t members = universe;; members = (members + 63) / 64) {
      first_word_[levels_++] = words;
      words += (members + 63) / 64 + 1;
      if (members < 64) break;  // the top word keeps a spare bit, so that no end of a range falls beyond it
    }
    words_.assign(words, 0);
    universe_ = universe;
  }

  [[nodiscard]] bool contains(std::uint32_t member) const noexcept
  {
    return (words_[member >> 6] >> (member & 63) & 1) != 0;
  }
  [[nodiscard]] bool empty() const noexcept { return words_.empty() || words_[first_word_[levels_ - 1]] == 0; }

  void insert(std::uint32_t member) noexcept
  {
    std::uint64_t& word = words_[member >> 6];
    const std::uint64_t before = word;
    word = before | std::uint64_t{1} << (member & 63);
    if (before == 0) [[unlikely]]
      climb(member >> 6, true);
  }

  void erase(std::uint32_t member) noexcept
  {
    std::uint64_t& word = words_[member >> 6];
    word &= ~(std::uint64_t{1} << (member & 63));
    if (word == 0) [[unlikely]]
      climb(member >> 6, false);
  }

  /// The smallest member that is not below `start`, or none.
  [[nodiscard]] std::uint32_t first_from(std::uint32_t start) const noexcept
  {
    if (start >= universe_) return none;
    std::size_t index = start;
    for (std::size_t level = 0; level < levels_; ++level) {
      const std::uint64_t rest = word_at(level, index >> 6) & (~std::uint64_t{0} << (index & 63));
      if (rest != 0)
        return descend(level, (index & ~std::size_t{63}) | static_cast<std::size_t>(std::countr_zero(rest)), false);
      index = (index >> 6) + 1;
    }
    return none;
  }

  /// The largest member below `end`, or none.
  [[nodiscard]] std::uint32_t last_before(std::uint32_t end) const noexcept
  {
    std::size_t index = end < universe_ ? end : universe_;
    for (std::size_t level = 0; level < levels_ && index > 0; ++level) {
      const std::uint64_t kept = (index & 63) != 0 ? ~(~std::uint64_t{0} << (index & 63)) : 0;
      const std::uint64_t rest = word_at(level, index >> 6) & kept;
      if (rest != 0)
        return descend(level, (index & ~std::size_t{63}) | (63 - static_cast<std::size_t>(std::countl_zero(rest))),
                       true);
      index >>= 6;
    }
    return none;
  }

  [[nodiscard]] bool operator==(const index_set& other) const noexcept { return words_ == other.words_; }

 private:
  [[nodiscard]] std::uint64_t word_at(std::size_t level, std::size_t word) const noexcept
  {
    return words_[first_word_[level] + word];
  }

  [[gnu::noinline]] void climb(std::size_t index, bool occupied) noexcept
  {
    for (std::size_t level = 1; level < levels_; ++level, index >>= 6) {
      std::uint64_t& word = words_[first_word_[level] + (index >> 6)];
      const std::uint64_t before = word;
      const std::uint64_t bit = std::uint64_t{1} << (index & 63);
      word = occupied ? before | bit : before & ~bit;
      if ((occupied ? before : word) != 0) return;
    }
  }

  [[nodiscard]] std::uint32_t descend(std::size_t level, std::size_t index, bool last) const noexcept
  {
    while (level-- > 0) {
      const std::uint64_t word = word_at(level, index);
      index = index << 6 | static_cast<std::size_t>(last ? 63 - std::countl_zero(word) : std::countr_zero(word));
    }
    return static_cast<std::uint32_t>(index);
  }

  sequence<std::uint64_t> words_;
  std::size_t first_word_[6] = {};
  std::size_t levels_ = 1;
  std::uint32_t universe_ = 0;
};

}  // namespace chunkmem::inline v0
