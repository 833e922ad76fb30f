// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/mpi_group.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <mpi.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// Messages under way to and from other ranks, waited for together.
///
///     mpi_transfers transfers{2};
///     transfers.receive(group, 5, last, place, size);
///     transfers.send(group, 5, next, own, size);
///     while (!transfers.are_done()) std::this_thread::yield();
///
/// Point to point only: MPI cannot cancel its collective operations, and a receive that is not cancelled could still
/// write into memory that its owner has freed. Cost: a test checks all messages. Only a call with more messages than
/// ever before allocates.
///
/// @threads   one caller at a time
class mpi_transfers {
 public:
  /// @param names   of the other ranks, for errors; outlives this
  explicit mpi_transfers(std::size_t expected, const member_names* names = nullptr) : names_{names}
  {
    requests_.reserve(expected);
    statuses_.reserve(expected);
    ends_.reserve(expected);
  }

  /// @throws comm_error   MPI refused the message; @pre size fits an int
  void send(MPI_Comm group, int tag, std::uint32_t to, const std::byte* place, std::uint64_t size)
  {
    MPI_Request& fresh = add({to, false});
    const int answer = MPI_Isend(place, static_cast<int>(size), MPI_BYTE, static_cast<int>(to), tag, group, &fresh);
    if (answer != MPI_SUCCESS) throw error("sending", answer, to);
  }
  /// @throws comm_error   MPI refused the message; @pre size fits an int
  void receive(MPI_Comm group, int tag, std::uint32_t from, std::byte* place, std::uint64_t size)
  {
    MPI_Request& fresh = add({from, true});
    const int answer = MPI_Irecv(place, static_cast<int>(size), MPI_BYTE, static_cast<int>(from), tag, group, &fresh);
    if (answer != MPI_SUCCESS) throw error("receiving", answer, from);
  }

  /// Progresses the messages. Where all have ended, they are forgotten. @throws comm_error   a message failed
  [[nodiscard]] bool are_done()
  {
    if (requests_.empty()) return true;
    int done = 0;
    const int answer = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    if (answer != MPI_SUCCESS) refuse(answer);
    if (done == 0) return false;
    forget();
    return true;
  }

  /// The rank of the first message that has not ended; UINT32_MAX: there is none, or MPI does not say.
  [[nodiscard]] std::uint32_t awaited() noexcept
  {
    for (std::size_t index = 0; index < requests_.size(); ++index) {
      int done = 0;
      if (MPI_Test(&requests_[index], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) return ends_[index].rank;
    }
    return UINT32_MAX;
  }

  /// Cancels receives. Sends stay with MPI until they are over. Tries as often as asked.
  /// @return   whether MPI no longer reads or writes their memory
  [[nodiscard]] bool cancel(unsigned tries) noexcept
  {
    for (std::size_t index = 0; index < requests_.size(); ++index)
      if (ends_[index].receives && requests_[index] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[index]);
    bool is_quiet = false;
    for (unsigned turn = 0; turn < tries && !is_quiet; ++turn) {
      is_quiet = true;
      for (std::size_t index = 0; index < requests_.size(); ++index) {
        int done = 1;
        if (requests_[index] != MPI_REQUEST_NULL) MPI_Test(&requests_[index], &done, MPI_STATUS_IGNORE);
        is_quiet = is_quiet && done != 0;
      }
    }
    return is_quiet;
  }

  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }

 private:
  struct other_end {
    std::uint32_t rank = 0;
    bool receives = false;  // this rank does
  };

  [[nodiscard]] comm_error error(std::string_view asked, int answer, std::uint32_t rank) const noexcept
  {
    return mpi_error(asked, answer, rank, names_ == nullptr ? member_names{} : *names_);
  }

  MPI_Request& add(other_end end)
  {
    statuses_.emplace_back();
    ends_.push_back(end);
    return requests_.emplace_back(MPI_REQUEST_NULL);
  }

  void forget() noexcept
  {
    requests_.clear();
    statuses_.clear();
    ends_.clear();
  }

  [[noreturn]] void refuse(int answer) const
  {
    for (std::size_t index = 0; answer == MPI_ERR_IN_STATUS && index < statuses_.size(); ++index) {
      const int number = statuses_[index].MPI_ERROR;
      if (number != MPI_SUCCESS && number != MPI_ERR_PENDING)
        throw error(ends_[index].receives ? "receiving" : "sending", number, ends_[index].rank);
    }
    throw mpi_error("waiting for messages", answer);
  }

