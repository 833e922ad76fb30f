// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace transfer {

/// What a use does to the bytes of its chunk.
enum class use_kind : std::uint8_t {
  read,            ///< on the device; needs the bytes
  update,          ///< on the device; needs the bytes, and the host's copy is stale afterwards
  overwrite,       ///< on the device; needs no bytes, and the host's copy is stale afterwards
  host_read,       ///< the host needs the latest bytes; the device's copy stays good
  host_update,     ///< the host needs the latest bytes and writes; the device's copy is stale afterwards
  host_overwrite,  ///< the host writes all of it; the device's copy is stale afterwards
  drop,            ///< the bytes are dead, in both tiers
};

[[nodiscard]] constexpr bool is_on_device(use_kind kind) noexcept
{
  return kind <= use_kind::overwrite;
}

/// One use of a chunk, during the accesses [`begin`, `end`).
///
///     const retention_use uses[] = {{.chunk = 0, .begin = 0, .end = 2}, {.chunk = 1, .begin = 2, .end = 3}};
struct retention_use {
  std::uint32_t chunk = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;  ///< above `begin`; the uses of one chunk may overlap
  use_kind kind = use_kind::read;
};

/// An iteration as numbers. The choice of the chunks that stay on the device depends on nothing else.
///
/// record_uses makes the uses from a record. retention_plan solves the input:
///
///     const retention_plan plan = plan_retention(retention_input{sizes, uses, device_bytes, host_bytes});
struct retention_input {
  std::span<const std::uint64_t> chunk_bytes;   ///< size of each chunk [bytes], above 0
  std::span<const retention_use> uses;          ///< by `begin`; those of one chunk in the order they happen
  std::span<const std::uint64_t> device_bytes;  ///< what chunks may take on the device, at each access [bytes]
  /// Room for host copies on the host, at each access [bytes]. Empty: every chunk has a host copy. A host copy
  /// lasts for the whole iteration. Where an access has no room for all host copies, some chunks live on the device
  /// alone and never leave the device.
  std::span<const std::uint64_t> host_bytes;
  /// The iteration follows itself. Otherwise the iteration starts with an empty device, and a chunk is worth nothing
  /// after its last use: the write-backs at the end of one shot are not counted.
  bool repeats = true;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
