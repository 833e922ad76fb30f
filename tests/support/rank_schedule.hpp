// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace support {

/// Operations of ranks for any communicator, and their results in a model of plain vectors.
using rank_bytes = std::vector<std::byte>;

inline constexpr std::uint64_t schedule_room = 1'600;  ///< bytes of each rank that a schedule works on

struct rank_call {
  chunkmem::collective::operation what = chunkmem::collective::operation::barrier;
  std::uint64_t size = 0;
  chunkmem::dtype type = chunkmem::dtype::uint8;
  std::uint32_t root = 0;  ///< the sender of a broadcast
  std::uint32_t peer = 0;  ///< the receiver
  std::uint32_t label = 0;
  float scale = 1;

  [[nodiscard]] bool is_pair() const { return what == chunkmem::collective::operation::send; }
  [[nodiscard]] bool has_sum() const
  {
    return what == chunkmem::collective::operation::reduce_scatter ||
           what == chunkmem::collective::operation::all_reduce;
  }
  [[nodiscard]] bool needs(std::uint32_t rank) const { return !is_pair() || rank == root || rank == peer; }
  bool operator==(const rank_call&) const = default;
};

/// The bytes of rank `rank` at first, or after a refill: mostly numbers of the type, some hostile.
[[nodiscard]] inline rank_bytes bytes_of_rank(chunkmem::dtype type, std::uint64_t size, std::uint32_t rank,
                                              std::uint64_t seed)
{
  rank_bytes all(size);
  const std::uint64_t width = chunkmem::size_of(type);
  for (std::uint64_t index = 0; index < size / width; ++index) {
    const std::uint64_t key = (seed * 131 + rank) * 100'003 + index;
    std::uint64_t element = scrambled(key);
    if (type == chunkmem::dtype::float32) element = std::bit_cast<std::uint32_t>(hostile(key));
    if (type == chunkmem::dtype::bfloat16)
      element = hostile_16_bits(key, chunkmem::round_to<chunkmem::bf16>(tame(key)).bits());
    if (type == chunkmem::dtype::float16)
      element = hostile_16_bits(key, chunkmem::round_to<chunkmem::fp16>(tame(key)).bits());
    std::memcpy(&all[index * width], &element, width);
  }
  return all;
}

template <class Element>
[[nodiscard]] Element element_at(const rank_bytes& from, std::uint64_t index)
{
  Element element;
  std::memcpy(&element, &from[index * sizeof element], sizeof element);
  return element;
}

/// Plain sums in order of ranks; NaN is the one quiet NaN.
template <class Element>
void add_plainly(rank_bytes& to, const std::vector<rank_bytes>& ranks, std::uint64_t begin, std::uint64_t end,
                 float scale)
{
  for (std::uint64_t index = begin / sizeof(Element); index < end / sizeof(Element); ++index) {
    float all = chunkmem::to_float(element_at<Element>(ranks[0], index));
    for (std::size_t rank = 1; rank < ranks.size(); ++rank)
      all += chunkmem::to_float(element_at<Element>(ranks[rank], index));
    all *= scale;
    const Element rounded = chunkmem::round_to<Element>(all != all ? std::bit_cast<float>(0x7fc00000U) : all);
    std::memcpy(&to[index * sizeof(Element)], &rounded, sizeof rounded);
  }
}
inline void add_plainly(rank_bytes& to, const std::vector<rank_bytes>& ranks, std::uint64_t begin, std::uint64_t end,
                        const rank_call& it)
{
  if (it.type == chunkmem::dtype::float32) add_plainly<float>(to, ranks, begin, end, it.scale);
  if (it.type == chunkmem::dtype::bfloat16) add_plainly<chunkmem::bf16>(to, ranks, begin, end, it.scale);
  if (it.type == chunkmem::dtype::float16) add_plainly<chunkmem::fp16>(to, ranks, begin, end, it.scale);
}

