// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/mpi_group.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/collective/mpi_work.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/core/policy.hpp>

#include <mpi.h>
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// Deadline and memory of an MPI group.
///
///     mpi ranks{session, MPI_COMM_WORLD, {.deadline = std::chrono::minutes{2}}};
struct mpi_options {
  std::chrono::milliseconds deadline{std::chrono::minutes{10}};  ///< of each wait for another rank
  /// room for the parts that other ranks give to a sum, of all of them together
  bytes staging{std::uint64_t{4} << 20U};
  bytes largest_message{std::uint64_t{1} << 30U};  ///< longer ones go in pieces; MPI counts with an int
};

/// Ranks that are processes of an MPI program; adopts the user's MPI_Comm, which stays free for the user's own
/// messages.
///
/// Good over shared memory, and where MPI drives the network. The bytes must be host memory. Ranks agree on a call
/// before any byte moves (16 bytes, ceil(log2 ranks) rounds), unless the caller says that the call is agreed already.
/// MPI's fault tolerance is not needed: every wait polls with a deadline, and the first rank to fail tells the others.
///
/// Cost: bytes as in the formulas of ring algorithms, (ranks - 1) / ranks of the run in each direction, twice for an
/// all_reduce; each rank sends its shard to all other ranks concurrently. The first sum allocates the room for sums. No
/// other call allocates.
///
/// Destroying it waits for its work in agents, and tells the other ranks. The session frees its communicators once all
/// ranks have left, and waits for that only before it ends MPI. After a failure:
/// - Nothing is waited for and nothing is freed. Memory that MPI may still read or write (three communicators, the room
///   for sums) is leaked on purpose.
/// - Receives into the user's memory are cancelled. A send, and a receive that MPI had begun to fill, may still use
///   that memory while this process makes MPI calls. A `host_arena` then keeps its memory to the end of the process,
///   and a line on the standard error says how much. With a backend of your own without `held()`, end the process, or
///   keep that memory.
///
/// Use:
///
///     collective::mpi_session session;                       // starts MPI, unless the program has
///     collective::mpi ranks{session, MPI_COMM_WORLD};
///     cm::sharded_model<memory_type, collective::mpi> m{memory, ranks, options};
///
/// @threads   one caller at a time; `check` and `revoke` any
class mpi {
 public:
  using policy_kind = communicator_kind;
  static constexpr std::string_view name = "mpi";

  /// Collective over `users`: every rank makes one, with the same options.
  /// @throws config_error   no deadline, or sizes that messages cannot have
  /// @throws comm_error     another rank has other options, or did not come before the deadline
  mpi(mpi_session& session, MPI_Comm users, const mpi_options& options = {}) : session_{&session}
  {
    require(options);
    session.look_back();
    auto made = std::make_unique<room>(session, users, options);
    try {
      made->words.agree({.what = shake_hands(options), .of = part::words});
    } catch (const comm_error& error) {
      (void)made->words.cancel();
      made->group.fail(error);
      static_cast<void>(made.release());
      throw;
    }
    state_ = std::move(made);
  }
  mpi(const mpi&) = delete;
  mpi& operator=(const mpi&) = delete;
  /// Leaves all to the parent in a forked child: MPI does not work there.
  ~mpi()
  {
    if (!made_in_.is_here()) {
      static_cast<void>(state_.release());
      return;
    }
    while (state_->work.is_expected()) std::this_thread::sleep_for(std::chrono::microseconds{50});
    if (!state_->group.has_failed()) {
      state_->group.leave();
      session_->keep(std::move(state_));
    } else {
      static_cast<void>(state_.release());
    }
  }

  [[nodiscard]] rank_id rank() const noexcept { return rank_id{state_->group.rank()}; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return state_->group.ranks(); }
  /// Sets the names of ranks in this rank's errors, before its first operation. Ranks of a part of the job are called
  /// by their number in MPI_COMM_WORLD as well.
  void call_members(const member_names& names) { state_->group.call_members(names); }
  void tell_rank(error_text& text, std::uint32_t rank) const noexcept { state_->group.names().tell_rank(text, rank); }
  void tell_group(error_text& text) const noexcept { state_->group.names().tell_group(text, ranks()); }

