// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// A mover that moves nothing: it writes down what a chunk_cache decides, and at which access.
///
/// `at(access, freed_from)` sets the access of the decisions that follow; `moves()` has them in order. Cost: O(1) for
/// each decision, amortised.
class decision_log {
 public:
  void clear() noexcept { moves_.clear(); }
  [[nodiscard]] const sequence<transfer::move>& moves() const noexcept { return moves_; }

  /// Room for twice as many moves as there are. Runs of one record from other starts differ by less.
  void make_room() { moves_.reserve(2 * moves_.size() + 16); }

  /// Frames of all loads and write-backs.
  [[nodiscard]] std::uint64_t frames_copied() const noexcept
  {
    std::uint64_t frames = 0;
    for (const transfer::move& action : moves_)
      if (action.kind == transfer::move_kind::load || action.kind == transfer::move_kind::write_back)
        frames += action.frames;
    return frames;
  }

  /// Decisions from here on belong to this access; frames that they free are free from `freed_from`.
  void at(std::uint32_t access_index, std::uint32_t freed_from) noexcept
  {
    now_ = access_index;
    freed_from_ = freed_from;
  }

  void placed(tier, frame_id, std::uint32_t) noexcept {}
  void vacated(tier where, frame_id first, std::uint32_t count, bool evicted)
  {
    if (where == tier::device && !evicted)
      add(transfer::move_kind::vacate, freed_from_, chunk_id::none, index_of(first), count);
  }
  void copy(chunk_id id, const chunk& chunk_state, tier from, tier to)
  {
    add(to < from ? transfer::move_kind::load : transfer::move_kind::write_back, id, chunk_state);
  }
  void claimed(chunk_id id, const chunk& chunk_state, tier) { add(transfer::move_kind::claim, id, chunk_state); }
  void evicted(chunk_id id, const chunk& chunk_state, tier) { add(transfer::move_kind::evict, id, chunk_state); }
  void discarded(chunk_id, const chunk&, tier) noexcept {}
  void leased(tier, std::uint64_t begin, std::uint64_t)
  {
    add(transfer::move_kind::lease, now_, chunk_id::none, begin, 0);
  }

 private:
  void add(transfer::move_kind kind, chunk_id id, const chunk& chunk_state)
  {
    add(kind, now_, id, index_of(chunk_state.first_frame[tier::device]), chunk_state.frames);
  }
  void add(transfer::move_kind kind, std::uint32_t access_index, chunk_id chunk, std::uint64_t place,
           std::uint32_t frames)
  {
    moves_.push_back({access_index, index_of(chunk), place, frames, 0, kind});
  }

  sequence<transfer::move> moves_;
  std::uint32_t now_ = 0;
  std::uint32_t freed_from_ = 0;
};

}  // namespace chunkmem::inline v0
