// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error_text.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// Names of a group and its ranks outside of the group, for the sentences of its errors.
///
/// A group of two stages has ranks 0 and 1, and an error that names these two helps nobody. With names it says "rank 1
/// (stage 3)". Any communicator of this library takes them: `call_members`. Cost: none until there is an error.
///
///     ranks.call_members({.group = "the node 2", .ranks = {"rank 4 of all", "rank 5 of all"}});
struct member_names {
  std::string group{};               ///< empty: a group like any other
  std::vector<std::string> ranks{};  ///< by rank; of one that is missing or empty, its number is all that is known
  std::uint32_t micro_batches = 0;   ///< labels count them, so many for each part; 0: labels count something else

  [[nodiscard]] bool empty() const noexcept { return group.empty() && ranks.empty(); }
  /// "rank 1 (stage 3)".
  void tell_rank(error_text& text, std::uint32_t rank) const noexcept
  {
    text << "rank " << rank;
    if (rank < ranks.size() && !ranks[rank].empty()) text << " (" << ranks[rank] << ")";
  }
  /// "group of 2 (the link from stage 2 to stage 3)".
  void tell_group(error_text& text, std::uint32_t of_ranks) const noexcept
  {
    text << "group of " << of_ranks;
    if (!group.empty()) text << " (" << group << ")";
  }
  /// "label 13 (part 3, micro-batch 1)".
  void tell_label(error_text& text, std::uint32_t label) const noexcept
  {
    text << "label " << label;
    if (micro_batches != 0)
      text << " (part " << label / micro_batches << ", micro-batch " << label % micro_batches << ")";
  }
};

namespace detail {

/// The same of a communicator, which may have no names.
template <class Ranks>
void tell_rank_of(const Ranks& ranks, error_text& text, std::uint32_t rank) noexcept
{
  if constexpr (requires { ranks.tell_rank(text, rank); })
    ranks.tell_rank(text, rank);
  else
    member_names{}.tell_rank(text, rank);
}
template <class Ranks>
void tell_group_of(const Ranks& ranks, error_text& text) noexcept
{
  if constexpr (requires { ranks.tell_group(text); })
    ranks.tell_group(text);
  else
    member_names{}.tell_group(text, ranks.ranks());
}

}  // namespace detail

}  // namespace collective

}  // namespace chunkmem::inline v0