  /// With `true`, the next calls were agreed on before, such as a plan that all ranks have: they do not agree one by
  /// one, until `false`. Pairs, barriers and exchanges agree in any case. To find a mismatch, compare `rolled` of all
  /// ranks, for example once in each step; bytes may have changed by then. Every rank makes this call at the same place
  /// in its sequence of calls.
  void agreed(bool yes) noexcept { is_agreed_ = yes; }

  /// A fingerprint of all calls of the group so far.
  [[nodiscard]] std::uint64_t rolled() const noexcept { return rolled_.value(); }

  /// @throws usage_error   the shards are not for these ranks; the same for the other calls below
  /// @throws comm_error    the group has ended; the same for the other calls below
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void all_gather(Backend& backend, agent stream, std::byte* whole, const shares& parts, std::uint32_t label)
  {
    require(parts);
    give(backend, stream, whole, parts.each, {.what = operation::all_gather, .size = parts.whole, .label = label});
  }
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void reduce_scatter(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how,
                      std::uint32_t label)
  {
    add_up(backend, stream, operation::reduce_scatter, whole, parts, how, label);
  }
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void all_reduce(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how, std::uint32_t label)
  {
    add_up(backend, stream, operation::all_reduce, whole, parts, how, label);
  }

  /// @throws usage_error   there is no such rank; the same for the other calls below
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void broadcast(Backend& backend, agent stream, std::byte* place, bytes size, rank_id root, std::uint32_t label)
  {
    require(root);
    give(backend, stream, place, 0,
         {.what = operation::broadcast, .size = size.count(), .root = index_of(root), .label = label});
  }
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void send(Backend& backend, agent stream, std::byte* place, bytes size, rank_id to, std::uint32_t label)
  {
    require_other(to);
    give_pair(backend, stream, place, index_of(to),
              {.what = operation::send, .size = size.count(), .root = index_of(rank()), .label = label});
  }
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void receive(Backend& backend, agent stream, std::byte* place, bytes size, rank_id from, std::uint32_t label)
  {
    require_other(from);
    give_pair(backend, stream, place, index_of(from),
              {.what = operation::send, .size = size.count(), .root = index_of(from), .label = label});
  }
  template <stream_backend Backend>
    requires(Backend::host_addressable)
  void barrier(Backend& backend, agent stream, std::uint32_t label)
  {
    give(backend, stream, nullptr, 0, {.what = operation::barrier, .label = label});
  }

