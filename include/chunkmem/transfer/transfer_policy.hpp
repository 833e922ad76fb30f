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

/// What moves, or makes room, at a moment.
enum class move_kind : std::uint8_t {
  evict,       ///< a chunk gives up its frames, after a write-back if the host's copy is not valid
  load,        ///< a chunk is copied into frames that are free by then
  claim,       ///< a chunk without bytes gets frames
  write_back,  ///< a chunk is copied to the host and stays
  lease,       ///< bytes are leased at `place`
  vacate,      ///< frames became free for another reason; tells a scheduler, asks for nothing
};

/// One decision. In a demand log `moment` is when it was needed, in an action list when it is carried out.
struct move {
  std::uint32_t moment = 0;
  std::uint32_t chunk = UINT32_MAX;
  std::uint64_t place = 0;  ///< first frame; first byte of a lease
  std::uint32_t frames = 0;
  std::uint32_t order = 0;  ///< among the moves of one moment
  move_kind kind = move_kind::evict;
};

/// What a scheduler may look at: one recorded iteration and what demand paging would do in it.
struct schedule_input {
  const access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;
  std::span<const move> demand;  ///< by moment, in the order of decision
  std::uint32_t chunks = 0;
  std::uint32_t device_frames = 0;
  bool may_move_early = true;  ///< false: host room was short, so the order of decisions must stay
};

/// What a policy may look at that decides who stays: one recorded iteration, and the room it has.
struct retention_request {
  const access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;
  std::span<const chunk> chunks;       ///< their lengths; where they lie is that of one start among many
  std::span<const std::uint8_t> live;  ///< by slot: 1 where it holds bytes
  bytes frame{};
  bytes device{};  ///< of chunks and leases
  bytes host{};
};

/// A chunk that is loaded for the next iteration before this one ends.
struct early_load {
  std::uint32_t chunk = 0;
  std::uint32_t ready = 0;      ///< from this moment on this iteration does not use it
  std::uint32_t first_use = 0;  ///< its moment in the next iteration
  std::uint32_t border = 0;     ///< leases come down to this frame before it leaves again
};

/// Who stays on the device. Spans as long as the record, or as there are chunks.
struct retention {
  /// by moment: the next use of its chunk if it stays until then, else never
  std::span<const std::uint32_t> stays_until;
  /// by chunk: the same for what lies on the device when an iteration begins
  std::span<const std::uint32_t> first_use;
  /// by moment: leases come down to this frame before a chunk that comes now leaves
  std::span<const std::uint32_t> borders;
  std::uint64_t moved_bytes = 0;  ///< by an iteration, both directions, as it was solved
  std::uint64_t bound_bytes = 0;  ///< no plan of one iteration moves less
  /// by chunk: 1 if it never leaves and needs no home on the host; empty: all do
  std::span<const std::uint8_t> device_only = {};
  std::span<const early_load> early = {};  ///< those that are ready first come first
};

}  // namespace transfer

/// Decides when each copy of an iteration starts.
///
/// Laws: with `plans == false` nothing is asked and every miss is served when it happens. Otherwise `schedule` fills
/// `actions` by moment with the moves of the demand log, none later than it was needed, none twice, none before what it
/// depends on; the same input gives the same actions; it allocates nothing when called again with the same sizes.
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
/// Laws: `retain` gives spans that are good until it is called again, empty ones where it has no plan; the same record,
/// lengths and capacities give the same answer. A plan that asks for too much is carried out as far as it goes. Where
/// it has a static `early_of`, as transfer::planned, a stored plan gets its early loads from there.
template <class Transfer>
concept retaining_transfer =
    transfer_policy<Transfer> && requires(Transfer policy, const transfer::retention_request& input) {
      {
        policy.retain(input)
      } -> std::same_as<transfer::retention>;
    };

}  // namespace chunkmem::inline v0
