// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// A hash of the values with which this rank has filled each weight since the last comparison of ranks. A rank keeps
/// only its share of a weight, so ranks that fill it with different values would train a mixture.
///
///     first_values filled;
///     filled.reset(plan.tensors());
///     filled.note(3, std::as_bytes(values));  // a pin that wrote weight 3 ends
///     ... filled.word()                       // the same on every rank, or they have different values
///
/// The hash is over bits: -0.0 is not 0.0, and a NaN is its bits.
class first_values {
 public:
  void reset(std::uint32_t tensors)
  {
    words_.assign(tensors, 0);
    filled_ = 0;
  }

  /// A weight was filled. A later fill replaces an earlier one. Cost: one pass over the bytes.
  /// @param tensor   by its number in the plan
  void note(std::uint32_t tensor, std::span<const std::byte> values) noexcept
  {
    if (words_[tensor] == 0) ++filled_;
    words_[tensor] = word_of(values) | 1U;
  }
  /// Ranks have equal values of this tensor: they compared them, or all read them from one file.
  void forget(std::uint32_t tensor) noexcept
  {
    if (words_[tensor] != 0) --filled_;
    words_[tensor] = 0;
  }
  /// As above, for all tensors.
  void forget() noexcept
  {
    if (filled_ != 0) std::ranges::fill(words_, 0);
    filled_ = 0;
  }

  /// The hash of a tensor; 0 where it was not filled.
  [[nodiscard]] std::uint64_t of(std::uint32_t tensor) const noexcept { return words_[tensor]; }
  /// The hash of all tensors; 0 where none was filled, in O(1), else O(tensors).
  [[nodiscard]] std::uint64_t word() const noexcept
  {
    if (filled_ == 0) return 0;
    collective::fingerprint all;
    for (const std::uint64_t it : words_) all.add(it);
    return all.value();
  }

  /// The hash of a tensor with its name.
  [[nodiscard]] std::uint64_t named(std::uint32_t tensor, std::string_view name) const noexcept
  {
    collective::fingerprint all;
    all.add(name);
    all.add(of(tensor));
    return all.value();
  }
  /// Adds this word with a text.
  void add_to(collective::named_words& all, std::uint32_t tensor, std::string_view name) const
  {
    error_text text;
    text << "weight " << name;
    of(tensor) == 0 ? text << " not filled" : text << " filled with values of checksum " << of(tensor);
    all.add(std::to_string(tensor), named(tensor, name), std::string{text.view()});
  }

  /// A 64-bit hash of these bytes, as a fingerprint.
  [[nodiscard]] static std::uint64_t word_of(std::span<const std::byte> values) noexcept
  {
    constexpr std::size_t lanes = 4;  // independent sums
    std::array<collective::fingerprint, lanes> sums;
    std::array<std::uint64_t, lanes> words{};
    for (std::size_t begin = 0; begin < values.size(); begin += sizeof words) {
      words = {};
      std::memcpy(words.data(), values.data() + begin, std::min(sizeof words, values.size() - begin));
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane].add(words[lane]);
    }
    collective::fingerprint all;
    all.add(values.size());
    for (const collective::fingerprint& it : sums) all.add(it.value());
    return all.value();
  }

 private:
  std::vector<std::uint64_t> words_;  // by tensor of the plan
  std::uint64_t filled_ = 0;          // words that are not 0
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
