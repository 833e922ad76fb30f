// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace collective {

/// How elements are added over ranks: in order of ranks, in single precision, then times `scale`, then rounded to the
/// element type. A scale of 1 / ranks keeps a mean of 16 bits from overflowing where its sum would. A transport that
/// adds in another order, or in the element type, says so in its description.
///
///     const sum mean{.type = dtype::bfloat16, .scale = 1.0F / static_cast<float>(ranks.ranks())};
///     ranks.reduce_scatter(memory, agent::compute, gradient, parts, mean, 0);
struct sum {
  dtype type = dtype::float32;  ///< float32, bfloat16 or float16
  float scale = 1;
};

}  // namespace collective

/// Knows the ranks that take part.
template <class Communicator>
concept knows_ranks = requires(const Communicator& view) {
  {
    view.rank()
  } noexcept -> std::same_as<rank_id>;
  {
    view.ranks()
  } noexcept -> std::same_as<std::uint32_t>;
};

/// Moves shares of a run of bytes.
template <class Communicator, class Backend>
concept moves_shares = requires(Communicator& ranks, Backend& backend, agent stream, std::byte* whole,
                                const collective::shares& parts, collective::sum how, std::uint32_t label) {
  ranks.all_gather(backend, stream, whole, parts, label);
  ranks.reduce_scatter(backend, stream, whole, parts, how, label);
  ranks.all_reduce(backend, stream, whole, parts, how, label);
};

/// Moves bytes from one rank to others.
template <class Communicator, class Backend>
concept moves_from_root = requires(Communicator& ranks, Backend& backend, agent stream, std::byte* place, bytes size,
                                   rank_id other, std::uint32_t label) {
  ranks.broadcast(backend, stream, place, size, other, label);
  ranks.send(backend, stream, place, size, other, label);
  ranks.receive(backend, stream, place, size, other, label);
  ranks.barrier(backend, stream, label);
};

/// Lets the calling threads agree.
template <class Communicator>
concept exchanges_words = requires(Communicator& ranks, std::span<const std::uint64_t> mine,
                                   std::span<std::uint64_t> all) { ranks.exchange(mine, all); };

/// Can fail and end the group, and says so.
template <class Communicator>
concept tells_failure = requires(Communicator& ranks) {
  ranks.check();
  {
    ranks.revoke()
  } noexcept;
};

/// One rank's end of a group. All ranks of the group make the same calls in the same order.
///
/// Laws:
/// 1. A call with a backend and an agent enqueues there and returns. The bytes are valid after that agent's next event.
///    All work of a communicator is given to one agent, or finished before another gets some.
/// 2. `all_gather(whole, parts)`: before it, the own share lies in its place. After it, all shares do, with own bytes
///    untouched.
/// 3. `reduce_scatter(whole, parts, how)`: own share becomes the sum of all ranks' bytes there; other bytes of `whole`
///    are unspecified. Shares end at whole elements. `all_reduce`: the whole becomes that sum, with the same bits on
///    every rank.
/// 4. `broadcast(root)`, `send(to)`, `receive(from)`: the bytes of the sender. A send may wait for its receive.
/// 5. `exchange(mine, all)` on the calling thread: `all` becomes every rank's words in order of ranks. It is not
///    ordered with the work of agents, and blocks for the other callers only.
/// 6. Calls that differ between ranks (operation, size, type, root, scale, label, order) are a `comm_error` on every
///    rank that takes part, before any of their bytes change. Both ends of a send and a receive count as one call.
/// 7. No wait lasts longer than the deadline that the group was made with, the waits of agents included. A wait that
///    does not end well leaves a `comm_error`: `check` and every later call throw it, each the first cause. An agent
///    whose operation failed goes on, with bytes that are not valid. Call `check` before you use them.
/// 8. `revoke` ends the group for all: every other rank's waits end with `revoked`. Destroying a communicator while
///    others still wait for it is `peer_lost` there.
/// 9. A call allocates nothing, except the first call that needs more room than any before it.
template <class Communicator, class Backend>
concept communicator =
    names_itself<Communicator> && std::same_as<typename Communicator::policy_kind, communicator_kind> &&
    knows_ranks<Communicator> && moves_shares<Communicator, Backend> && moves_from_root<Communicator, Backend> &&
    exchanges_words<Communicator> && tells_failure<Communicator>;

}  // namespace chunkmem::inline v0
