// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace support {

/// A mover with memory: each frame holds the number of the last write of each slot, so that reads find a stale byte, a
/// chunk in two places or a lease over a chunk.
class cell_memory {
 public:
  cell_memory(std::span<const std::uint32_t> chunk_of_slot, std::uint32_t device_frames, std::uint32_t host_frames)
      : chunk_of_slot_{chunk_of_slot.begin(), chunk_of_slot.end()}, truth_(chunk_of_slot.size(), 0)
  {
    memory_[chunkmem::tier::device].assign(device_frames, cell{});
    memory_[chunkmem::tier::host].assign(host_frames, cell{});
  }

  // What a chunk_cache calls.
  void placed(chunkmem::tier where, chunkmem::frame_id first, std::uint32_t count)
  {
    for (std::uint32_t index = index_of(first); index < index_of(first) + count; ++index) {
      cell& it = memory_[where].at(index);
      if (it.held) blame("a frame was placed twice");
      it.held = true;
    }
  }
  void vacated(chunkmem::tier where, chunkmem::frame_id first, std::uint32_t count, bool)
  {
    for (std::uint32_t index = index_of(first); index < index_of(first) + count; ++index)
      memory_[where].at(index).held = false;
  }
  void copy(chunkmem::chunk_id, const chunkmem::chunk& it, chunkmem::tier from, chunkmem::tier to)
  {
    expect_quiet(to < from ? "load" : "write_back");
    if (!it.has_frames(from) || !it.is_valid(from)) return blame("a copy of bytes that are not valid");
    copy(to, index_of(it.first_frame[to]), from, index_of(it.first_frame[from]), it.frames);
    ++(to < from ? loads : write_backs);
  }
  void claimed(chunkmem::chunk_id, const chunkmem::chunk&, chunkmem::tier)
  {
    expect_quiet("claim");
    ++claims;
  }
  void evicted(chunkmem::chunk_id, const chunkmem::chunk& it, chunkmem::tier where)
  {
    expect_quiet("evict");
    if (it.pins[where] > 0) blame("a pinned chunk was evicted");
    ++evictions;
  }
  void discarded(chunkmem::chunk_id, const chunkmem::chunk&, chunkmem::tier) {}
  void leased(chunkmem::tier, std::uint64_t, std::uint64_t) {}

  /// Overwrites these frames with other bytes.
  void scribble(chunkmem::tier where, chunkmem::frame_id frame)
  {
    if (memory_[where].at(index_of(frame)).held) blame("a lease lies over a chunk");
    const bool held = memory_[where][index_of(frame)].held;
    memory_[where][index_of(frame)] = cell{};
    memory_[where][index_of(frame)].held = held;
  }

  void write(std::uint32_t slot, chunkmem::tier where, const chunkmem::chunk& it)
  {
    ++truth_[slot];
    const std::uint32_t first = index_of(it.first_frame[where]);
    for (std::uint32_t part = 0; part < it.frames; ++part) {
      cell& target = memory_[where].at(first + part);
      if (target.chunk != chunk_of_slot_[slot] || target.part != part || target.written.empty())
        target = {chunk_of_slot_[slot], part, true, std::vector<std::uint32_t>(truth_.size(), 0)};
      target.written[slot] = truth_[slot];
    }
  }

  void read(std::uint32_t slot, chunkmem::tier where, const chunkmem::chunk& it)
  {
    const std::uint32_t first = index_of(it.first_frame[where]);
    if (first == index_of(chunkmem::chunk::nowhere)) return blame("a read of a chunk that is nowhere");
    for (std::uint32_t part = 0; part < it.frames; ++part) {
      const cell& source = memory_[where].at(first + part);
      if (source.chunk != chunk_of_slot_[slot] || source.part != part) return blame("a read of another chunk's bytes");
      if (source.written[slot] != truth_[slot])
        return blame("a read on the " + std::string{name_of(where)} + " saw write " +
                     std::to_string(source.written[slot]) + " of slot " + std::to_string(slot) + ", the last was " +
                     std::to_string(truth_[slot]));
    }
  }

  /// While quiet, no copy may run: everything that is needed was planned.
  void be_quiet(bool quiet) { quiet_ = quiet; }
  void blame(const std::string& what)
  {
    if (mistake.empty()) mistake = what;
  }

  std::string mistake;  ///< the first mistake; empty: none
  std::uint64_t loads = 0;
  std::uint64_t write_backs = 0;
  std::uint64_t claims = 0;
  std::uint64_t evictions = 0;

 private:
  struct cell {
    std::uint32_t chunk = UINT32_MAX;
    std::uint32_t part = 0;
    bool held = false;
    std::vector<std::uint32_t> written;  // by slot: number of its last write in this frame
  };

  void copy(chunkmem::tier to, std::uint32_t first, chunkmem::tier from, std::uint32_t source, std::uint32_t frames)
  {
    for (std::uint32_t part = 0; part < frames; ++part) {
      const cell& origin = memory_[from].at(source + part);
      if (!origin.held || !memory_[to].at(first + part).held)
        blame("a copy into or out of a frame that is not allocated");
      memory_[to][first + part] = origin;
    }
  }
  void expect_quiet(const std::string& what)
  {
    if (quiet_) blame("a " + what + " that was not planned");
  }

  std::vector<std::uint32_t> chunk_of_slot_;
  std::vector<std::uint32_t> truth_;
  chunkmem::per_tier<std::vector<cell>> memory_;
  bool quiet_ = false;
};

}  // namespace support
