// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/kept_gaps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

namespace detail {

/// Dropped gaps of one size that begin from some moment on, by their ends.
using dropped_gaps = std::set<std::pair<std::uint64_t, std::uint32_t>>;

/// A gap of `dropped` that may be kept instead of `kept`, which ends at `end`; or the end of `dropped`.
inline dropped_gaps::iterator find_shorter(const kept_gaps& choice, dropped_gaps& dropped, std::uint32_t kept,
                                           std::uint64_t end)
{
  constexpr int most = 16;
  int looked_at = 0;
  for (auto it = dropped.begin(); it != dropped.end() && it->first <= end && looked_at < most; ++it, ++looked_at) {
    const auto& gaps = choice.problem().gaps();
    if (gaps[it->second].epoch == gaps[kept].epoch || gaps[it->second].length >= gaps[kept].length) continue;
    if (choice.saving(it->second) >= choice.loss(kept)) return it;
  }
  return dropped.end();
}

}  // namespace detail

/// Keeps, instead of each gap, one inside of it that saves as much.
///
/// Bytes are the same, and no moment has less room: what is left is for copies that come early and leave late. In a
/// step that goes forward and back the chunks of the last layers stay and not those of the first. Cost: O(gaps log
/// gaps).
inline void shorten(kept_gaps& choice)
{
  const auto& gaps = choice.problem().gaps();
  const std::uint64_t moments = choice.problem().moments();
  // each also one iteration later, for those around the end
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (std::uint32_t which = 0; which < gaps.size(); ++which)
    for (const std::uint64_t shift : {std::uint64_t{0}, moments})
      if (shift == 0 || gaps[which].begin + gaps[which].length <= moments)
        order.emplace_back(gaps[which].begin + shift, which);
  std::ranges::sort(order, [&](const auto& left, const auto& right) {
    if (left.first != right.first) return left.first > right.first;
    return std::pair{gaps[left.second].length, left.second} < std::pair{gaps[right.second].length, right.second};
  });
  std::map<std::uint64_t, detail::dropped_gaps> dropped;  // by size
  for (const auto& [begin, which] : order) {
    detail::dropped_gaps& mine = dropped[choice.size_of(which)];
    const std::uint64_t end = begin + gaps[which].length;
    if (!choice.is_kept(which)) {
      mine.emplace(end, which);
      continue;
    }
    if (begin >= moments) continue;
    const auto found = detail::find_shorter(choice, mine, which, end);
    if (found == mine.end()) continue;
    const std::uint32_t shorter = found->second;
    mine.erase({std::uint64_t{gaps[shorter].begin} + gaps[shorter].length, shorter});
    mine.erase({gaps[shorter].begin + gaps[shorter].length + moments, shorter});
    choice.drop(which);
    choice.keep(shorter);
    mine.emplace(end, which);
  }
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
