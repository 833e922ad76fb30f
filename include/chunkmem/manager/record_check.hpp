// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// A record from elsewhere is one that an iteration of this model can have made: its slots are there, what is dropped
/// or written is not pinned, and its leases have bytes. What it says may still be another iteration: that is a
/// divergence.
/// @throws config_error   names the first access that cannot be   @complexity O(entries + slots)
inline void expect_record_fits(const access_record& record, const registry& tensors)
{
  const auto refuse = [](std::uint32_t access_index, std::string_view why) {
    throw config_error{error_text{} << "chunkmem: a profile is not one of this model: at access " << access_index << " "
                                    << why << " (record it again with this model)"};
  };
  sequence<std::uint32_t> on_device(tensors.slots().size(), 0);  // pins
  sequence<std::uint32_t> on_host(tensors.slots().size(), 0);
  visit_in_order(record, [&](std::uint32_t index, bool begins) {
    const access_entry& entry = record.entries()[index];
    if (is_lease(entry.kind)) {
      if (record.details()[index].bytes == 0) refuse(index, "nothing is leased");
      return;
    }
    if (entry.slot >= tensors.slots().size() || tensors.chunk_of(slot_id{entry.slot}) == chunk_id::none)
      refuse(index, "a tensor is used that is not there");
    std::uint32_t& pins = place_of(entry.kind) == memory_location::device ? on_device[entry.slot] : on_host[entry.slot];
    std::uint32_t& others =
        place_of(entry.kind) == memory_location::device ? on_host[entry.slot] : on_device[entry.slot];
    if (entry.kind == entry_kind::drop) {
      if (pins + others > 0) refuse(index, "a tensor is dropped while it is pinned");
      return;
    }
    if (begins && writes(access_of(entry.kind)) && others > 0) refuse(index, "a tensor is written in two tiers");
    pins = begins ? pins + 1 : pins - 1;
  });
}

}  // namespace chunkmem::inline v0
