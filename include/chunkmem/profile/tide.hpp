// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Calls `see(access, true)` for each entry and `see(access, false)` for each release, in the order in which they
/// happened.
template <class See>
void visit_in_order(const access_record& record, See see)
{
  const auto releases = record.releases();
  std::size_t ended = 0;
  for (std::uint32_t index = 0; index <= record.size(); ++index) {
    for (; ended < releases.size() && releases[ended].until <= index; ++ended) see(releases[ended].access_index, false);
    if (index < record.size()) see(index, true);
  }
}

/// The highest tide of a recorded iteration: the most bytes that were leased at once in a tier. O(entries).
[[nodiscard]] inline bytes most_leased(const access_record& record, tier where)
{
  const entry_kind kind = where == tier::device ? entry_kind::lease_device : entry_kind::lease_host;
  std::uint64_t now = 0;
  std::uint64_t most = 0;
  visit_in_order(record, [&](std::uint32_t index, bool begins) {
    if (record.entries()[index].kind != kind) return;
    now = begins ? now + record.details()[index].bytes : now - record.details()[index].bytes;
    most = std::max(most, now);
  });
  return bytes{most};
}

}  // namespace chunkmem::inline v0
