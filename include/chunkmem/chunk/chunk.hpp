// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// What the manager knows of a chunk: where its copies lie and whether they may move. 32 bytes.
///
/// A device copy is always valid: it is given up when the host's is written. A host window may be kept without being
/// valid, as the home to which the next write-back goes. A derived chunk has no window: a mover makes its bytes from
/// others, it is read on the device alone, and a write on the host says that what it is made from has changed.
struct chunk {
  static constexpr std::uint32_t nowhere = UINT32_MAX;
  static constexpr std::uint32_t elsewhere = UINT32_MAX - 1;  ///< the host frame of derived chunks

  std::uint32_t frames = 1;          ///< length of its window in every tier
  std::uint32_t device = nowhere;    ///< first device frame
  std::uint32_t host = nowhere;      ///< first host frame
  std::uint32_t next_use = nowhere;  ///< moment of its next recorded access
  std::uint32_t live = 0;            ///< tensors in it that hold bytes; 0: nothing to save
  std::uint32_t device_pins = 0;
  std::uint16_t host_pins = 0;
  std::uint16_t host_writers = 0;  ///< those of them that write: the device has no copy meanwhile
  bool host_valid = false;
  bool left_for_host = false;  ///< without a next use the host wants its bytes, by the record
  /// the plan never lets it leave: its window on the host is the first to be given up
  bool device_only = false;
  bool touched = false;  ///< the eviction policy has not heard of its latest change

  [[nodiscard]] bool on_device() const noexcept { return device != nowhere; }
  [[nodiscard]] bool is_derived() const noexcept { return host == elsewhere; }
  [[nodiscard]] bool has_window() const noexcept { return host < elsewhere; }  ///< on the host
};

static_assert(sizeof(chunk) == 32);

/// All but the next use: that belongs to the record, not to the place.
[[nodiscard]] constexpr bool have_same_place(const chunk& left, const chunk& right) noexcept
{
  return left.device == right.device && left.host == right.host && left.host_valid == right.host_valid &&
         left.live == right.live && left.device_pins == right.device_pins && left.host_pins == right.host_pins;
}

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
