// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <bit>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Where the copies of a chunk lie and whether they may move. 16 bytes, and 8 for each tier.
///
/// A tier is an index: `it.pins[tier::host]`. The device's copy is always valid: it is given up when another copy is
/// written. On the host, a chunk may keep frames without valid bytes: its next write-back goes there. A gathered chunk
/// has no frames on the host: a mover makes its bytes from others. It is read only on the device, and a write on the
/// host says that its sources have changed.
/// @code
/// chunk it;
/// it.put(tier::host, frame_id{3}, true);          // frames from number 3 on, with valid bytes
/// it.put(tier::device, frame_id{0}, true);        // and a copy of the bytes
/// it.written_in(tier::device);          // from now on the only valid copy
/// if (!it.is_valid(tier::host)) ...     // it has to be written back before it leaves
/// @endcode
struct chunk {
  static constexpr frame_id nowhere = frame_id::none;
  static constexpr frame_id elsewhere{UINT32_MAX - 1};  ///< the host frame of gathered chunks

  std::uint32_t frames = 1;                                ///< contiguous frames that it takes in every tier
  per_tier<frame_id> first_frame = filled_tiers(nowhere);  ///< nowhere, elsewhere, or a frame of the tier
  per_tier<std::uint32_t> pins = {};
  std::uint32_t next_use = UINT32_MAX;  ///< access of its next recorded access, or none
  std::uint32_t live = 0;               ///< tensors in it that hold bytes; 0: nothing to save
  std::uint16_t writers = 0;            ///< pins below the device that write: the device has no copy meanwhile
  std::uint8_t bits = 0;                ///< tiers whose copy is valid, and the four hints below
  bool touched = false;                 ///< the eviction policy was not told of its latest change

  /// Whether the chunk has frames there, with valid bytes or without.
  [[nodiscard]] constexpr bool has_frames(tier where) const noexcept { return first_frame[where] < elsewhere; }
  /// Whether its bytes can be read there. For a gathered chunk on the host: whether they can be made again.
  [[nodiscard]] constexpr bool is_valid(tier where) const noexcept { return (bits & bit(where)) != 0; }
  [[nodiscard]] constexpr bool is_gathered() const noexcept { return first_frame[tier::host] == elsewhere; }

  constexpr void put(tier where, frame_id first, bool valid) noexcept
  {
    first_frame[where] = first;
    set_valid(where, valid);
  }
  constexpr void take_away(tier where) noexcept { put(where, nowhere, false); }
  constexpr void set_valid(tier where, bool valid) noexcept { set(bit(where), valid); }
  /// Marks the copies in other tiers as stale.
  constexpr void written_in(tier where) noexcept { bits = static_cast<std::uint8_t>(bits & (bit(where) | hints)); }

  /// The number of tiers with a valid copy.
  [[nodiscard]] constexpr int copies() const noexcept { return std::popcount(valid_in()); }

  /// Whether, by the record, the host needs its bytes before the device uses them again.
  [[nodiscard]] constexpr bool wanted_below() const noexcept { return (bits & wanted_below_bit) != 0; }
  constexpr void want_below(bool wanted) noexcept { set(wanted_below_bit, wanted); }
  /// Whether the plan keeps it on the device: its other frames are the first to be given up.
  [[nodiscard]] constexpr bool never_leaves() const noexcept { return (bits & never_leaves_bit) != 0; }
  constexpr void keep_on_device(bool kept) noexcept { set(never_leaves_bit, kept); }
  /// Whether ranks sum its bytes before it leaves: an agent may still work on the frames that it leaves.
  [[nodiscard]] constexpr bool is_summed() const noexcept { return (bits & summed_bit) != 0; }
  constexpr void sum_over_ranks() noexcept { set(summed_bit, true); }
  /// Whether ranks fill it in place: it is placed without bytes, and an asynchronous agent writes them.
  [[nodiscard]] constexpr bool is_filled_by_ranks() const noexcept { return (bits & filled_bit) != 0; }
  constexpr void fill_by_ranks() noexcept { set(filled_bit, true); }

  /// Whether all members are equal but the next use, which belongs to the record and not to the place.
  [[nodiscard]] constexpr bool same_place(const chunk& other) const noexcept
  {
    return first_frame == other.first_frame && valid_in() == other.valid_in() && live == other.live &&
           pins == other.pins;
  }

 private:
  static constexpr std::uint8_t filled_bit = 0x10;
  static constexpr std::uint8_t summed_bit = 0x20;
  static constexpr std::uint8_t wanted_below_bit = 0x40;
  static constexpr std::uint8_t never_leaves_bit = 0x80;
  static constexpr std::uint8_t hints = filled_bit | summed_bit | wanted_below_bit | never_leaves_bit;

  [[nodiscard]] constexpr std::uint8_t valid_in() const noexcept { return static_cast<std::uint8_t>(bits & ~hints); }
  constexpr void set(std::uint8_t which, bool on) noexcept
  {
    bits = static_cast<std::uint8_t>(on ? bits | which : bits & ~which);
  }
  [[nodiscard]] static constexpr std::uint8_t bit(tier where) noexcept
  {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(where));
  }
};

static_assert(sizeof(chunk) == 16 + 8 * tier_count && tier_count <= 4);  // one bit for each tier, and the hints

/// The state of a chunk follows from its tensors: `compute` if one of them is in use, else `gradient` if one of them is
/// overwritten, else `hold` if one of them has bytes.
[[nodiscard]] constexpr tensor_state state_of_chunk(std::span<const tensor_state> tensors) noexcept
{
  using enum tensor_state;
  bool seen[tensor_state_count] = {};
  for (const tensor_state state : tensors) seen[static_cast<std::size_t>(state)] = true;
  const auto has = [&](tensor_state state) { return seen[static_cast<std::size_t>(state)]; };
  if (has(compute)) return compute;
  if (has(gradient)) return gradient;
  return has(hold) ? hold : free;
}

}  // namespace chunkmem::inline v0
