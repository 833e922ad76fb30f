// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/iteration_plan.hpp>

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
///       iteration_plan retain(const retention_request& asked)
///       {
///         iteration_plan plan;
///         plan.retained_until.assign(asked.record.size(), access_record::never);  // no chunk stays
///         plan.lease_limits.assign(asked.record.size(), UINT32_MAX);
///         plan.first_use.assign(asked.chunks.size(), access_record::never);
///         return plan;
///       }
///     };
struct retention_request {
  const access_record& record;
  std::span<const std::uint32_t> chunk_of_slot;
  std::span<const chunk> chunks;       ///< for their lengths; their places are those of one start among many
  std::span<const std::uint8_t> live;  ///< by slot: 1 where the slot holds bytes
  bytes frame{};
  bytes device{};  ///< for chunks and leases
  bytes host{};
  bool finds_places = true;  ///< the plan may have the frames of each chunk; false: it leaves `places` empty
  bool delays_loads = true;  ///< of plans that move the same bytes, one with later loads; false: another, if any
  bool again = false;        ///< the record, the chunks and the capacities are those of the request before
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
/// Laws: `retain` gives a plan whose vectors are empty where it has none. The same record, lengths and capacities give
/// the same plan. A plan that needs too much is carried out as far as it fits.
template <class Transfer>
concept retaining_transfer =
    transfer_policy<Transfer> && requires(Transfer policy, const transfer::retention_request& input) {
      {
        policy.retain(input)
      } -> std::same_as<transfer::iteration_plan>;
    };

/// A transfer policy that finds the early loads of a stored plan. A stored plan has no early loads.
///
/// Law: for the answer of its own `retain`, `early_of` gives the early loads of that answer.
template <class Transfer>
concept early_loading_transfer =
    transfer_policy<Transfer> && requires(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                          const transfer::iteration_plan& plan, bytes device, bytes frame) {
      {
        Transfer::early_of(record, chunk_of_slot, plan, device, frame)
      } -> std::same_as<std::vector<transfer::early_load>>;
    };

}  // namespace chunkmem::inline v0
