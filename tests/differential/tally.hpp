// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "words.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace differential {

/// The next state of a tensor, by the table of the documentation; none where the event is illegal.
inline constexpr int illegal = -1;
[[nodiscard]] int next_of(state from, event what) noexcept;

/// The counts of a run: by call, by transition, by sentence.
struct tally {
  /// of programs, also those that had nothing to be done on, such as a release without a pin
  std::uint64_t rolled = 0;
  std::uint64_t operations = 0;  ///< of them those that the manager was asked for, refused ones too
  std::uint64_t illegal = 0;     ///< calls that had to be refused
  std::uint64_t shortages = 0;   ///< out of memory
  std::uint64_t repeated = 0;    ///< iterations that followed their record to the end
  std::uint64_t diverged = 0;    ///< iterations that were recorded or did not
  std::uint64_t loads = 0;
  std::array<std::uint64_t, what_count> calls{};              ///< operations by kind
  std::array<std::array<std::uint64_t, 5>, 4> transitions{};  ///< [state][event]
  std::map<std::string_view, std::uint64_t> sentences{};

  void operator+=(const tally& other);
  /// Counts the sentence of an exception. @throws divergence   a sentence that is not in the list of sentences
  void note_sentence(const std::string& sentence);
  /// The transitions and sentences that were met less often than this, one a line.
  [[nodiscard]] std::string missing(std::uint64_t least) const;
  [[nodiscard]] std::string text() const;
};

}  // namespace differential