  const member_names* names_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<other_end> ends_;
};

/// The messages of one thread to the other ranks: waits with a deadline, agreement on calls, words of all.
///
///     mpi_lane lane{group};
///     lane.agree(now);
///     lane.receive(now, last, place, size);
///     lane.send(now, next, own, size);
///     lane.wait(now);
///
/// Agreement: each rank sends the least and the greatest fingerprint that it knows to the rank 1, 2, 4, ... further,
/// and receives as much. After ceil(log2 ranks) rounds of 16 bytes every rank knows whether all calls are equal. If
/// they are not, ranks exchange their calls, so that the error can name them (dissemination: Hensgen, Finkel, Manber
/// 1988; words of all: Bruck and others 1997).
///
/// A wait polls MPI: continuously for 10 microseconds, then yielding to other threads, then with sleeps of 50
/// microseconds. Polls without sleep take a processor from the passes that they overlap with. Sleeps of both ends make
/// transfers over shared memory slow, since each poll moves a few fragments. So a wait does not sleep while its bytes
/// may still come at 4 GB/s, and for the lane's patience longer. The patience is 500 microseconds at first. A long wait
/// halves it, down to 10 microseconds, and any other wait adds 20 microseconds. A wait is long if it takes more than
/// 500 microseconds and 10 nanoseconds for each byte: a rank came late, or the link is slow. A message is found at most
/// one sleep late. The deadline starts again with each piece that arrives.
///
/// @threads   one caller at a time
class mpi_lane {
 public:
  using attempt = mpi_group::attempt;

  explicit mpi_lane(mpi_group& group)
      : group_{&group},
        comm_{group.duplicate(group.notices())},
        transfers_{2 * static_cast<std::size_t>(group.ranks()), &group.names()}
  {
  }

  /// Room for a message that is received later in this attempt, or sent; `wait` ends them together.
  void receive(const attempt& this_attempt, std::uint32_t from, std::byte* place, std::uint64_t size)
  {
    if (size == 0) return;
    transfers_.receive(comm_, tag_of(this_attempt), from, place, size);
    under_way_ += size;
  }
  void send(const attempt& this_attempt, std::uint32_t to, const std::byte* place, std::uint64_t size)
  {
    if (size == 0) return;
    transfers_.send(comm_, tag_of(this_attempt), to, place, size);
    under_way_ += size;
  }

  /// @throws comm_error   a rank is lost, said that it failed, or did not come before the deadline
  void wait(const attempt& this_attempt, bool agrees = false)
  {
    const std::chrono::nanoseconds by_size{under_way_ / quick_bytes_per_nanosecond};
    const std::chrono::nanoseconds long_wait = most_patience + under_way_ * slow_byte;
    under_way_ = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::chrono::nanoseconds waited{};
    while (!transfers_.are_done()) {
      waited = std::chrono::steady_clock::now() - begin;
      if (waited < quick_time) continue;
      group_->look(this_attempt, waited);
      if (agrees && this_attempt.of == mpi_group::part::group) look_for_pairs(this_attempt, waited);
      if (waited >= group_->deadline())
        throw group_->error(comm_failure::deadline, this_attempt, waited,
                            this_attempt.of == mpi_group::part::pair ? this_attempt.peer : transfers_.awaited());
      if (waited < patience_ + by_size)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(nap);
    }
    patience_ = waited > long_wait ? std::max(least_patience, patience_ / 2)
                                   : std::min(most_patience, patience_ + more_patience);
  }

  /// Checks that all ranks make the same call, else all get an error. No rank returns before all have come.
  /// @throws comm_error   mismatch, or as `wait`
  void agree(const attempt& this_attempt)
  {
    fingerprint mine;
    for (const std::uint64_t word : packed(this_attempt)) mine.add(word);
    least_ = {mine.value(), ~mine.value()};
    int round = 0;
    for (std::uint32_t distance = 1; distance < ranks(); distance *= 2, ++round) {
      transfers_.receive(comm_, round, before(distance), as_bytes(theirs_), sizeof theirs_);
      transfers_.send(comm_, round, after(distance), as_bytes(least_), sizeof least_);
      wait(this_attempt, true);
      for (std::size_t end = 0; end < 2; ++end) least_[end] = std::min(least_[end], theirs_[end]);
    }
    if (least_[0] != ~least_[1]) tell_apart(this_attempt);
  }

