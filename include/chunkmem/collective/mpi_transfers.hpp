// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/member_names.hpp>
#include <chunkmem/collective/mpi_error.hpp>
#include <chunkmem/core/error.hpp>

#include <mpi.h>
#include <cstddef>
#include <cstdint>
#include <string_view>
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
/// Point to point only: MPI cannot cancel a collective operation of its own, and a receive that is not cancelled could
/// still write into memory that its owner has long taken back. Cost: a test looks at all messages. Only a call with
/// more messages than ever before allocates.
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

  /// @throws comm_error   MPI refused it; @pre size fits an int
  void send(MPI_Comm group, int tag, std::uint32_t to, const std::byte* place, std::uint64_t size)
  {
    MPI_Request& fresh = add({to, false});
    const int answer = MPI_Isend(place, static_cast<int>(size), MPI_BYTE, static_cast<int>(to), tag, group, &fresh);
    if (answer != MPI_SUCCESS) throw error("sending", answer, to);
  }
  /// @throws comm_error   MPI refused it; @pre size fits an int
  void receive(MPI_Comm group, int tag, std::uint32_t from, std::byte* place, std::uint64_t size)
  {
    MPI_Request& fresh = add({from, true});
    const int answer = MPI_Irecv(place, static_cast<int>(size), MPI_BYTE, static_cast<int>(from), tag, group, &fresh);
    if (answer != MPI_SUCCESS) throw error("receiving", answer, from);
  }

  /// Moves the messages on. Where all have ended, they are forgotten. @throws comm_error   one of them failed
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

  /// Cancels receives. Sends stay with MPI. Tries as often as asked.
  /// @return   nothing will be written any more
  bool cancel(unsigned tries) noexcept
  {
    for (std::size_t index = 0; index < requests_.size(); ++index)
      if (ends_[index].receives && requests_[index] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[index]);
    bool is_quiet = false;
    for (unsigned turn = 0; turn < tries && !is_quiet; ++turn) {
      is_quiet = true;
      for (std::size_t index = 0; index < requests_.size(); ++index) {
        int done = 1;
        if (ends_[index].receives && requests_[index] != MPI_REQUEST_NULL)
          MPI_Test(&requests_[index], &done, MPI_STATUS_IGNORE);
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

}  // namespace collective

}  // namespace chunkmem::inline v0
