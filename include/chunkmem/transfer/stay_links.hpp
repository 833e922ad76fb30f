// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/lease_tide.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Turns "this chunk stays behind that use" into what an engine follows: next uses, and the frames that a stay may
/// take.
///
/// Cost: O(uses + chunks + stretches log moments); no allocation when sizes repeat.
class stay_links {
 public:
  /// @param stays   by use: its chunk stays until its next use, for the use that ends a stretch
  /// @return        good until the next call
  retention link(const record_uses& record, std::span<const std::uint8_t> stays, const lease_tide& tide,
                 std::uint32_t moments)
  {
    const auto stretches = record.stretches();
    stays_until_.assign(moments, access_record::never);
    first_use_.assign(record.last_of_chunk().size(), access_record::never);
    borders_.assign(moments, UINT32_MAX);
    const auto next_use = [&](std::uint32_t stretch) {
      const held_stretch& it = stretches[stretch];
      return stays[it.last] != 0 ? stretches[it.next].begin : access_record::never;
    };
    for (std::uint32_t at = 0; at < record.uses().size(); ++at)
      if (const std::uint32_t stretch = record.stretch_of_use()[at]; stretch != record_uses::none)
        stays_until_[record.uses()[at].begin] = next_use(stretch);
    for (std::uint32_t chunk = 0; chunk < first_use_.size(); ++chunk)
      if (const std::uint32_t last = record.last_of_chunk()[chunk]; last != record_uses::none)
        first_use_[chunk] = next_use(last);
    for (const bool around : {false, true})  // the second time the last stretches know what the first ones need
      for (std::size_t at = stretches.size(); at-- > 0;) set_border(stretches, at, stays, tide, around);
    return {stays_until_, first_use_, borders_};
  }

  /// What comes early stays until its first use. @pre link(), whose answer says so too from now on
  void expect(std::span<const early_load> early) noexcept
  {
    for (const early_load& it : early) first_use_[it.chunk] = it.first_use;
  }

 private:
  /// A chunk lies in one frame from when it comes until it leaves: below all that leases reach meanwhile.
  void set_border(std::span<const held_stretch> stretches, std::size_t at, std::span<const std::uint8_t> stays,
                  const lease_tide& tide, bool around)
  {
    const held_stretch& it = stretches[at];
    if (stays[it.last] == 0) {
      borders_[it.begin] = tide.least_dry(it.begin, it.end);
      return;
    }
    const held_stretch& next = stretches[it.next];
    borders_[it.begin] = std::min(tide.least_dry(it.begin, next.begin),
                                  around || next.begin > it.begin ? borders_[next.begin] : UINT32_MAX);
  }

  std::vector<std::uint32_t> stays_until_;
  std::vector<std::uint32_t> first_use_;
  std::vector<std::uint32_t> borders_;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