  /// As `agree`, between the two ends of a pair.
  void agree_with_peer(const attempt& this_attempt)
  {
    const int tag = pair_tag(this_attempt.group_sequence);
    pair_mine_ = packed(this_attempt);
    transfers_.receive(comm_, tag, this_attempt.peer, as_bytes(pair_theirs_), sizeof pair_theirs_);
    transfers_.send(comm_, tag, this_attempt.peer, as_bytes(pair_mine_), sizeof pair_mine_);
    wait(this_attempt);
    if (pair_mine_ != pair_theirs_)
      throw mismatch(this_attempt, this_attempt.peer, pair_theirs_, group_->rank(), pair_mine_);
  }

  /// Every rank's words: the words of this rank first, then those of the next rank.
  [[nodiscard]] std::span<const std::uint64_t> gather(const attempt& this_attempt, std::span<const std::uint64_t> mine)
  {
    words_.resize(std::max(words_.size(), mine.size() * ranks()));
    std::copy(mine.begin(), mine.end(), words_.begin());
    const std::uint64_t block = mine.size_bytes();
    int round = 0;
    for (std::uint32_t have = 1; have < ranks(); have *= 2, ++round) {
      const std::uint64_t size = std::min(have, ranks() - have) * block;
      auto* const place = reinterpret_cast<std::byte*>(words_.data());
      transfers_.receive(comm_, gather_tag + round, after(have), place + have * block, size);
      transfers_.send(comm_, gather_tag + round, before(have), place, size);
      wait(this_attempt);
    }
    return {words_.data(), mine.size() * ranks()};
  }

  /// After a failure: cancels receives. Sends stay with MPI. False: MPI may still use the memory of messages.
  [[nodiscard]] bool cancel() noexcept { return transfers_.cancel(1000); }

