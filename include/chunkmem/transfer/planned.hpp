// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/retention_solution.hpp>
#include <chunkmem/transfer/stays.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Solves the recorded iteration once: chooses the chunks that stay on the device between their uses, so that the
/// fewest bytes move.
///
///     manager<Backend, transfer::planned> m{memory, options};
///
/// - The eviction policy decides where the plan would move more bytes (frame runs of several frames, leases). `planned`
///   therefore never moves more than the eviction policy.
/// - Where the host has no room for every chunk, some chunks live on the device alone.
/// - Where some chunks have several frames, the plan also has the frames of each chunk; see stay_frames. Where stays
///   were given up for that, the manager also runs the plan without frames, and takes the frames of that run if it
///   moves no more bytes: they are chosen by age, so that copies wait for fewer frames.
/// - A copy starts as soon as its chunk is ready and its frames are free.
/// - A load takes the frame that is free, or was given up by the plan, the longest. A chunk without bytes takes a frame
///   whose bytes an agent may still copy, or add over ranks, only where there is no other.
/// - The chunks that an iteration ends with, and that leave before they are used again, are written back before the
///   iteration ends.
/// - The chunks that the next iteration uses first are loaded before this iteration ends, as far as there is room; see
///   early_loads.
///
/// Good where an iteration repeats. Poor where every iteration differs, since every record is solved again. Cost: one
/// solution for each record, see retention_solution; nothing while a plan is followed.
class planned {
 public:
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "planned";
  static constexpr bool plans = true;

  /// A copy may start this many accesses before it is needed.
  std::uint32_t window = UINT32_MAX;

  void schedule(const schedule_input& input, std::vector<move>& actions)
  {
    ahead_.window = window;
    ahead_.schedule(input, actions);
  }

  [[nodiscard]] iteration_plan retain(const retention_request& request)
  {
    const access_record& record = request.record;
    if (!request.again && !solve(request)) return {};
    if (plan_.retained.empty()) return {};  // a repeated request without a solution
    plan_.retained = request.delays_loads || plan_.undelayed.empty() ? stays_ : plan_.undelayed;
    plan_.moved_bytes = solved_bytes_;
    const auto places = request.finds_places && plan_.device_only.empty()
                            ? frames_.choose(uses_, plan_.retained, leased_, request.chunks)
                            : std::span<const std::uint32_t>{};
    if (!places.empty() && frames_.is_cut())
      plan_.moved_bytes = moved_bytes({sizes_, uses_.uses(), room_, {}, true}, plan_.retained);
    iteration_plan answer = link_stays(uses_, plan_.retained, leased_, record.size());
    answer.places.assign(places.begin(), places.end());
    auto early = early_.choose(uses_, plan_.retained, leased_, {sizes_, room_, answer.lease_limits});
    if (!places.empty()) early = frames_.keep_possible(early, request.chunks);
    for (const early_load& load : early) answer.first_use[load.chunk] = load.first_use;  // it stays until then
    answer.early.assign(early.begin(), early.end());
    answer.device_only.assign(plan_.device_only.begin(), plan_.device_only.end());
    answer.moved_bytes = plan_.moved_bytes;
    answer.bound_bytes = static_cast<std::uint64_t>(plan_.certified_bytes);
    return answer;
  }

  /// The early loads of a stored plan; see early_loads_of.
  [[nodiscard]] static std::vector<early_load> early_of(const access_record& record,
                                                        std::span<const std::uint32_t> chunk_of_slot,
                                                        const iteration_plan& plan, bytes device, bytes frame)
  {
    return early_loads_of(record, chunk_of_slot, plan, device, frame);
  }

  /// The solution of the last record, with its certificate.
  [[nodiscard]] const retention_solution& solution() const noexcept { return plan_; }

 private:
  /// Reads the record, and chooses the chunks that stay.
  /// @return   false where no choice is needed, or none fits
  [[nodiscard]] bool solve(const retention_request& request)
  {
    const access_record& record = request.record;
    plan_ = {};
    if (record.empty() || !leased_.read(record, request.device, request.frame)) return false;
    uses_.read(record, request.chunk_of_slot, static_cast<std::uint32_t>(request.chunks.size()), request.live);
    sizes_.clear();
    for (const chunk& chunk_state : request.chunks) sizes_.push_back(chunk_state.frames * request.frame.count());
    room_.clear();
    for (std::uint32_t now = 0; now < record.size(); ++now)
      room_.push_back(leased_.frames_below_leases(now) * request.frame.count());
    host_copies_.assign(record.size(), room_for_host_copies(request));
    try {
      plan_ = plan_retention({sizes_, uses_.uses(), room_, host_copies_, true});
    } catch (const out_of_memory&) {  // a chunk would have to lie between leases, or the host copies have no room
      return false;
    }
    stays_ = plan_.retained;
    solved_bytes_ = plan_.moved_bytes;
    return true;
  }

  /// Bytes of the host that no lease takes. Two kinds of chunks need no host copy: gathered chunks, and chunks that
  /// never hold bytes.
  [[nodiscard]] std::uint64_t room_for_host_copies(const retention_request& request)
  {
    const std::uint64_t leased = most_leased(request.record, tier::host).count();
    std::uint64_t room =
        (request.host.count() - std::min(request.host.count(), leased)) / request.frame.count() * request.frame.count();
    is_used_.assign(sizes_.size(), 0);
    for (const retention_use& use : uses_.uses()) is_used_[use.chunk] = 1;
    for (std::size_t chunk = 0; chunk < sizes_.size(); ++chunk)
      if (request.chunks[chunk].is_gathered() || (is_used_[chunk] == 0 && request.chunks[chunk].live == 0))
        room += sizes_[chunk];
    return room;
  }

  lookahead ahead_;
  lease_usage leased_;
  record_uses uses_;
  early_loads early_;
  stay_frames frames_;
  retention_solution plan_;
  sequence<std::uint8_t> stays_;  // as the solution has them, before some are given up for their frames
  std::uint64_t solved_bytes_ = 0;
  sequence<std::uint64_t> sizes_;
  sequence<std::uint64_t> room_;
  sequence<std::uint64_t> host_copies_;
  sequence<std::uint8_t> is_used_;
};

static_assert(retaining_transfer<planned> && early_loading_transfer<planned>);

}  // namespace transfer

}  // namespace chunkmem::inline v0
