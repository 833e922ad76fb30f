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

/// What this rank has filled weights with since ranks last compared it, as one word for each weight. A rank keeps its
/// share alone of what it was given whole, so ranks that fill a weight with other values would train a mixture.
///
///     first_values filled;
///     filled.reset(plan.tensors());
///     filled.note(3, std::as_bytes(values));  // a pin that wrote weight 3 ends
///     ... filled.word()                       // the same on every rank, or they were given other values
///
/// The word of a weight is one of its bits: -0.0 is not 0.0, and a NaN is its bits.
class first_values {
 public:
  void reset(std::uint32_t tensors)
  {
    words_.assign(tensors, 0);
    filled_ = 0;
  }

  /// A weight was filled. Another fill takes the place of the one before. Cost: one pass over the bytes.
  /// @param tensor   by its number in the plan
  void note(std::uint32_t tensor, std::span<const std::byte> values) noexcept
  {
    if (words_[tensor] == 0) ++filled_;
    words_[tensor] = word_of(values) | 1U;
  }
  /// Ranks have the same values of it: they compared them, or it came from a file that all of them see.
  void forget(std::uint32_t tensor) noexcept
  {
    if (words_[tensor] != 0) --filled_;
    words_[tensor] = 0;
  }
  /// The same of all.
  void forget() noexcept
  {
    if (filled_ != 0) std::ranges::fill(words_, 0);
    filled_ = 0;
  }

  /// 0 where it was not filled.
  [[nodiscard]] std::uint64_t of(std::uint32_t tensor) const noexcept { return words_[tensor]; }
  /// 0 where nothing was filled. O(1) then, else O(tensors).
  [[nodiscard]] std::uint64_t word() const noexcept
  {
    if (filled_ == 0) return 0;
    collective::fingerprint all;
    for (const std::uint64_t it : words_) all.add(it);
    return all.value();
  }

  /// The same with the name of the tensor.
  [[nodiscard]] std::uint64_t named(std::uint32_t tensor, std::string_view name) const noexcept
  {
    collective::fingerprint all;
    all.add(name);
    all.add(of(tensor));
    return all.value();
  }
  /// That word, with a text.
  void add_to(collective::named_words& all, std::uint32_t tensor, std::string_view name) const
  {
    error_text text;
    text << "weight " << name;
    of(tensor) == 0 ? text << " not filled" : text << " filled with values of checksum " << of(tensor);
    all.add(std::to_string(tensor), named(tensor, name), std::string{text.view()});
  }

  /// 64 bits that tell these bytes from others, as those of a fingerprint do.
  [[nodiscard]] static std::uint64_t word_of(std::span<const std::byte> values) noexcept
  {
    constexpr std::size_t lanes = 4;  // which do not wait for each other
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
