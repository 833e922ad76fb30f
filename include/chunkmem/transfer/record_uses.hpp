// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace transfer {

/// The effect of a use on the bytes of its chunk.
enum class use_kind : std::uint8_t {
  read,            ///< on the device; needs the bytes
  update,          ///< on the device; needs the bytes, and the host's copy is stale afterwards
  overwrite,       ///< on the device; needs no bytes, and the host's copy is stale afterwards
  host_read,       ///< the host needs the latest bytes; the device's copy stays valid
  host_update,     ///< the host needs the latest bytes and writes; the device's copy is stale afterwards
  host_overwrite,  ///< the host writes all of it; the device's copy is stale afterwards
  drop,            ///< the bytes are dead, in both tiers
};

[[nodiscard]] constexpr bool is_on_device(use_kind kind) noexcept
{
  return kind <= use_kind::overwrite;
}

/// One use of a chunk, during the accesses [`begin`, `end`).
///
///     const retention_use uses[] = {{.chunk = 0, .begin = 0, .end = 2}, {.chunk = 1, .begin = 2, .end = 3}};
struct retention_use {
  std::uint32_t chunk = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;  ///< above `begin`; the uses of one chunk may overlap
  use_kind kind = use_kind::read;
};

/// An iteration as numbers. The choice of the chunks that stay on the device depends on nothing else.
///
/// record_uses makes the uses from a record. retention_solution solves the input:
///
///     const retention_solution plan = plan_retention(retention_input{sizes, uses, device_bytes, host_bytes});
struct retention_input {
  std::span<const std::uint64_t> chunk_bytes;   ///< size of each chunk [bytes], above 0
  std::span<const retention_use> uses;          ///< by `begin`; those of one chunk in the order they happen
  std::span<const std::uint64_t> device_bytes;  ///< what chunks may take on the device, at each access [bytes]
  /// Room for host copies on the host, at each access [bytes]. Empty: every chunk has a host copy. A host copy
  /// lasts for the whole iteration. Where an access has no room for all host copies, some chunks live on the device
  /// alone and never leave the device.
  std::span<const std::uint64_t> host_bytes;
  /// The iteration follows itself. Otherwise the iteration starts with an empty device, and a chunk is not needed after
  /// its last use: write-backs at the end of a single run are not counted.
  bool repeats = true;
};

/// Consecutive accesses during which pins hold a chunk on the device.
///
///     for (const held_stretch& it : found.stretches()) std::cout << it.begin << " to " << it.end << '\n';
struct held_stretch {
  std::uint32_t chunk = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;   ///< first access after the stretch
  std::uint32_t last = 0;  ///< the use that ends the stretch
  std::uint32_t next = 0;  ///< the chunk's next stretch, around the end of the iteration
};

/// Turns a recorded iteration into uses of chunks, and into the stretches in which the uses hold the chunks.
///
///     record_uses uses;
///     uses.read(record, chunk_of_slot, chunks, live);   // then uses.uses(), uses.stretches(), ...
///
/// The iteration is taken to repeat: a chunk holds bytes at the start of an iteration if it holds bytes at the end.
/// Cost: O(entries + slots + chunks) for each record. `read` does not allocate when sizes repeat.
class record_uses {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// @param live   by slot: 1 where the slot holds bytes before the first iteration
  void read(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks,
            std::span<const std::uint8_t> live)
  {
    uses_.clear();
    live_.assign(live);
    live_of_chunk_.assign(chunks, 0);
    for (std::uint32_t slot = 0; slot < live_.size(); ++slot)
      if (chunk_of_slot[slot] < chunks) live_of_chunk_[chunk_of_slot[slot]] += live_[slot];
    // what an iteration leaves, the next one finds
    for (const access_entry& entry : record.entries()) note_bytes(entry, chunk_of_slot);
    for (std::uint32_t index = 0; index < record.size(); ++index) add(record, index, chunk_of_slot);
    find_stretches(chunks);
  }