 private:
  using request_words = std::array<std::uint64_t, 6>;
  static constexpr std::chrono::nanoseconds quick_time{10'000};
  static constexpr std::chrono::nanoseconds least_patience{10'000};
  static constexpr std::chrono::nanoseconds most_patience{500'000};
  static constexpr std::chrono::nanoseconds more_patience{20'000};
  static constexpr std::chrono::nanoseconds nap{50'000};
  static constexpr std::uint64_t quick_bytes_per_nanosecond = 4;
  static constexpr std::chrono::nanoseconds slow_byte{10};
  static constexpr int gather_tag = 32;  // those below: rounds of agreement
  static constexpr int first_pair_tag = 64;
  static constexpr int pair_tags = 4'000;
  static constexpr int first_data_tag = 8'192;
  static constexpr int data_tags = 8'192;  // of the group, then as many of pairs; MPI has 32,767 at least

  [[nodiscard]] std::uint32_t ranks() const noexcept { return group_->ranks(); }
  [[nodiscard]] std::uint32_t after(std::uint32_t distance) const noexcept
  {
    return (group_->rank() + distance) % ranks();
  }
  [[nodiscard]] std::uint32_t before(std::uint32_t distance) const noexcept
  {
    return (group_->rank() + ranks() - distance) % ranks();
  }
  [[nodiscard]] static int pair_tag(std::uint64_t sequence) noexcept
  {
    return first_pair_tag + static_cast<int>(sequence % pair_tags);
  }
  [[nodiscard]] static int tag_of(const attempt& this_attempt) noexcept
  {
    return first_data_tag + (this_attempt.of == mpi_group::part::pair ? data_tags : 0) +
           static_cast<int>(this_attempt.sequence % data_tags);
  }
  template <class Words>
  [[nodiscard]] static std::byte* as_bytes(Words& words) noexcept
  {
    return reinterpret_cast<std::byte*>(words.data());
  }

  [[nodiscard]] static request_words packed(const attempt& this_attempt) noexcept
  {
    const call& it = this_attempt.what;
    return {static_cast<std::uint64_t>(it.what) << 8U | static_cast<std::uint64_t>(it.type),
            it.size,
            std::uint64_t{it.root} << 32U | it.label,
            it.scale,
            this_attempt.sequence,
            this_attempt.each};
  }

  /// Detects a deadlock: a rank that first waits for this one to send or receive never comes to this operation of all.
  void look_for_pairs(const attempt& this_attempt, std::chrono::nanoseconds waited)
  {
    int is_there = 0;
    MPI_Status from;
    detail::require_mpi("looking for messages",
                        MPI_Iprobe(MPI_ANY_SOURCE, pair_tag(this_attempt.sequence - 1), comm_, &is_there, &from));
    if (is_there != 0)
      throw group_->error(comm_failure::mismatch, this_attempt, waited, static_cast<std::uint32_t>(from.MPI_SOURCE));
  }

  [[noreturn]] void tell_apart(const attempt& this_attempt)
  {
    const request_words mine = packed(this_attempt);
    const std::span<const std::uint64_t> all = gather(this_attempt, mine);
    const auto of = [&](std::uint32_t rank) {
      request_words words{};
      std::memcpy(words.data(), &all[(rank + ranks() - group_->rank()) % ranks() * words.size()], sizeof words);
      return words;
    };
    std::uint32_t usual = 0;  // of the calls that most ranks ask for, the first
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      std::uint32_t same = 0;
      for (std::uint32_t other = 0; other < ranks(); ++other) same += of(other) == of(rank) ? 1U : 0U;
      if (same > most) usual = rank;
      most = std::max(most, same);
    }
    std::uint32_t odd = 0;
    while (odd + 1 < ranks() && of(odd) == of(usual)) ++odd;
    throw mismatch(this_attempt, odd, of(odd), usual, of(usual));
  }

  void write(error_text& text, std::uint32_t rank, const request_words& asked) const noexcept
  {
    group_->names().tell_rank(text << ", ", rank);
    text << " for " << name_of(static_cast<operation>(asked[0] >> 8U & 7U)) << " " << asked[4] << " of " << asked[1]
         << " B in shares of " << asked[5] << " B of type " << (asked[0] & 0xffU) << " with root " << (asked[2] >> 32U)
         << ", ";
    group_->names().tell_label(text, static_cast<std::uint32_t>(asked[2]));
    text << ", scale " << asked[3];
  }
  [[nodiscard]] comm_error mismatch(const attempt& this_attempt, std::uint32_t odd, const request_words& its,
                                    std::uint32_t usual, const request_words& others) const noexcept
  {
    error_text text;
    group_->names().tell_rank(text << "chunkmem: " << name_of(this_attempt.what.what) << " on ", group_->rank());
    text << " of " << ranks() << " failed: ranks ask for different things";
    write(text, odd, its);
    write(text, usual, others);
    text << " (give every rank the same calls in the same order)";
    return {text, {.failure = comm_failure::mismatch, .rank = odd, .sequence = this_attempt.sequence}};
  }

  mpi_group* group_;
  MPI_Comm comm_;
  mpi_transfers transfers_;
  std::array<std::uint64_t, 2> least_{}, theirs_{};  // the least fingerprint, and the complement of the greatest
  request_words pair_mine_{}, pair_theirs_{};
  std::vector<std::uint64_t> words_;
  std::uint64_t under_way_ = 0;  // of the next wait [bytes]
  std::chrono::nanoseconds patience_ = most_patience;
};

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

  /// Allocates the room for sums, once.
  /// @throws std::bad_alloc   no memory
  void prepare_sums()
  {
    if (!room_ && group_->ranks() > 1)
      room_ = std::make_unique_for_overwrite<std::byte[]>(piece() * (group_->ranks() - 1));
  }

  /// Counts an operation that an agent will run. Destroying the communicator waits for it.
  void expect() noexcept { expected_.fetch_add(1, std::memory_order_relaxed); }
  void expect_no_more() noexcept { expected_.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool is_expected() const noexcept { return expected_.load(std::memory_order_acquire) != 0; }

  /// Runs the operation, or gives its error to the group. After an error, further operations are skipped.
  void run(const job& it) noexcept
  {
    if (!group_->has_failed()) attempt(it);
    expect_no_more();  // last: this object may be destroyed from here on
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
      if (!lane_.cancel()) group_->keep_memory();
      group_->fail(error);
    } catch (const std::exception&) {  // a list of messages had to grow
      if (!lane_.cancel()) group_->keep_memory();
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
