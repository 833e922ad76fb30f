// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/tensor/role.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

/// Why a frame can or cannot be given to another chunk now.
enum class frame_use : std::uint8_t {
  free,    ///< nothing lies there
  spare,   ///< a copy or an empty home: it can go without a copy
  sole,    ///< the only copy of bytes: on the device it must be written back to leave, on the host it cannot leave
  pinned,  ///< a pin holds it
  leased,  ///< a lease touches it
};

[[nodiscard]] constexpr std::string_view name_of(frame_use use) noexcept
{
  constexpr std::string_view names[] = {"free", "spare", "sole copy", "pinned", "leased"};
  return names[static_cast<std::size_t>(use)];
}

/// Neighbouring frames of one use.
struct frame_run {
  std::uint32_t first = 0;
  std::uint32_t frames = 0;
  frame_use use = frame_use::free;
};

/// Bytes of a tier that are lent, from where in its arena.
struct lease_place {
  std::uint64_t begin = 0;  ///< [bytes]
  std::uint64_t size = 0;   ///< [bytes]
};

/// One tier: what it could hold, and what lies where.
struct tier_snapshot {
  bytes capacity;
  bytes in_use;  ///< frames of chunks, and leases
  bytes peak;    ///< the most that was ever in use
  bytes leased;
  bytes most_leased;  ///< the highest tide so far
  std::uint32_t frames = 0;
  std::uint32_t free_frames = 0;
  std::uint32_t longest_free = 0;  ///< neighbouring frames that are free
  /// neighbouring frames that are free or can be made so; on the device that may need room on the host
  std::uint32_t longest_clearable = 0;
  std::vector<frame_run> runs;      ///< all frames, from the bottom
  std::vector<lease_place> leases;  ///< from the bottom
};

/// One chunk: what the manager knows of it, and which tensors it holds.
struct chunk_snapshot {
  chunk place;  ///< its frames in both tiers, pins, and which copies are valid
  tensor_state state = tensor_state::free;
  std::uint32_t list = 0;       ///< index in residency_snapshot::lists
  role part = role::parameter;  ///< of its tensors
  bytes used;
  std::uint32_t first_tensor = 0;  ///< index in residency_snapshot::tensors
  std::uint32_t tensors = 0;
};

/// One tensor in one list, such as the momentum of a weight.
struct tensor_snapshot {
  std::string name;
  std::uint32_t list = 0;  ///< index in residency_snapshot::lists
  role part = role::parameter;
  std::uint32_t chunk = 0;
  std::uint64_t offset = 0;  ///< in its chunk [bytes]
  bytes size;
  std::uint32_t pins = 0;  ///< in both tiers
  tensor_state state = tensor_state::free;
};

/// Where everything lay at one moment: plain data that outlives the manager. `to_string` makes a short text of it.
///
/// Before the first access there are tensors and chunks, and all of them lie nowhere.
struct residency_snapshot {
  per_tier<tier_snapshot> tiers;
  bytes frame;                   ///< size of a frame, the unit that moves
  std::uint64_t iterations = 0;  ///< that have ended
  bool is_inside = false;        ///< of an iteration
  std::uint32_t moment = 0;      ///< accesses, leases and drops that it has had
  std::vector<std::string> lists;
  std::vector<chunk_snapshot> chunks;
  std::vector<tensor_snapshot> tensors;  ///< chunk by chunk, each from its beginning
};

}  // namespace chunkmem::inline v0