  /// Accesses, and drops of the last bytes of a chunk, ordered by `begin`.
  [[nodiscard]] std::span<const retention_use> uses() const noexcept { return uses_; }
  /// Ordered by `begin`.
  [[nodiscard]] std::span<const held_stretch> stretches() const noexcept { return stretches_; }
  /// The stretch of each use. A use on the host, or a drop, gets the stretch before the use, around the end of the
  /// iteration. `none` where the chunk has no stretch.
  [[nodiscard]] std::span<const std::uint32_t> stretch_of_use() const noexcept { return stretch_of_use_; }
  /// The last stretch of each chunk, or `none`.
  [[nodiscard]] std::span<const std::uint32_t> last_of_chunk() const noexcept { return last_of_chunk_; }

 private:
  /// @return   this access needs bytes of its chunk
  bool note_bytes(const access_entry& entry, std::span<const std::uint32_t> chunk_of_slot) noexcept
  {
    if (entry.slot == access_record::never) return false;
    std::uint8_t& live = live_[entry.slot];
    std::uint32_t& all = live_of_chunk_[chunk_of_slot[entry.slot]];
    const std::uint32_t others = all - live;
    const bool needs = others > 0 || (live != 0 && access_of(entry.kind) != access::write);
    live = entry.kind == entry_kind::drop ? 0 : 1;
    all = others + live;
    return needs;
  }

  void add(const access_record& record, std::uint32_t index, std::span<const std::uint32_t> chunk_of_slot)
  {
    const access_entry& entry = record.entries()[index];
    const bool had_bytes = entry.slot != access_record::never && live_[entry.slot] != 0;
    const bool needs = note_bytes(entry, chunk_of_slot);
    if (entry.slot == access_record::never) return;
    const std::uint32_t chunk = chunk_of_slot[entry.slot];
    if (entry.kind == entry_kind::drop) {
      if (had_bytes && live_of_chunk_[chunk] == 0) uses_.push_back({chunk, index, index + 1, use_kind::drop});
      return;
    }
    const bool on_host = place_of(entry.kind) == memory_location::host;
    use_kind kind = on_host ? use_kind::host_read : use_kind::read;
    if (writes(access_of(entry.kind))) {
      if (on_host)
        kind = needs ? use_kind::host_update : use_kind::host_overwrite;
      else
        kind = needs ? use_kind::update : use_kind::overwrite;
    }
    const std::uint32_t until = record.details()[index].until;
    uses_.push_back({chunk, index, until == entry_detail::never ? record.size() : until, kind});
  }

  void find_stretches(std::uint32_t chunks)
  {
    stretches_.clear();
    stretch_of_use_.assign(uses_.size(), none);
    last_of_chunk_.assign(chunks, none);
    first_of_chunk_.assign(chunks, none);
    for (std::uint32_t index = 0; index < uses_.size(); ++index) {
      if (is_on_device(uses_[index].kind)) hold(index);
      stretch_of_use_[index] = last_of_chunk_[uses_[index].chunk];
    }
    for (std::uint32_t index = 0; index < uses_.size(); ++index)
      if (stretch_of_use_[index] == none) stretch_of_use_[index] = last_of_chunk_[uses_[index].chunk];
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
      if (last_of_chunk_[chunk] != none) stretches_[last_of_chunk_[chunk]].next = first_of_chunk_[chunk];
  }

  void hold(std::uint32_t index)
  {
    const retention_use& use = uses_[index];
    std::uint32_t& last = last_of_chunk_[use.chunk];
    if (last == none || stretches_[last].end < use.begin) {
      const auto fresh = static_cast<std::uint32_t>(stretches_.size());
      if (last == none)
        first_of_chunk_[use.chunk] = fresh;
      else
        stretches_[last].next = fresh;
      last = fresh;
      stretches_.push_back({use.chunk, use.begin, use.end, index, fresh});
    }
    held_stretch& stretch = stretches_[last];
    if (use.end < stretch.end) return;
    stretch.end = use.end;
    stretch.last = index;
  }

  sequence<retention_use> uses_;
  sequence<held_stretch> stretches_;
  sequence<std::uint32_t> stretch_of_use_;
  sequence<std::uint32_t> last_of_chunk_;
  sequence<std::uint32_t> first_of_chunk_;
  sequence<std::uint8_t> live_;            // by slot: it holds bytes
  sequence<std::uint32_t> live_of_chunk_;  // how many of its slots do
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
