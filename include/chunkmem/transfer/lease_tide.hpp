// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/max_tree.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace transfer {

/// Tells how far the leases of a recorded iteration come down at each access, if no chunk is in the way.
///
///     lease_tide tide;
///     if (tide.read(record, device, frame)) use(tide.dry_frames(access));
///
/// Cost: O(entries x live leases) for each record, O(log entries) for a question.
class lease_tide {
 public:
  /// @param frame   bytes of a frame   @return   all leases fit into `device` bytes
  [[nodiscard]] bool read(const access_record& record, bytes device, bytes frame)
  {
    const auto frames = static_cast<std::uint32_t>(device.count() / frame.count());
    arena_.reset(device, frame, frames);
    place_.assign(record.size(), tier_space::no_place);
    drowned_.clear();
    bool fits = true;
    visit_in_order(record, [&](std::uint32_t index, bool begins) {
      if (record.entries()[index].kind == entry_kind::lease_device) {
        if (begins)
          fits = take(index, record.details()[index].bytes) && fits;
        else
          give(index, record.details()[index].bytes);
      }
      if (begins) drowned_.push_back(frames - dry());
    });
    frames_ = frames;
    return fits;
  }

  [[nodiscard]] std::uint32_t accesses() const noexcept { return static_cast<std::uint32_t>(drowned_.size()); }
  /// Of the device.
  [[nodiscard]] std::uint32_t frames() const noexcept { return frames_; }
  /// Frames from the bottom of the arena that no lease touches at this access.
  [[nodiscard]] std::uint32_t dry_frames(std::uint32_t now) const noexcept
  {
    return frames_ - static_cast<std::uint32_t>(drowned_.at(now));
  }

  /// The smallest dry_frames() of [`begin`, `end`). The range goes around the end of the iteration where `end` is not
  /// above `begin`.
  [[nodiscard]] std::uint32_t least_dry(std::uint32_t begin, std::uint32_t end) const noexcept
  {
    const std::uint64_t most = end > begin
                                   ? drowned_.largest(begin, end)
                                   : std::max(drowned_.largest(begin, drowned_.size()), drowned_.largest(0, end));
    return frames_ - static_cast<std::uint32_t>(most);
  }

 private:
  [[nodiscard]] bool take(std::uint32_t index, std::uint64_t size)
  {
    place_[index] = arena_.find_lease(size, [](frame_id) { return false; });
    if (place_[index] == tier_space::no_place) return false;
    arena_.take_lease(place_[index], size);
    return true;
  }
  void give(std::uint32_t index, std::uint64_t size) noexcept
  {
    if (place_[index] != tier_space::no_place) arena_.give_lease(place_[index], size, [](frame_id) {});
  }
  [[nodiscard]] std::uint32_t dry() const noexcept
  {
    const std::uint64_t lowest = arena_.lowest_lease();
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(lowest / arena_.frame_bytes(), arena_.frames()));
  }

  tier_space arena_;
  sequence<std::uint64_t> place_;  // by access index
  max_tree drowned_;               // by access index
  std::uint32_t frames_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
