// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// lookahead, which is the default, and no_prefetch; any_transfer is chosen at run time.

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
/// A write-back moves forward in the same way, to the first use that reads what was written last.
///
/// Victims and frames stay those of demand paging, so `lookahead` never moves more bytes. Where demand paging ends each
/// iteration in another residency, an engine soon accepts at most one more copied chunk for a plan that ends where it
/// began. Poor where the host is nearly full: decisions then depend on each other and stay in place. Cost: O(accesses +
/// moves) for each plan; nothing while a plan is followed.
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
    chunk_final_.assign(input.chunks, {});
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
      const access_entry& entry = input.record.entries()[releases[ended].access_index];
      if (entry.slot == access_record::never) continue;
      const std::uint32_t chunk = input.chunk_of_slot[entry.slot];
      chunk_ready_[chunk] = now;
      final_bytes& bytes_of_chunk = chunk_final_[chunk];
      if (--bytes_of_chunk.pins == 0 && !bytes_of_chunk.is_read) bytes_of_chunk.from = now;
    }
  }

  /// A chunk may move only after the entry that uses it.
  void pass_entry(const schedule_input& input, std::uint32_t now)
  {
    const access_entry& entry = input.record.entries()[now];
    if (entry.slot == access_record::never) return;
    const std::uint32_t chunk = input.chunk_of_slot[entry.slot];
    chunk_ready_[chunk] = now + 1;
    final_bytes& bytes_of_chunk = chunk_final_[chunk];
    if (!is_access(entry.kind) || writes(access_of(entry.kind))) {
      bytes_of_chunk.from = now + 1;
      bytes_of_chunk.is_read = false;
    } else if (bytes_of_chunk.pins == 0 && !bytes_of_chunk.is_read) {
      bytes_of_chunk.from = now;
      bytes_of_chunk.is_read = true;
    }
    if (is_access(entry.kind)) ++bytes_of_chunk.pins;
  }

  void add(const schedule_input& input, const move& wanted, std::vector<move>& actions)
  {
    if (wanted.kind == move_kind::vacate) return mark_frames(wanted, wanted.access_index);
    move action = wanted;
    if (input.may_move_early) action.access_index = earliest(wanted);
    action.order = static_cast<std::uint32_t>(actions.size());
    if (wanted.kind == move_kind::claim || wanted.kind == move_kind::lease) action.order |= after_copies;
    actions.push_back(action);
    if (wanted.chunk != UINT32_MAX) {
      chunk_ready_[wanted.chunk] = std::max(chunk_ready_[wanted.chunk], action.access_index);
      chunk_final_[wanted.chunk].from = std::max(chunk_final_[wanted.chunk].from, action.access_index);
    }
    if (wanted.kind == move_kind::evict) mark_frames(wanted, action.access_index);
  }

  [[nodiscard]] std::uint32_t earliest(const move& wanted) const
  {
    if (wanted.kind == move_kind::claim || wanted.kind == move_kind::lease) return wanted.access_index;
    std::uint32_t start = wanted.access_index > window ? wanted.access_index - window : 0;
    // after the first read the chunk may have pins again: then it is copied after the last one ends
    const std::uint32_t final_from = chunk_final_[wanted.chunk].from;
    start = wanted.kind == move_kind::write_back && final_from >= start ? final_from
                                                                        : std::max(start, chunk_ready_[wanted.chunk]);
    if (wanted.kind == move_kind::load)
      for (std::uint64_t frame = wanted.place; frame < wanted.place + wanted.frames; ++frame)
        start = std::max(start, frame_ready_[frame]);
    return std::min(start, wanted.access_index);
  }

  void mark_frames(const move& gone, std::uint32_t from)
  {
    for (std::uint64_t frame = gone.place; frame < gone.place + gone.frames; ++frame) frame_ready_[frame] = from;
  }

  /// Within an access, claims and leases come last, so that a failed copy before them destroys no bytes.
  static constexpr std::uint32_t after_copies = std::uint32_t{1} << 31;

  std::vector<std::uint32_t> chunk_ready_;  // from when a chunk may move: after its last use or move
  /// From when a chunk has the bytes that a write-back copies, and no pins.
  struct final_bytes {
    std::uint32_t from = 0;
    std::uint32_t pins = 0;
    bool is_read = false;  ///< `from` is the first read: a copy from there on waits for no more than that read does
  };
  std::vector<final_bytes> chunk_final_;
  std::vector<std::uint32_t> frame_ready_;  // from when a frame is free
};

static_assert(transfer_policy<lookahead>);

/// Demand paging: loads a chunk when it is acquired, and evicts when there is no room.
///
///     manager<Backend, transfer::no_prefetch> m{memory, options};
///
/// Good as a baseline, and for programs whose iterations never repeat. Otherwise poor: the program waits for every
/// load. Cost: none.
struct no_prefetch {
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "no_prefetch";
  static constexpr bool plans = false;

  void schedule(const schedule_input&, std::vector<move>& actions) const noexcept { actions.clear(); }
};

static_assert(transfer_policy<no_prefetch>);

/// One transfer policy out of a list, chosen at run time.
///
///     using choice = transfer::any_transfer<transfer::lookahead, transfer::no_prefetch>;
///     manager<Backend, choice> m{memory, {}, choice{"no_prefetch"}};
///
/// The type of the manager decides whether iterations are planned. So a list with a policy that plans is always
/// planned. A chosen policy that plans nothing then plans demand paging: each move at the access that needs it. This
/// moves the same bytes as demand paging and hides none of them. It costs a replay for each new start of an iteration.
/// Good and poor: see policy_choice.
template <transfer_policy... Policies>
class any_transfer : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_transfer";
  static constexpr bool plans = (Policies::plans || ...);
  using policy_choice<Policies...>::policy_choice;

  void schedule(const schedule_input& input, std::vector<move>& actions)
  {
    this->ask([&]<class Chosen>(Chosen& chosen) {
      if constexpr (Chosen::plans || !plans)
        chosen.schedule(input, actions);
      else
        stay_in_place(input, actions);
    });
  }

  /// The early loads of a stored plan, by the policy of the list that finds them.
  [[nodiscard]] static std::vector<early_load> early_of(const access_record& record,
                                                        std::span<const std::uint32_t> chunk_of_slot,
                                                        const iteration_plan& plan, bytes device, bytes frame)
    requires(early_loading_transfer<Policies> || ...)
  {
    std::vector<early_load> early;
    const auto ask = [&]<class Policy>() {
      if constexpr (early_loading_transfer<Policy>)
        early = Policy::early_of(record, chunk_of_slot, plan, device, frame);
    };
    (ask.template operator()<Policies>(), ...);
    return early;
  }

  /// The answer of the chosen policy; no plan where the policy decides nothing.
  [[nodiscard]] iteration_plan retain(const retention_request& request)
    requires(retaining_transfer<Policies> || ...)
  {
    iteration_plan answer;
    this->ask([&]<class Chosen>(Chosen& chosen) {
      if constexpr (retaining_transfer<Chosen>) answer = chosen.retain(request);
    });
    return answer;
  }

 private:
  static void stay_in_place(const schedule_input& input, std::vector<move>& actions)
  {
    actions.clear();
    for (const move& wanted : input.demand)
      if (wanted.kind != move_kind::vacate) actions.push_back(wanted);
  }
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
