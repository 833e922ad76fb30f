// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/record_uses.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace support {

/// An iteration with its own numbers.
struct retention_trace {
  std::vector<std::uint64_t> chunk_bytes;
  std::vector<chunkmem::transfer::retention_use> uses;
  std::vector<std::uint64_t> device_bytes;
  bool repeats = true;

  [[nodiscard]] chunkmem::transfer::retention_input input() const
  {
    return {chunk_bytes, uses, device_bytes, {}, repeats};
  }
  void use(std::uint32_t chunk, std::uint32_t begin, chunkmem::transfer::use_kind kind, std::uint32_t length = 1)
  {
    uses.push_back({chunk, begin, begin + length, kind});
  }
};

/// The kinds of small random iterations.
struct trace_family {
  bool repeats = false;
  bool two_sizes = false;  ///< chunks of 1 and 2, else all of 1
  bool with_host = false;  ///< uses on the host and drops, too
};

/// 4 to 8 chunks, 8 to 16 accesses, one use at each; room for two at least, and not for all.
inline retention_trace roll_small_trace(dice& random, const trace_family& family)
{
  using chunkmem::transfer::use_kind;
  retention_trace made;
  made.repeats = family.repeats;
  const std::uint32_t chunks = random.between(4, 8);
  const std::uint32_t access_count = random.between(8, 16);
  std::uint32_t all = 0;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    made.chunk_bytes.push_back(family.two_sizes ? random.between(1, 2) : 1);
    all += static_cast<std::uint32_t>(made.chunk_bytes.back());
  }
  for (std::uint32_t now = 0; now < access_count; ++now) {
    const std::uint32_t face = random.below(family.with_host ? 9 : 5);  // three of five read
    made.use(random.below(chunks), now, face < 3 ? use_kind::read : static_cast<use_kind>(face - 2));
  }
  made.device_bytes.assign(access_count, random.between(2, all - 1));
  if (random.one_in(2))
    for (std::uint64_t& room : made.device_bytes) room = std::max<std::uint64_t>(2, room - random.below(2));
  return made;
}

/// A step of a GPT at the operators' pace: an access for each layer forward and backward, `update_accesses` for the
/// optimizer.
struct gpt_numbers {
  std::uint32_t layers = 24;
  std::uint32_t chunks_per_layer = 4;  ///< of 16-bit weights; master, momentum and variance take twice the bytes
  std::uint32_t update_accesses = 48;
  std::uint32_t on_device = 1;  ///< number of every `out_of` chunks that the device updates
  std::uint32_t out_of = 1;
};

/// Activations are recomputed in the backward pass: a checkpoint for each layer, and a layer's working set. `share`
/// lies between the smallest device (0) and one that holds everything (1).
inline retention_trace gpt_retention_trace(const gpt_numbers& shape, double share)
{
  using chunkmem::transfer::use_kind;
  constexpr std::uint64_t weight_bytes = std::uint64_t{1} << 20;
  const std::uint32_t weights = shape.layers * shape.chunks_per_layer;
  const std::uint64_t checkpoint = shape.chunks_per_layer * weight_bytes / 16;
  const std::uint64_t working_set = shape.chunks_per_layer * weight_bytes * 3 / 2;
  retention_trace made;
  made.chunk_bytes.assign(weights, weight_bytes);
  made.chunk_bytes.resize(std::size_t{4} * weights, 2 * weight_bytes);
  std::vector<std::uint64_t> leased;
  const auto pass = [&](std::uint32_t layer, use_kind kind) {
    for (std::uint32_t index = 0; index < shape.chunks_per_layer; ++index)
      made.use(layer * shape.chunks_per_layer + index, static_cast<std::uint32_t>(leased.size()), kind);
    leased.push_back((layer + 1) * checkpoint + working_set);
  };
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) pass(layer, use_kind::read);
  for (std::uint32_t layer = shape.layers; layer-- > 0;) pass(layer, use_kind::update);
  for (std::uint32_t part = 0; part < shape.update_accesses; ++part) {
    const auto now = static_cast<std::uint32_t>(leased.size());
    const std::uint64_t begin = std::uint64_t{weights} * part / shape.update_accesses;
    for (auto at = static_cast<std::uint32_t>(begin); at < std::uint64_t{weights} * (part + 1) / shape.update_accesses;
         ++at) {
      const use_kind kind = at % shape.out_of < shape.on_device ? use_kind::update : use_kind::host_update;
      made.use(at, now, kind);
      for (std::uint32_t list = 0; list < 3; ++list) made.use(weights + 3 * at + list, now, kind);
    }
    leased.push_back(0);
  }
  std::vector<std::uint64_t> least = leased;
  std::uint64_t all = *std::ranges::max_element(leased);
  for (const std::uint64_t size : made.chunk_bytes) all += size;
  for (const auto& it : made.uses)
    if (chunkmem::transfer::is_on_device(it.kind)) least[it.begin] += made.chunk_bytes[it.chunk];
  const std::uint64_t smallest = *std::ranges::max_element(least);
  const std::uint64_t device = smallest + static_cast<std::uint64_t>(static_cast<double>(all - smallest) * share);
  for (const std::uint64_t here : leased) made.device_bytes.push_back((device - here) / weight_bytes * weight_bytes);
  return made;
}

/// Random uses of random chunks of 1 and 2 units, `uses` of them spread evenly over `access_count`.
inline retention_trace roll_large_trace(dice& random, std::uint32_t chunks, std::uint32_t access_count,
                                        std::uint32_t uses, double share)
{
  using chunkmem::transfer::use_kind;
  retention_trace made;
  std::uint64_t all = 0;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) all += made.chunk_bytes.emplace_back(random.between(1, 2));
  std::uint64_t smallest = 0;
  for (std::uint64_t index = 0; index < uses; ++index) {
    const auto now = static_cast<std::uint32_t>(index * access_count / uses);
    const std::uint32_t face = random.below(4);
    made.use(random.below(chunks), now, face < 2 ? use_kind::read : static_cast<use_kind>(face - 1));
  }
  std::vector<std::uint64_t> taken(access_count, 0);
  for (const auto& it : made.uses) smallest = std::max(smallest, taken[it.begin] += made.chunk_bytes[it.chunk]);
  made.device_bytes.assign(
      access_count, smallest + static_cast<std::uint64_t>(static_cast<double>(all - std::min(all, smallest)) * share));
  return made;
}

}  // namespace support