  /// @throws usage_error   the length of `all` is not that of all ranks' words
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    check();
    if (all.size() != mine.size() * ranks())
      throw usage_error{"words of all ranks are not as many as ranks times words of one"};
    const attempt this_attempt{
        .what = {.what = operation::exchange, .size = mine.size_bytes()}, .of = part::words, .sequence = ++exchanges_};
    try {
      state_->words.agree(this_attempt);
      const std::span<const std::uint64_t> found = state_->words.gather(this_attempt, mine);
      for (std::uint32_t step = 0; step < ranks(); ++step)
        std::ranges::copy(found.subspan(step * mine.size(), mine.size()),
                          all.subspan((index_of(rank()) + step) % ranks() * mine.size(), mine.size()).begin());
      state_->group.finish(this_attempt);
    } catch (const comm_error& error) {
      (void)state_->words.cancel();  // their memory stays with the room
      state_->group.fail(error);
      state_->group.look();
    }
  }
  /// @throws comm_error   this rank failed, or another one said so; usage_error   this is a forked child
  void check()
  {
    made_in_.expect_here("a communicator of MPI");
    state_->group.look();
  }
  void revoke() noexcept
  {
    if (!made_in_.is_here()) return;
    error_text text;
    tell_rank(text << "chunkmem: ", index_of(rank()));
    tell_group(text << " ended its ");
    state_->group.fail(
        comm_error{text << " (start its ranks again)", {.failure = comm_failure::revoked, .rank = index_of(rank())}});
  }

 private:
  using attempt = mpi_group::attempt;
  using part = mpi_group::part;

  // All memory that MPI may still use after a failure, so that it can be leaked as one.
  struct room : mpi_session::left_group {
    room(mpi_session& session, MPI_Comm users, const mpi_options& options)
        : group{session, users, options.deadline},
          words{group},
          work{group, options.staging, options.largest_message},
          pairs(group.ranks())
    {
    }

    [[nodiscard]] left_group::state look_back() noexcept override { return group.look_back(); }

    mpi_group group;
    mpi_lane words;
    mpi_work work;
    std::vector<std::uint64_t> pairs;  // operations with each other rank so far
  };

  template <class Backend>
  void add_up(Backend& backend, agent stream, operation what, std::byte* whole, const shares& parts, sum how,
              std::uint32_t label)
  {
    require(parts);
    require_summable(how, parts.whole);
    state_->work.prepare_sums();
    give(backend, stream, whole, parts.each,
         {.what = what,
          .type = how.type,
          .size = parts.whole,
          .label = label,
          .scale = std::bit_cast<std::uint32_t>(how.scale)});
  }

  template <class Backend>
  void give(Backend& backend, agent stream, std::byte* place, std::uint64_t each, const call& what)
  {
    check();
    launch(backend, stream,
           {.at = {.what = what, .each = each, .sequence = operations_ + 1},
            .place = place,
            .agrees = !is_agreed_ || what.what == operation::barrier});
    ++operations_;
    rolled_.add(what);
    rolled_.add(each);
  }
  template <class Backend>
  void give_pair(Backend& backend, agent stream, std::byte* place, std::uint32_t peer, const call& what)
  {
    check();
    std::uint64_t& count = state_->pairs[peer];
    launch(backend, stream,
           {.at = {.what = what, .of = part::pair, .sequence = count + 1, .peer = peer, .group_sequence = operations_},
            .place = place});
    ++count;
  }
  template <class Backend>
  void launch(Backend& backend, agent stream, const mpi_work::job& job)
  {
    if (job.place == nullptr && job.at.what.size != 0)
      throw usage_error{"ranks cannot move bytes at a null address (give an address)"};
    if constexpr (requires { state_->group.uses(backend.held()); }) state_->group.uses(backend.held());
    state_->work.expect();
    try {
      backend.launch(stream, [work = &state_->work, job]() noexcept { work->run(job); });
    } catch (...) {
      state_->work.expect_no_more();
      throw;
    }
  }

  static void require(const mpi_options& options)
  {
    const std::uint64_t largest = options.largest_message.count();
    if (options.deadline.count() <= 0)
      throw config_error{"a group of MPI ranks without a deadline (give one above 0 ms)"};
    if (largest == 0 || largest % tensor_alignment.count() != 0 || largest > INT32_MAX)
      throw config_error{error_text{} << "chunkmem: messages of MPI cannot be of " << largest
                                      << " B (give a multiple of " << tensor_alignment.count() << " B below 2 GiB)"};
  }
  void require(const shares& parts) const
  {
    if (parts.ranks != ranks() || parts.end(ranks() - 1) != parts.whole || parts.each % tensor_alignment.count() != 0)
      throw usage_error{error_text{} << "chunkmem: shares of " << parts.each << " B for " << parts.ranks
                                     << " ranks do not divide " << parts.whole << " B over a group of " << ranks()
                                     << " (make them with shares::of)"};
  }
  void require(rank_id root) const
  {
    if (index_of(root) >= ranks())
      throw usage_error{error_text{} << "chunkmem: there is no rank " << index_of(root) << " in a group of " << ranks()
                                     << " (they are counted from 0)"};
  }
  void require_other(rank_id other) const
  {
    require(other);
    if (other == rank()) throw usage_error{"a rank sends bytes to itself (copy them)"};
  }
  /// Options that have to be the same everywhere, as a call.
  [[nodiscard]] static call shake_hands(const mpi_options& options) noexcept
  {
    const auto deadline = static_cast<std::uint64_t>(options.deadline.count());
    return {.what = operation::exchange,
            .size = options.staging.count(),
            .root = static_cast<std::uint32_t>(options.largest_message.count()),
            .label = static_cast<std::uint32_t>(deadline)};
  }

  mpi_session* session_;
  std::unique_ptr<room> state_;
  bool is_agreed_ = false;
  fingerprint rolled_;
  std::uint64_t operations_ = 0;
  std::uint64_t exchanges_ = 0;
  own_process made_in_;
};

static_assert(communicator<mpi, backend::host_arena>);

}  // namespace collective

}  // namespace chunkmem::inline v0
