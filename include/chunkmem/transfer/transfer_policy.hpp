// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// The kinds of moves, and of changes of room, at an access.
enum class move_kind : std::uint8_t {
  evict,       ///< a chunk gives up its frames, after a write-back if the host's copy is not valid
  load,        ///< a chunk is copied into frames that are free by then
  claim,       ///< a chunk without bytes gets frames
  write_back,  ///< a chunk is copied to the host and stays
  lease,       ///< bytes are leased at `place`
  vacate,      ///< frames became free for another reason; information for a scheduler, not a request
};

/// One decision. `access_index` is when it was needed (in a demand log) or when it is carried out (in an action list).
///
///     for (const move& it : input.demand)
///       if (it.kind != move_kind::evict) actions.push_back(it);
struct move {
  std::uint32_t access_index = 0;
  std::uint32_t chunk = UINT32_MAX;
  std::uint64_t place = 0;  ///< first frame; first byte of a lease
  std::uint32_t frames = 0;
  std::uint32_t order = 0;  ///< among the moves of one access
  move_kind kind = move_kind::evict;
};

/// The input of a scheduler: one recorded iteration, and the moves of demand paging in this iteration.
///
///     actions.assign(input.demand.begin(), input.demand.end());  // each move when it was needed
struct schedule_input {
  const access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;
  std::span<const move> demand;  ///< ordered by access index, then by decision
  std::uint32_t chunks = 0;
  std::uint32_t device_frames = 0;
  bool may_move_early = true;  ///< false: host room was short, so the order of decisions must stay
};

/// The input of a policy that decides which chunks stay: one recorded iteration, and its room.
///
///     struct my_transfer {
///       retention retain(const retention_request& asked)
///       {
///         until.assign(asked.record.size(), access_record::never);  // no chunk stays
///         return {};
///       }
///       std::vector<std::uint32_t> until;
///     };
struct retention_request {
  const access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;
  std::span<const chunk> chunks;       ///< use their lengths; their places are those of one start among many
  std::span<const std::uint8_t> live;  ///< by slot: 1 where the slot holds bytes
  bytes frame{};
  bytes device{};  ///< for chunks and leases
  bytes host{};
};

/// A chunk that is loaded for the next iteration before this one ends.
///
///     for (const early_load& it : kept.early) std::cout << it.chunk << " from " << it.ready << " on\n";
struct early_load {
  std::uint32_t chunk = 0;
  std::uint32_t ready = 0;      ///< from this access on, this iteration does not use the chunk
  std::uint32_t first_use = 0;  ///< its access in the next iteration
  std::uint32_t border = 0;     ///< leases come down to this frame before the chunk leaves again
};

/// The chunks that stay on the device. A span has one number for each access of the record, or for each chunk.
///
///     const retention kept{.retained_until = until, .first_use = first, .borders = borders};
struct retention {
  /// by access index: the next use of the chunk if the chunk stays until then, else never
  std::span<const std::uint32_t> retained_until;
  /// by chunk: its first use if the chunk lies on the device when an iteration begins, else never
  std::span<const std::uint32_t> first_use;
  /// by access index: leases come down to this frame before a chunk that is loaded now leaves
  std::span<const std::uint32_t> borders;
  std::uint64_t moved_bytes = 0;  ///< by an iteration, both directions, as it was solved
  std::uint64_t bound_bytes = 0;  ///< no plan of one iteration moves less
  /// by chunk: 1 if the chunk never leaves and needs no host copy; empty: every chunk needs a host copy
  std::span<const std::uint8_t> device_only = {};
  std::span<const early_load> early = {};  ///< ordered by `ready`
  /// by access index: the first frame of the chunk, or frame_id::none; empty: each load finds frames when it happens
  std::span<const std::uint32_t> places = {};
};

}  // namespace transfer

/// Decides when each copy of an iteration starts.
///
/// Laws:
/// - With `plans == false`, `schedule` is never called, and every miss is served when it happens.
/// - Otherwise `schedule` fills `actions`, ordered by access index, with the moves of the demand log. No move comes
///   later than it was needed, twice, or before a move on which it depends.
/// - The same input gives the same actions.
/// - A second call with the same sizes does not allocate.
template <class Transfer>
concept transfer_policy =
    names_itself<Transfer> && std::same_as<typename Transfer::policy_kind, transfer_kind> && std::copyable<Transfer> &&
    requires(Transfer policy, const transfer::schedule_input& input, std::vector<transfer::move>& actions) {
      {
        Transfer::plans
      } -> std::convertible_to<bool>;
      policy.schedule(input, actions);
    };

/// A transfer policy that also decides which chunks stay on the device between their uses, from the whole record at
/// once.
///
/// Laws: `retain` gives spans that are valid until the next call, and empty spans where it has no plan. The same
/// record, lengths and capacities give the same answer. A plan that asks for too much is carried out as far as it fits.
template <class Transfer>
concept retaining_transfer =
    transfer_policy<Transfer> && requires(Transfer policy, const transfer::retention_request& input) {
      {
        policy.retain(input)
      } -> std::same_as<transfer::retention>;
    };

/// A transfer policy that finds the early loads of a stored plan. A stored plan has no early loads.
///
/// Law: for the answer of its own `retain`, `early_of` gives the early loads of that answer.
template <class Transfer>
concept early_loading_transfer =
    transfer_policy<Transfer> && requires(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                          const transfer::retention& plan, bytes device, bytes frame) {
      {
        Transfer::early_of(record, chunk_of_slot, plan, device, frame)
      } -> std::same_as<std::vector<transfer::early_load>>;
    };

}  // namespace chunkmem::inline v0
