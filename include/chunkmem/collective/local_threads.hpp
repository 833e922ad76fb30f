// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace collective {

namespace detail {

/// One queued operation of one rank: meets the others, then moves bytes between their memories and its own.
struct thread_work {
  std::shared_ptr<thread_rendezvous> rendezvous;  // so that work may outlive its communicator
  std::byte* whole = nullptr;
  rendezvous_request mine;
  std::uint32_t rank = 0;

  void operator()() const noexcept
  {
    if (!rendezvous->meet(rendezvous_lane::agents, rank, mine) || mine.asked.size == 0) return;
    const operation what = mine.asked.what;
    if (what == operation::all_gather) gather();
    if (what == operation::reduce_scatter || what == operation::all_reduce) add();
    if (what == operation::broadcast || what == operation::send) fetch(mine.asked.root);
    if (what == operation::all_reduce) {
      rendezvous->settle(rendezvous_lane::agents, rank,
                         false);  // until then others read the bytes that are replaced below
      gather();
    }
    rendezvous->settle(rendezvous_lane::agents, rank, true);
  }

 private:
  [[nodiscard]] shares parts() const noexcept { return {mine.asked.size, mine.each, rendezvous->ranks()}; }
  [[nodiscard]] const std::byte* place_of(std::uint32_t other) const noexcept
  {
    return rendezvous->place_of(rendezvous_lane::agents, other);
  }

  void gather() const noexcept
  {
    for (std::uint32_t other = 0; other < rendezvous->ranks(); ++other)
      if (const std::uint64_t size = parts().size(other); other != rank && size != 0)
        std::memcpy(whole + parts().begin(other), place_of(other) + parts().begin(other), size);
  }
  void add() const noexcept
  {
    const std::uint64_t begin = parts().begin(rank);
    const std::byte** const sources = rendezvous->sources_of(rank);
    for (std::uint32_t other = 0; other < rendezvous->ranks(); ++other) sources[other] = place_of(other) + begin;
    add_in_order(whole + begin, {sources, rendezvous->ranks()}, bytes{parts().size(rank)},
                 {.type = mine.asked.type, .scale = bits_as<float>(mine.asked.scale)});
  }
  void fetch(std::uint32_t root) const noexcept
  {
    if (root != rank) std::memcpy(whole, place_of(root), mine.asked.size);
  }
};

}  // namespace detail

/// One end of a group whose ranks are threads of one process: bytes go straight from one rank's memory to another's.
///
/// Good for trainers of several ranks on one machine, and for tests of ranks: real concurrency, sums in order of ranks,
/// no library. Each rank has its own backend, whose bytes the host can reach; the agents may be threads or the caller.
/// Three things hold beyond the laws of a communicator:
/// - An operation takes place on every rank that takes part or on none, also if something fails meanwhile. So an agent
///   that finished without an error has the right bytes.
/// - The deadline limits the wait for other ranks to arrive. Once all are there, all their bytes are moved.
/// - It may be destroyed while its own agent has queued work: that work is still done with the other ranks. A rank that
///   waits for more than that work gets `peer_lost`.
///
/// Cost: each byte that a rank gets is read once from its owner; two or three sleeps of each agent for an operation.
/// The bytes of a sum are read once from each rank. Nothing is allocated after construction.
///
/// Use:
///
///     const collective::thread_group group{4};                        // once for all ranks
///     collective::local_threads ranks{group, rank_id{rank}};          // on the thread of each rank
///     cm::sharded_model<memory_type, collective::local_threads> m{memory, ranks, options};
///
/// @threads   one caller at a time; `check` and `revoke` any
class local_threads {
 public:
  using policy_kind = communicator_kind;
  static constexpr std::string_view name = "local_threads";

  /// @throws usage_error   the group has no such rank, or the rank has joined before
  local_threads(const thread_group& group, rank_id rank) : rendezvous_{group.rendezvous()}, rank_{rank}
  {
    rendezvous_->take(index_of(rank));
  }
  local_threads(const local_threads&) = delete;
  local_threads& operator=(const local_threads&) = delete;
  ~local_threads() { rendezvous_->leave(index_of(rank_), given_); }

