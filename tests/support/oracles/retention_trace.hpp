#pragma once

#include <chunkmem/transfer/retention_input.hpp>
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

  [[nodiscard]] chunkmem::transfer::retention_input input() const { return {chunk_bytes, uses, device_bytes, {}, repeats}; }
  void use(std::uint32_t chunk, std::uint32_t begin, chunkmem::transfer::use_kind kind, std::uint32_t length = 1)
  {
    uses.push_back({chunk, begin, begin + length, kind});
  }
};

/// Which small iterations are rolled.
struct trace_family {
  bool repeats = false;
  bool two_sizes = false;    ///< chunks of 1 and 2, else all of 1
  bool with_host = false;    ///< uses on the host and drops, too
};

/// 4 to 8 chunks, 8 to 16 moments, one use at each; room for two at least, and not for all.
inline retention_trace roll_small_trace(dice& random, const trace_family& family)
{
  using chunkmem::transfer::use_kind;
  retention_trace made;
  made.repeats = family.repeats;
  const std::uint32_t chunks = random.between(4, 8);
  const std::uint32_t moments = random.between(8, 16);
  std::uint32_t all = 0;
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    made.chunk_bytes.push_back(family.two_sizes ? random.between(1, 2) : 1);
    all += static_cast<std::uint32_t>(made.chunk_bytes.back());
  }
  for (std::uint32_t now = 0; now < moments; ++now) {
    const std::uint32_t face = random.below(family.with_host ? 9 : 5);  // of five, three read
    made.use(random.below(chunks), now, face < 3 ? use_kind::read : static_cast<use_kind>(face - 2));
  }
  made.device_bytes.assign(moments, random.between(2, all - 1));
  if (random.one_in(2))
    for (std::uint64_t& room : made.device_bytes) room = std::max<std::uint64_t>(2, room - random.below(2));
  return made;
}

}  // namespace support
