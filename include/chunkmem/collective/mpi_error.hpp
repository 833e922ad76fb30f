// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/member_names.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>

#if !__has_include(<mpi.h>)
#error "chunkmem: ranks over MPI need mpi.h: link chunkmem::mpi, or compile with mpicxx"
#endif
#include <mpi.h>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace collective {

/// The answer of an MPI library as an error, in its own words and with its own number.
///
/// A message that is longer than its receive means that ranks ask for different things. After any other error inside
/// MPI the group cannot go on: the error is `peer_lost`. Cost: one look-up in MPI's table of errors; no allocation of
/// ours.
[[nodiscard]] inline comm_error mpi_error(std::string_view asked, int answer, std::uint32_t rank = UINT32_MAX,
                                          const member_names& names = {}) noexcept
{
  char words[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  int kind = MPI_ERR_OTHER;
  if (MPI_Error_string(answer, words, &length) != MPI_SUCCESS) length = 0;
  if (MPI_Error_class(answer, &kind) != MPI_SUCCESS) kind = MPI_ERR_OTHER;
  error_text text;
  text << "chunkmem: " << asked << " failed: MPI error " << static_cast<std::uint64_t>(answer) << ", "
       << std::string_view{words, static_cast<std::size_t>(length)};
  if (rank != UINT32_MAX) names.tell_rank(text << ", with ", rank);
  text << " (the group has ended: start its ranks again)";
  const comm_failure failure = kind == MPI_ERR_TRUNCATE ? comm_failure::mismatch : comm_failure::peer_lost;
  return {text, {.failure = failure, .rank = rank, .number = answer}};
}

namespace detail {

/// @throws comm_error   MPI answered anything but success
inline void require_mpi(std::string_view asked, int answer)
{
  if (answer != MPI_SUCCESS) throw mpi_error(asked, answer);
}

}  // namespace detail

}  // namespace collective

}  // namespace chunkmem::inline v0
