// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>

// Settings and result of a save: save_options, saved_generation.

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The generations that a save keeps, and the sizes of its files and rounds.
///
///     save(m, folder, {.keep = 3});
///     save(m, folder, {.keep = 2, .keep_while_writing = 1});  // a disk with room for 2.6 generations
struct save_options {
  std::uint32_t keep = 2;                   ///< whole generations that are kept, this one included; at least 1
  bytes file_size{std::uint64_t{4} << 30};  ///< a file ends with the tensor that reaches it
  bool check_older = true;                  ///< generations that are kept are read: a damaged one does not count
  /// over ranks: each writes this many bytes before they exchange their outcomes. Writing them must take less than the
  /// deadline of their group
  bytes round{std::uint64_t{256} << 20};
  /// whole older generations that are kept while the new one is written; 0: all. A disk needs room for `keep` + 1
  /// generations, unless this is smaller than `keep`: with 1 it needs room for two. The others are removed before the
  /// new one exists: where that save fails, only this many are left. They are read before others are removed
  std::uint32_t keep_while_writing = 0;
};

/// A hash of the options for older generations, which the parts of one save compare.
[[nodiscard]] constexpr std::uint64_t keeping_of(const save_options& it) noexcept
{
  return std::uint64_t{it.keep} << 33U ^ std::uint64_t{it.keep_while_writing} << 1U ^ (it.check_older ? 1U : 0U);
}

/// The result of a save.
///
///     const saved_generation saved = save(m, folder);
///     std::cout << "generation " << saved.number << ": " << saved.size.count() << " B\n" << saved.clean_up.view();
struct saved_generation {
  std::uint64_t number = 0;
  std::uint64_t files = 0;  ///< without the manifest
  bytes size;               ///< of all of them
  /// why older generations may still exist, in a sentence, also of the save before; else empty. The next save removes
  /// them
  error_text clean_up{};
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