  [[nodiscard]] rank_id rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return rendezvous_->ranks(); }
  /// Sets the names of the ranks in errors of this group. Any rank may set them; the first names stay.
  void call_members(const member_names& names) { rendezvous_->call_members(names); }
  void tell_rank(error_text& text, std::uint32_t rank) const noexcept { rendezvous_->tell_rank(text, rank); }
  void tell_group(error_text& text) const noexcept { rendezvous_->tell_group(text); }

  /// @throws usage_error   shards of another group, no memory, or a forked child; nothing was enqueued. The same for
  ///   the other calls below
  /// @throws comm_error    the group failed before: the first cause. The same for the other calls below
  template <stream_backend Backend>
  void all_gather(Backend& backend, agent stream, std::byte* whole, const shares& parts, std::uint32_t label)
  {
    require(parts);
    give(backend, stream, whole, {.what = operation::all_gather, .size = parts.whole, .label = label}, parts.each);
  }
  /// @throws usage_error   elements that cannot be summed, or shards that do not end at whole ones
  template <stream_backend Backend>
  void reduce_scatter(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how,
                      std::uint32_t label)
  {
    give_sum(operation::reduce_scatter, backend, stream, whole, parts, how, label);
  }
  /// @throws usage_error   elements that cannot be summed, or shards that do not end at whole ones
  template <stream_backend Backend>
  void all_reduce(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how, std::uint32_t label)
  {
    give_sum(operation::all_reduce, backend, stream, whole, parts, how, label);
  }

  /// @throws usage_error   no such rank
  template <stream_backend Backend>
  void broadcast(Backend& backend, agent stream, std::byte* place, bytes size, rank_id root, std::uint32_t label)
  {
    require_other(root, false);
    give(backend, stream, place,
         {.what = operation::broadcast, .size = size.count(), .root = index_of(root), .label = label});
  }
  /// @throws usage_error   no such rank, or itself
  template <stream_backend Backend>
  void send(Backend& backend, agent stream, std::byte* place, bytes size, rank_id to, std::uint32_t label)
  {
    require_other(to, true);
    give(backend, stream, place,
         {.what = operation::send, .size = size.count(), .root = index_of(rank_), .label = label}, 0, to);
  }
  /// @throws usage_error   no such rank, or itself
  template <stream_backend Backend>
  void receive(Backend& backend, agent stream, std::byte* place, bytes size, rank_id from, std::uint32_t label)
  {
    require_other(from, true);
    give(backend, stream, place,
         {.what = operation::send, .size = size.count(), .root = index_of(from), .label = label}, 0, from);
  }
  template <stream_backend Backend>
  void barrier(Backend& backend, agent stream, std::uint32_t label)
  {
    give(backend, stream, nullptr, {.what = operation::barrier, .label = label});
  }

  /// `mine` and `all` may not overlap.
  /// @throws usage_error   the length of `all` is not ranks times that of `mine`; a forked child
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    if (all.size() != mine.size() * ranks())
      throw usage_error{"words of all ranks are not as many as ranks times words of one"};
    rendezvous_->expect_own_process();
    check();
    const rendezvous_request request{
        .asked = {.what = operation::exchange, .type = dtype::int64, .size = mine.size_bytes()},
        .place = reinterpret_cast<const std::byte*>(mine.data())};
    if (!rendezvous_->meet(rendezvous_lane::callers, index_of(rank_), request)) return check();
    if (mine.empty()) return;
    for (std::uint32_t other = 0; other < ranks(); ++other)
      std::memcpy(all.data() + other * mine.size(), rendezvous_->place_of(rendezvous_lane::callers, other),
                  mine.size_bytes());
    rendezvous_->settle(rendezvous_lane::callers, index_of(rank_), true);
  }

  /// @throws comm_error   why the group failed, if it has
  void check() const { rendezvous_->check(); }
  void revoke() noexcept { rendezvous_->revoke(index_of(rank_)); }

 private:
  template <stream_backend Backend>
  void give_sum(operation what, Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how,
                std::uint32_t label)
  {
    require(parts);
    require_summable(how, parts.whole);
    require_summable(how, parts.each);
    give(backend, stream, whole,
         {.what = what,
          .type = how.type,
          .size = parts.whole,
          .label = label,
          .scale = bits_as<std::uint32_t>(how.scale)},
         parts.each);
  }

  template <stream_backend Backend>
  void give(Backend& backend, agent stream, std::byte* place, const call& asked, std::uint64_t each = 0,
            rank_id other = rank_id::none)
  {
    static_assert(Backend::host_addressable,
                  "chunkmem: ranks that are threads reach each other's bytes by the host: use a backend "
                  "whose memory the host can reach, such as host_arena, or another communicator");
    if (place == nullptr && asked.size != 0)
      throw usage_error{error_text{} << "chunkmem: ranks move " << asked.size
                                     << " B at a null address (pass memory that allocate() gave)"};
    rendezvous_->expect_own_process();
    check();
    const rendezvous_request mine{.asked = asked, .each = each, .place = place, .other = other};
    backend.launch(stream, detail::thread_work{rendezvous_, place, mine, index_of(rank_)});
    ++given_;
  }

  void require(const shares& parts) const
  {
    if (parts.ranks != ranks() || parts.begin(parts.ranks) != parts.whole)
      throw usage_error{error_text{} << "chunkmem: shares of " << parts.each << " B for " << parts.ranks << " ranks of "
                                     << parts.whole << " B were given to a group of " << ranks()
                                     << " (make them by shares::of for it)"};
  }
  void require_other(rank_id other, bool is_peer) const
  {
    if (index_of(other) < ranks() && !(is_peer && other == rank_)) return;
    throw usage_error{error_text{} << "chunkmem: rank " << index_of(rank_) << " of " << ranks()
                                   << " moves bytes from or to rank " << index_of(other)
                                   << " (name one that is there; bytes are sent to others)"};
  }

  std::shared_ptr<thread_rendezvous> rendezvous_;
  rank_id rank_;
  std::uint64_t given_ = 0;  ///< to agents
};

}  // namespace collective

}  // namespace chunkmem::inline v0
