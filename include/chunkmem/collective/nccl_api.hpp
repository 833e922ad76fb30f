// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <concepts>
#include <cstddef>
#include <span>

namespace chunkmem::inline v0 {

/// Handles of NCCL: plain values whose default is "none"; an identity is bytes that are copied between processes.
template <class Api>
concept names_nccl_handles = std::regular<typename Api::comm_type> && std::regular<typename Api::stream_type> &&
                             std::regular<typename Api::sum_type> && requires { Api::id_size; };

/// Makes and ends communicators. `create` never blocks, and gives a handle also where it is not done. Devices
/// are those that are current for the calling thread.
template <class Api>
concept makes_nccl_groups = requires(const Api& api, typename Api::comm_type group, typename Api::comm_type& fresh,
                                     std::span<std::byte> id, int number, int& out) {
  {
    api.make_id(id)
  } noexcept -> std::same_as<int>;
  {
    api.create(fresh, number, std::span<const std::byte>{id}, number)
  } noexcept -> std::same_as<int>;
  {
    api.async_error(group, out)
  } noexcept -> std::same_as<int>;
  {
    api.rank_of(group, out)
  } noexcept -> std::same_as<int>;
  {
    api.ranks_of(group, out)
  } noexcept -> std::same_as<int>;
  {
    api.finalize(group)
  } noexcept -> std::same_as<int>;
  {
    api.destroy(group)
  } noexcept -> std::same_as<int>;
  {
    api.abort(group)
  } noexcept -> std::same_as<int>;
  {
    api.current_device(out)
  } noexcept -> std::same_as<int>;
  {
    api.use_device(number)
  } noexcept -> std::same_as<int>;
};

/// Enqueues. Counts are of elements, and of one rank for all_gather and reduce_scatter.
template <class Api>
concept moves_nccl_bytes =
    requires(const Api& api, typename Api::comm_type group, typename Api::stream_type stream,
             typename Api::sum_type how, const void* from, void* to, std::size_t count, dtype type, int other) {
      {
        api.begin_calls()
      } noexcept -> std::same_as<int>;
      {
        api.end_calls()
      } noexcept -> std::same_as<int>;
      {
        api.all_gather(from, to, count, type, group, stream)
      } noexcept -> std::same_as<int>;
      {
        api.reduce_scatter(from, to, count, type, how, group, stream)
      } noexcept -> std::same_as<int>;
      {
        api.all_reduce(from, to, count, type, how, group, stream)
      } noexcept -> std::same_as<int>;
      {
        api.broadcast(from, to, count, type, other, group, stream)
      } noexcept -> std::same_as<int>;
      {
        api.reduce(from, to, count, type, how, other, group, stream)
      } noexcept -> std::same_as<int>;
      {
        api.send(from, count, type, other, group, stream)
      } noexcept -> std::same_as<int>;
      {
        api.receive(to, count, type, other, group, stream)
      } noexcept -> std::same_as<int>;
    };

/// Other calls. `is_done` asks CUDA whether all work of a stream is done, and never waits.
template <class Api>
concept serves_nccl_groups = requires(const Api& api, typename Api::comm_type group, typename Api::stream_type stream,
                                      typename Api::sum_type& how, void* place, void*& handle, std::size_t size,
                                      dtype type, float scale, bool& done, int number) {
  {
    api.plain_sum()
  } noexcept -> std::same_as<typename Api::sum_type>;
  {
    api.mean()
  } noexcept -> std::same_as<typename Api::sum_type>;
  {
    api.create_scaled_sum(how, type, scale, group)
  } noexcept -> std::same_as<int>;
  {
    api.destroy_sum(how, group)
  } noexcept -> std::same_as<int>;
  {
    api.enroll(group, place, size, handle)
  } noexcept -> std::same_as<int>;
  {
    api.dismiss(group, handle)
  } noexcept -> std::same_as<int>;
  {
    api.is_done(stream, done)
  } noexcept -> std::same_as<int>;
  {
    api.name_of(number)
  } noexcept -> std::convertible_to<const char*>;
};

/// The functions of NCCL that a communicator uses: `nccl_runtime` in programs, threads in tests.
///
/// Laws: each call returns NCCL's result: 0 is success, 7 "in progress", others are failures. Out parameters change on
/// success only, except the handle of `create`. One caller at a time for a communicator; calls between `begin_calls`
/// and `end_calls` are of one thread.
///
/// Communicators rely on these rules, by section of the NCCL User Guide 2.28:
/// - Calls of a non-blocking communicator return "in progress". Until async_error is 0, nothing else is called for it,
///   and no work goes to its streams: Creating a communicator with options; NCCL API, ncclCommGetAsyncError. In a group
///   of calls the end of the group returns the result: Nonblocking Group Operation.
/// - One thread at a time uses a communicator; all calls of a group are of one thread: Thread Safety.
/// - After an error only an abort is possible. It ends enqueued operations and frees the communicator: Error handling
///   and communicator abort; Fault Tolerance.
/// - finalize waits for all enqueued operations, destroy frees the communicator: Finalizing and Destroying a
///   communicator.
/// - Collectives on a stream follow its order: CUDA Stream Semantics. The result may lie in the operand: In-place
///   Operations.
/// - A device belongs to one rank of a communicator: Creating a Communicator.
/// - The factor of a sum on the host is read by the call that makes the sum: NCCL API, ncclRedOpCreatePreMulSum.
/// - Registered memory must stay until it is deregistered: User Buffer Registration, General Buffer Registration.
template <class Api>
concept nccl_api =
    names_nccl_handles<Api> && makes_nccl_groups<Api> && moves_nccl_bytes<Api> && serves_nccl_groups<Api>;

}  // namespace chunkmem::inline v0