/// The effect of a call on all ranks. Shards are computed here by hand: the fewest whole units of 256 bytes.
inline void play(std::vector<rank_bytes>& ranks, const rank_call& it)
{
  using chunkmem::collective::operation;
  const std::vector<rank_bytes> before = ranks;
  const std::uint64_t count = ranks.size();
  const std::uint64_t each = ((it.size + count - 1) / count + 255) / 256 * 256;
  for (std::uint64_t rank = 0; rank < count; ++rank)
    for (std::uint64_t index = 0; index < it.size; ++index) {
      if (it.what == operation::all_gather) ranks[rank][index] = before[index / each][index];
      if (it.what == operation::broadcast || (it.is_pair() && rank == it.peer))
        ranks[rank][index] = before[it.root][index];
    }
  for (std::uint64_t rank = 0; rank < count; ++rank) {
    const auto least = [&](std::uint64_t place) { return place < it.size ? place : it.size; };
    if (it.what == operation::all_reduce) add_plainly(ranks[rank], before, 0, it.size, it);
    if (it.what == operation::reduce_scatter)
      add_plainly(ranks[rank], before, least(rank * each), least((rank + 1) * each), it);
  }
}

/// Makes one rank's part of a call with its communicator; nothing where the rank takes no part.
template <class Communicator, class Backend>
void give(Communicator& ranks, Backend& backend, chunkmem::agent stream, std::byte* place, const rank_call& it)
{
  using chunkmem::collective::operation;
  const std::uint32_t rank = chunkmem::index_of(ranks.rank());
  const auto parts = chunkmem::collective::shares::of(chunkmem::bytes{it.size}, ranks.ranks());
  const chunkmem::collective::sum how{.type = it.type, .scale = it.scale};
  const chunkmem::bytes size{it.size};
  if (it.what == operation::all_gather) ranks.all_gather(backend, stream, place, parts, it.label);
  if (it.what == operation::reduce_scatter) ranks.reduce_scatter(backend, stream, place, parts, how, it.label);
  if (it.what == operation::all_reduce) ranks.all_reduce(backend, stream, place, parts, how, it.label);
  if (it.what == operation::broadcast)
    ranks.broadcast(backend, stream, place, size, chunkmem::rank_id{it.root}, it.label);
  if (it.what == operation::barrier) ranks.barrier(backend, stream, it.label);
  if (it.is_pair() && rank == it.root)
    ranks.send(backend, stream, place, size, chunkmem::rank_id{it.peer}, it.label);
  else if (it.is_pair() && rank == it.peer)
    ranks.receive(backend, stream, place, size, chunkmem::rank_id{it.root}, it.label);
}

/// A random schedule. Bytes that a reduce_scatter leaves unspecified are gathered at once.
[[nodiscard]] inline std::vector<rank_call> random_schedule(std::uint64_t seed, std::uint32_t ranks, std::size_t count)
{
  using chunkmem::collective::operation;
  constexpr operation kinds[] = {operation::all_gather, operation::reduce_scatter, operation::all_reduce,
                                 operation::broadcast,  operation::send,           operation::barrier};
  constexpr chunkmem::dtype types[] = {chunkmem::dtype::float32, chunkmem::dtype::bfloat16, chunkmem::dtype::float16};
  std::vector<rank_call> all;
  std::uint64_t key = seed << 20U;
  const auto dice = [&](std::uint64_t sides) { return static_cast<std::uint32_t>(scrambled(++key) % sides); };
  while (all.size() < count) {
    rank_call next{.what = kinds[dice(6)], .size = dice(schedule_room / 4 + 1) * 4, .label = dice(5)};
    if (next.what == operation::send && ranks == 1) continue;
    if (next.what == operation::barrier) next.size = 0;
    if (next.what == operation::broadcast || next.is_pair()) next.root = dice(ranks);
    if (next.is_pair()) next.peer = (next.root + 1 + dice(ranks - 1)) % ranks;
    if (next.has_sum()) next.type = types[dice(3)];
    if (next.has_sum()) next.scale = dice(2) == 0 ? 1.0F : 1.0F / static_cast<float>(ranks);
    all.push_back(next);
    if (next.what == operation::reduce_scatter)
      all.push_back({.what = operation::all_gather, .size = next.size, .label = next.label});
  }
  return all;
}

}  // namespace support
