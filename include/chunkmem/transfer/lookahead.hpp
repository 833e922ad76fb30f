// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Takes the decisions of demand paging and starts each copy as early as possible. The default.
///
///     manager<Backend, transfer::lookahead> m{memory, options};
///
/// A load moves forward to the latest of three accesses:
/// - the end of the last use of the chunk that leaves its frames;
/// - the last departure or use of the loaded chunk;
/// - `window` accesses before the load is needed.
///
/// Victims and frames stay those of demand paging, so `lookahead` never moves more bytes. Where demand paging ends each
/// iteration in another place, an engine soon gives up at most one chunk of that for a plan that ends where it began.
/// Poor where the host is nearly full: decisions then depend on each other and stay in place.
/// Cost: O(accesses + moves) for each plan; nothing while a plan is followed.
class lookahead {
 public:
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "lookahead";
  static constexpr bool plans = true;

  /// A copy may start this many accesses before it is needed.
  std::uint32_t window = 64;

  void schedule(const schedule_input& input, std::vector<move>& actions)
  {
    actions.clear();
    chunk_ready_.assign(input.chunks, 0);
    frame_ready_.assign(input.device_frames, 0);
    std::size_t next = 0;
    std::size_t ended = 0;
    for (std::uint32_t now = 0; now <= input.record.size(); ++now) {
      pass_releases(input, ended, now);
      for (; next < input.demand.size() && input.demand[next].access_index <= now; ++next)
        add(input, input.demand[next], actions);
      if (now < input.record.size()) pass_entry(input, now);
    }
    sort_records(std::span{actions}, [](const move& left, const move& right) {
      return left.access_index != right.access_index ? left.access_index < right.access_index
                                                     : left.order < right.order;
    });
  }

 private:
  void pass_releases(const schedule_input& input, std::size_t& ended, std::uint32_t now)
  {
    const auto releases = input.record.releases();
    for (; ended < releases.size() && releases[ended].until <= now; ++ended) {
      const std::uint32_t slot = input.record.entries()[releases[ended].access_index].slot;
      if (slot != access_record::never) chunk_ready_[input.chunk_of_slot[slot]] = now;
    }
  }

  /// A chunk may move only after the entry that uses it.
  void pass_entry(const schedule_input& input, std::uint32_t now)
  {
    const std::uint32_t slot = input.record.entries()[now].slot;
    if (slot != access_record::never) chunk_ready_[input.chunk_of_slot[slot]] = now + 1;
  }

  void add(const schedule_input& input, const move& wanted, std::vector<move>& actions)
  {
    if (wanted.kind == move_kind::vacate) return mark_frames(wanted, wanted.access_index);
    move action = wanted;
    if (input.may_move_early) action.access_index = earliest(wanted);
    action.order = static_cast<std::uint32_t>(actions.size());
    if (wanted.kind == move_kind::claim || wanted.kind == move_kind::lease) action.order |= after_copies;
    actions.push_back(action);
    if (wanted.chunk != UINT32_MAX)
      chunk_ready_[wanted.chunk] = std::max(chunk_ready_[wanted.chunk], action.access_index);
    if (wanted.kind == move_kind::evict) mark_frames(wanted, action.access_index);
  }

  [[nodiscard]] std::uint32_t earliest(const move& wanted) const
  {
    if (wanted.kind == move_kind::claim || wanted.kind == move_kind::lease) return wanted.access_index;
    std::uint32_t start = wanted.access_index > window ? wanted.access_index - window : 0;
    start = std::max(start, chunk_ready_[wanted.chunk]);
    if (wanted.kind == move_kind::load)
      for (std::uint64_t frame = wanted.place; frame < wanted.place + wanted.frames; ++frame)
        start = std::max(start, frame_ready_[frame]);
    return std::min(start, wanted.access_index);
  }

  void mark_frames(const move& gone, std::uint32_t from)
  {
    for (std::uint64_t frame = gone.place; frame < gone.place + gone.frames; ++frame) frame_ready_[frame] = from;
  }

  /// Within an access, claims and leases come last: a copy that fails before them has then spoilt nothing.
  static constexpr std::uint32_t after_copies = std::uint32_t{1} << 31;

  std::vector<std::uint32_t> chunk_ready_;  // from when a chunk may move: after its last use or move
  std::vector<std::uint32_t> frame_ready_;  // from when a frame is free
};

static_assert(transfer_policy<lookahead>);

}  // namespace transfer

}  // namespace chunkmem::inline v0
