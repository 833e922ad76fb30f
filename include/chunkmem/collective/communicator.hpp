// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// First the types of the concept: member_names, operation, call, fingerprint, sum. Then the concept
// communicator, after the concepts that it is made of.

namespace chunkmem::inline v0 {

namespace collective {

/// Names of a group and its ranks outside of the group, for the sentences of its errors.
///
/// A group of two stages has ranks 0 and 1, and an error with these numbers does not help. With names the error says
/// "rank 1 (stage 3)". Every communicator of this library accepts names: `call_members`. Cost: none without an error.
///
///     ranks.call_members({.group = "the node 2", .ranks = {"rank 4 of all", "rank 5 of all"}});
struct member_names {
  std::string group{};               ///< empty: no name
  std::vector<std::string> ranks{};  ///< by rank; a rank with a missing or empty name is called by its number
  std::uint32_t micro_batches = 0;   ///< labels count micro-batches, this many for each part; 0: another count

  [[nodiscard]] bool empty() const noexcept { return group.empty() && ranks.empty(); }
  /// "rank 1 (stage 3)".
  void tell_rank(error_text& text, std::uint32_t rank) const noexcept
  {
    text << "rank " << rank;
    if (rank < ranks.size() && !ranks[rank].empty()) text << " (" << ranks[rank] << ")";
  }
  /// "group of 2 (the link from stage 2 to stage 3)".
  void tell_group(error_text& text, std::uint32_t of_ranks) const noexcept
  {
    text << "group of " << of_ranks;
    if (!group.empty()) text << " (" << group << ")";
  }
  /// "label 13 (part 3, micro-batch 1)".
  void tell_label(error_text& text, std::uint32_t label) const noexcept
  {
    text << "label " << label;
    if (micro_batches != 0)
      text << " (part " << label / micro_batches << ", micro-batch " << label % micro_batches << ")";
  }
};

namespace detail {

/// The same of a communicator, which may have no names.
template <class Ranks>
void tell_rank_of(const Ranks& ranks, error_text& text, std::uint32_t rank) noexcept
{
  if constexpr (requires { ranks.tell_rank(text, rank); })
    ranks.tell_rank(text, rank);
  else
    member_names{}.tell_rank(text, rank);
}
template <class Ranks>
void tell_group_of(const Ranks& ranks, error_text& text) noexcept
{
  if constexpr (requires { ranks.tell_group(text); })
    ranks.tell_group(text);
  else
    member_names{}.tell_group(text, ranks.ranks());
}

}  // namespace detail

/// The operations of a group of ranks.
enum class operation : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  send,
  receive,
  barrier,
  exchange
};

[[nodiscard]] constexpr std::string_view name_of(operation what) noexcept
{
  constexpr std::string_view names[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                        "send",       "receive",        "barrier",    "exchange"};
  return names[static_cast<std::size_t>(what)];
}

/// One operation, which has to be equal on every rank that takes part. Numbers only: addresses differ between ranks.
///
///     const call asked{.what = operation::broadcast, .size = 4'096, .root = 0, .label = chunk};
struct call {
  operation what = operation::barrier;
  dtype type = dtype::uint8;
  std::uint64_t size = 0;   ///< of the whole run, over all ranks [bytes]
  std::uint32_t root = 0;   ///< the sender, of a broadcast, send or receive
  std::uint32_t label = 0;  ///< the subject, such as the index of a chunk
  std::uint32_t scale = 0;  ///< bits of the factor of a sum

  [[nodiscard]] constexpr bool operator==(const call&) const noexcept = default;
};

/// A 64-bit hash of a sequence of calls. Ranks compare it instead of their whole plans.
///
/// Each word goes through the finalizer of SplitMix64 (Steele, Lea, Flood 2014), which is a bijection: two sequences
/// that differ in one call always differ, and others with probability 1 - 2^-64. Not cryptographic.
///
/// Use:
///
///     fingerprint all;
///     all.add(next_call);        // of each call, in order
///     ... all.value()            // compare it between ranks
class fingerprint {
 public:
  constexpr void add(std::uint64_t word) noexcept { value_ = mixed_bits(value_ ^ mixed_bits(word + splitmix64::step)); }
  constexpr void add(const call& next) noexcept
  {
    add(static_cast<std::uint64_t>(next.what) << 8U | static_cast<std::uint64_t>(next.type));
    add(next.size);
    add(std::uint64_t{next.root} << 32U | next.label);
    add(next.scale);
  }
  /// Adds the length too, so that two strings differ from their concatenation.
  constexpr void add(std::string_view text) noexcept
  {
    add(text.size());
    for (std::size_t begin = 0; begin < text.size(); begin += 8) {
      std::uint64_t word = 0;
      for (const char it : text.substr(begin, 8)) word = word << 8U | static_cast<unsigned char>(it);
      add(word);
    }
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

  [[nodiscard]] constexpr bool operator==(const fingerprint&) const noexcept = default;

 private:
  std::uint64_t value_ = 0;
};

/// The fingerprint of one call alone.
[[nodiscard]] constexpr std::uint64_t fingerprint_of(const call& one) noexcept
{
  fingerprint result;
  result.add(one);
  return result.value();
}

/// How elements are summed over ranks: in order of ranks, in single precision, then times `scale`, then rounded to the
/// element type. A scale of 1 / ranks keeps a mean of 16 bits from overflowing where its sum would. A transport that
/// sums in another order, or in the element type, documents this.
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

/// Moves shards of a run of bytes.
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

/// Can fail and end the group, and reports failures.
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
/// 2. `all_gather(whole, parts)`: before it, the own shard lies in its place. After it, all shards do, with own bytes
///    untouched.
/// 3. `reduce_scatter(whole, parts, how)`: the own shard becomes the sum of all ranks' bytes there; other bytes of
///    `whole` are unspecified. Shards end at whole elements. `all_reduce`: the whole becomes that sum, with the same
///    bits on every rank.
/// 4. `broadcast(root)`, `send(to)`, `receive(from)`: the bytes of the sender. A send may wait for its receive.
/// 5. `exchange(mine, all)` on the calling thread: `all` becomes every rank's words in order of ranks. It is not
///    ordered with the work of agents, and blocks for the other callers only.
/// 6. Calls that differ between ranks (operation, size, type, root, scale, label, order) are a `comm_error` on every
///    rank that takes part, before any of their bytes change. Both ends of a send and a receive count as one call.
/// 7. No wait lasts longer than the deadline of the group, the waits of agents included. A wait that fails leaves a
///    `comm_error`: `check` and every later call throw the first one. An agent whose operation failed goes on, with
///    unspecified bytes. Call `check` before you use them.
/// 8. `revoke` ends the group for all: every other rank's waits end with `revoked`. Where a communicator is destroyed
///    while other ranks wait for it, they get `peer_lost`.
/// 9. A call allocates nothing, except the first call that needs more room than any before it.
template <class Communicator, class Backend>
concept communicator =
    names_itself<Communicator> && std::same_as<typename Communicator::policy_kind, communicator_kind> &&
    knows_ranks<Communicator> && moves_shares<Communicator, Backend> && moves_from_root<Communicator, Backend> &&
    exchanges_words<Communicator> && tells_failure<Communicator>;

}  // namespace chunkmem::inline v0
