// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/mpi_error.hpp>
#include <chunkmem/collective/mpi_group.hpp>
#include <chunkmem/collective/mpi_transfers.hpp>
#include <chunkmem/core/error.hpp>

#include <mpi.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// One thread's own way to the other ranks: waits with a deadline, agreement on calls, words of all.
///
///     mpi_lane lane{group};
///     lane.agree(now);
///     lane.receive(now, last, place, size);
///     lane.send(now, next, own, size);
///     lane.wait(now);
///
/// Agreement: each rank sends the least and the greatest fingerprint that it knows to the rank 1, 2, 4, ... further,
/// and receives as much. After ceil(log2 ranks) rounds of 16 bytes every rank knows whether all asked for the same. If
/// they did not, they tell one another their calls, so that the error can name them (dissemination: Hensgen, Finkel,
/// Manber 1988; words of all: Bruck and others 1997). A wait polls MPI, for some microseconds at once, then giving way
/// to other threads, then with sleeps of 50 microseconds: ranks that share a core do not starve one another (4 ranks on
/// 2 cores: an agreement takes 26 us so, 2 ms where they only give way). The deadline starts anew with each piece that
/// arrived.
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
    if (size != 0) transfers_.receive(comm_, tag_of(this_attempt), from, place, size);
  }
  void send(const attempt& this_attempt, std::uint32_t to, const std::byte* place, std::uint64_t size)
  {
    if (size != 0) transfers_.send(comm_, tag_of(this_attempt), to, place, size);
  }

  /// @throws comm_error   a rank is lost, said that it failed, or did not come before the deadline
  void wait(const attempt& this_attempt, bool agrees = false)
  {
    const auto begin = std::chrono::steady_clock::now();
    for (unsigned turn = 0; !transfers_.are_done(); ++turn) {
      if (turn < quick_turns) continue;
      const auto waited = std::chrono::steady_clock::now() - begin;
      group_->look(this_attempt, waited);
      if (agrees && this_attempt.of == mpi_group::part::group) look_for_pairs(this_attempt, waited);
      if (waited >= group_->deadline())
        throw group_->error(comm_failure::deadline, this_attempt, waited,
                            this_attempt.of == mpi_group::part::pair ? this_attempt.peer : transfers_.awaited());
      if (waited < std::chrono::microseconds{500})
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
  }

  /// All ranks ask for the same, or all get an error. No rank returns before all have come.
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

  /// After a failure: cancels receives. Sends stay with MPI.
  void cancel() noexcept { transfers_.cancel(1000); }

 private:
  using request_words = std::array<std::uint64_t, 6>;
  static constexpr unsigned quick_turns = 100;
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

  /// A rank that waits for this one to send or receive, before it will come to this operation of all, never comes.
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
};

}  // namespace collective

}  // namespace chunkmem::inline v0
