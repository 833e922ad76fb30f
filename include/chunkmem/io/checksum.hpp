// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#ifndef XXH_NO_INLINE_HINTS
#define XXH_NO_INLINE_HINTS 1  // with hints g++ -Og refuses the header; without them it hashes as fast
#endif
#if !__has_include(<xxhash.h>)
#error "chunkmem: checkpoints need xxhash.h: link chunkmem::checkpoint (Debian: apt-get install libxxhash-dev)"
#endif
#include <xxhash.h>

namespace chunkmem::inline v0 {

namespace io {

/// A 64-bit checksum over bytes that come run by run. It finds accidental damage; it is not cryptographic.
///
/// XXH3 of the kept library xxHash, at the speed of memory. Source: Collet, xxHash 0.8.
///
/// Use:
///
///     io::checksum sum;
///     sum.add(first_run);
///     sum.add(second_run);
///     ... sum.value()   // equals checksum_of(both runs)
class checksum {
 public:
  checksum() { XXH3_64bits_reset(&state_); }

  void add(std::span<const std::byte> content) { (void)XXH3_64bits_update(&state_, content.data(), content.size()); }
  [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

/// The checksum of all bytes at once.
[[nodiscard]] inline std::uint64_t checksum_of(std::span<const std::byte> content)
{
  return XXH3_64bits(content.data(), content.size());
}

}  // namespace io

}  // namespace chunkmem::inline v0
