// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/mpi_group.hpp>
#include <chunkmem/collective/mpi_lane.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// How the bytes of each operation travel. An agent runs this.
///
///     mpi_work work{group, 4_MiB, 64_MiB};
///     work.expect();  // when it is enqueued
///     work.run(job);  // on the agent
///
/// Shares go from each rank straight to every other rank, all at once. A sum takes one piece of each rank's share at a
/// time into the staging room, and adds the pieces in order of ranks. A broadcast goes down a binomial tree. Messages
/// are cut at `largest_message`, since MPI counts with an int.
///
/// @threads   one caller at a time, after `prepare_sums` where there is something to add
class mpi_work {
 public:
  /// One operation, small enough for an agent's queue.
  struct job {
    mpi_group::attempt at;
    std::byte* place = nullptr;
    bool agrees = true;
  };

  mpi_work(mpi_group& group, bytes staging, bytes largest_message)
      : group_{&group},
        lane_{group},
        staging_{staging.count()},
        largest_{largest_message.count()},
        parts_(group.ranks())
  {
  }

  /// The room for sums, once.
  /// @throws std::bad_alloc   there is none
  void prepare_sums()
  {
    if (!room_ && group_->ranks() > 1)
      room_ = std::make_unique_for_overwrite<std::byte[]>(piece() * (group_->ranks() - 1));
  }

  /// Counts an operation that an agent will run. Destroying the communicator waits for it.
  void expect() noexcept { expected_.fetch_add(1, std::memory_order_relaxed); }
  void expect_no_more() noexcept { expected_.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool is_expected() const noexcept { return expected_.load(std::memory_order_acquire) != 0; }

  /// Runs the operation, or leaves the error with the group. After an error nothing is done any more.
  void run(const job& it) noexcept
  {
    if (!group_->has_failed()) attempt(it);
    expect_no_more();  // last: then this may be destroyed
  }

 private:
  static constexpr std::uint64_t least_piece = tensor_alignment.count();

  [[nodiscard]] std::uint32_t rank() const noexcept { return group_->rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return group_->ranks(); }

  void attempt(const job& it) noexcept
  {
    try {
      if (it.at.of == mpi_group::part::pair)
        lane_.agree_with_peer(it.at);
      else if (it.agrees)
        lane_.agree(it.at);
      move(it);
      group_->finish(it.at);
    } catch (const comm_error& error) {
      lane_.cancel();
      group_->fail(error);
    } catch (const std::exception&) {  // a list of messages had to grow
      lane_.cancel();
      group_->fail({error_text{} << "chunkmem: rank " << rank()
                                 << " has no memory for the list of its messages (free some, and start "
                                 << "the ranks again)",
                    {.failure = comm_failure::peer_lost, .rank = rank(), .sequence = it.at.sequence}});
    }
  }

  void move(const job& it)
  {
    const call& what = it.at.what;
    const shares parts{what.size, it.at.each, ranks()};
    const sum how{what.type, std::bit_cast<float>(what.scale)};
    switch (what.what) {
      case operation::all_gather: gather(it, parts); break;
      case operation::reduce_scatter: add(it, parts, how); break;
      case operation::all_reduce:
        add(it, parts, how);
        gather(it, parts);
        break;
      case operation::broadcast: spread(it); break;
      case operation::send: hand_over(it); break;
      default: break;  // a barrier is its agreement
    }
  }

  /// How much of a run lies in the piece that begins at `offset`.
  [[nodiscard]] static std::uint64_t in_piece(std::uint64_t size, std::uint64_t offset, std::uint64_t piece) noexcept
  {
    return offset < size ? std::min(size - offset, piece) : 0;
  }
  /// The size of a piece of one rank's share, so that the pieces of all others find room.
  [[nodiscard]] std::uint64_t piece() const noexcept
  {
    const std::uint64_t fair = std::min(staging_ / std::max(ranks() - 1, 1U), largest_);
    return std::max(fair / least_piece * least_piece, least_piece);
  }

  void gather(const job& it, const shares& parts)
  {
    for (std::uint64_t offset = 0; offset < parts.each; offset += largest_) {
      for (std::uint32_t step = 1; step < ranks(); ++step) {
        const std::uint32_t from = (rank() + ranks() - step) % ranks();
        lane_.receive(it.at, from, it.place + parts.begin(from) + offset, in_piece(parts.size(from), offset, largest_));
      }
      for (std::uint32_t step = 1; step < ranks(); ++step)
        lane_.send(it.at, (rank() + step) % ranks(), it.place + parts.begin(rank()) + offset,
                   in_piece(parts.size(rank()), offset, largest_));
      lane_.wait(it.at);
    }
  }

  void add(const job& it, const shares& parts, sum how)
  {
    std::byte* const own = it.place + parts.begin(rank());
    for (std::uint64_t offset = 0; offset < parts.each; offset += piece()) {
      const std::uint64_t size = in_piece(parts.size(rank()), offset, piece());
      for (std::uint32_t step = 1; step < ranks(); ++step) {
        const std::uint32_t from = (rank() + ranks() - step) % ranks();
        std::byte* const slot = room_.get() + (step - 1) * piece();
        parts_[from] = slot;
        lane_.receive(it.at, from, slot, size);
      }
      for (std::uint32_t step = 1; step < ranks(); ++step) {
        const std::uint32_t to = (rank() + step) % ranks();
        lane_.send(it.at, to, it.place + parts.begin(to) + offset, in_piece(parts.size(to), offset, piece()));
      }
      lane_.wait(it.at);
      parts_[rank()] = own + offset;
      if (size != 0) add_in_order(own + offset, parts_, bytes{size}, how);
    }
  }

  /// Rank r, counted from the root, gets the bytes from r without its lowest bit, and hands them on to r plus each
  /// lower bit.
  void spread(const job& it)
  {
    const std::uint32_t root = it.at.what.root;
    const std::uint32_t mine = (rank() + ranks() - root) % ranks();
    const std::uint32_t lowest = mine == 0 ? std::bit_ceil(ranks()) : mine & (~mine + 1);
    for (std::uint64_t offset = 0; offset < it.at.what.size; offset += largest_) {
      const std::uint64_t size = in_piece(it.at.what.size, offset, largest_);
      if (mine != 0) lane_.receive(it.at, (mine - lowest + root) % ranks(), it.place + offset, size);
      lane_.wait(it.at);
      for (std::uint32_t bit = lowest / 2; bit != 0; bit /= 2)
        if (mine + bit < ranks()) lane_.send(it.at, (mine + bit + root) % ranks(), it.place + offset, size);
      lane_.wait(it.at);
    }
  }

  void hand_over(const job& it)
  {
    for (std::uint64_t offset = 0; offset < it.at.what.size; offset += largest_) {
      const std::uint64_t size = in_piece(it.at.what.size, offset, largest_);
      if (it.at.what.root == rank())
        lane_.send(it.at, it.at.peer, it.place + offset, size);
      else
        lane_.receive(it.at, it.at.peer, it.place + offset, size);
      lane_.wait(it.at);
    }
  }

  mpi_group* group_;
  mpi_lane lane_;
  std::uint64_t staging_;
  std::uint64_t largest_;
  std::atomic<std::uint64_t> expected_{0};  // operations that agents still have
  std::unique_ptr<std::byte[]> room_;
  std::vector<const std::byte*> parts_;  // of a piece, in order of ranks
};

}  // namespace collective

}  // namespace chunkmem::inline v0
