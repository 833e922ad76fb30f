// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/transfer/retention_input.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// The times between the uses of each chunk on the device, when it may stay or leave, and what leaving costs.
///
/// A gap that is dropped costs a load where its next use needs bytes. An epoch is the gaps from one write on the device
/// to the next: the first of them that is dropped costs a write-back, also where the bytes are overwritten next, since
/// a program that leaves its record might read them. What moves whatever stays, such as the write-back before an update
/// on the host, is counted apart. Cost: O(uses + chunks + moments).
class residency_gaps {
 public:
  struct gap {
    std::uint32_t use = 0;     ///< after which it lies
    std::uint32_t begin = 0;   ///< first moment of it
    std::uint32_t length = 0;  ///< moments, around the end of the iteration; above 0
    bool loads = false;        ///< its chunk is loaded again if it is dropped
  };
  struct epoch {
    std::uint32_t chunk = 0;
    bool writes_back = false;  ///< the first dropped gap costs a write-back
    std::size_t end = 0;       ///< of its gaps; they begin where those of the epoch before end
  };

  /// @throws usage_error   a use names no chunk, ends before it begins or after the last moment, or comes out of order
  explicit residency_gaps(const retention_input& input)
      : moments_{static_cast<std::uint32_t>(input.device_bytes.size())},
        used_(moments_ + std::size_t{1}, 0),
        stays_(input.uses.size(), 0)
  {
    check(input);
    const std::vector<std::size_t> begins = sort_by_chunk(input);
    for (std::uint32_t chunk = 0; chunk < input.chunk_bytes.size(); ++chunk) {
      const std::span<const std::uint32_t> mine =
          std::span{order_}.subspan(begins[chunk], begins[chunk + 1] - begins[chunk]);
      count_used(input, mine, input.chunk_bytes[chunk]);
      walk(input, mine, chunk);
    }
    std::partial_sum(used_.begin(), used_.end(), used_.begin());
    used_.pop_back();
  }

  [[nodiscard]] std::span<const gap> gaps() const noexcept { return gaps_; }
  [[nodiscard]] std::span<const epoch> epochs() const noexcept { return epochs_; }
  /// Bytes that move whatever stays.
  [[nodiscard]] std::uint64_t constant_bytes() const noexcept { return constant_; }
  /// Bytes that uses take on the device, at each moment.
  [[nodiscard]] std::span<const std::uint64_t> used_bytes() const noexcept { return used_; }
  /// After each use: 1 where the next use begins the moment that it ends, so that there is nothing to choose.
  [[nodiscard]] const std::vector<std::uint8_t>& stays() const noexcept { return stays_; }

 private:
  struct copies {
    bool on_device = false;  // the device's copy would be good if it stayed
    bool is_dirty = false;   // the host's copy would not be, had nothing left
    bool is_empty = false;   // there are no bytes
    std::uint32_t end = 0;   // of what was used last on the device
    std::uint32_t last = 0;  // that use
  };

  void check(const retention_input& input) const
  {
    std::uint32_t now = 0;
    for (const retention_use& it : input.uses) {
      expects(it.chunk < input.chunk_bytes.size(), "a use names a chunk that has no size");
      expects(it.begin >= now, "uses are not in order of their first moment");
      expects(it.begin < it.end && it.end <= moments_,
              "a use does not end after it begins, at the last moment at the latest");
      now = it.begin;
    }
    for (const std::uint64_t size : input.chunk_bytes) expects(size > 0, "a chunk has no bytes");
  }

  std::vector<std::size_t> sort_by_chunk(const retention_input& input)
  {
    std::vector<std::size_t> begins(input.chunk_bytes.size() + 2, 0);
    for (const retention_use& it : input.uses) ++begins[it.chunk + std::size_t{2}];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    order_.resize(input.uses.size());
    for (std::uint32_t at = 0; at < input.uses.size(); ++at)
      order_[begins[input.uses[at].chunk + std::size_t{1}]++] = at;
    return begins;
  }

  void count_used(const retention_input& input, std::span<const std::uint32_t> mine, std::uint64_t size)
  {
    std::uint32_t counted = 0;
    for (const std::uint32_t at : mine) {
      const retention_use& it = input.uses[at];
      if (!is_on_device(it.kind) || it.end <= counted) continue;
      used_[std::max(counted, it.begin)] += size;
      used_[it.end] -= size;  // may wrap below zero, the sums do not
      counted = it.end;
    }
  }

  /// Where the copies are known: at a use that changes the bytes, else at one on the device. `mine.size()` if there is
  /// none.
  static std::size_t known_start(const retention_input& input, std::span<const std::uint32_t> mine)
  {
    const auto changes = [&](std::uint32_t at) {
      return input.uses[at].kind != use_kind::read && input.uses[at].kind != use_kind::host_read;
    };
    const auto found = std::ranges::find_if(mine, changes);
    if (found != mine.end()) return static_cast<std::size_t>(found - mine.begin());
    const auto reads = [&](std::uint32_t at) { return is_on_device(input.uses[at].kind); };
    return static_cast<std::size_t>(std::ranges::find_if(mine, reads) - mine.begin());
  }

  void walk(const retention_input& input, std::span<const std::uint32_t> mine, std::uint32_t chunk)
  {
    if (mine.empty()) return;
    copies now;
    open(chunk, false);
    std::size_t first = 0;
    if (input.repeats) {
      first = known_start(input, mine);
      if (first == mine.size()) return;
      for (std::size_t at = 0; at < first; ++at)  // an earlier use may outlast it
        if (is_on_device(input.uses[mine[at]].kind)) hold(now, mine[at], input.uses[mine[at]].end);
      leave(now, input.uses[mine[first]], mine[first], 0, chunk);
    }
    for (std::size_t step = input.repeats ? 1 : 0; step < mine.size() + (input.repeats ? 1 : 0); ++step) {
      const std::uint32_t at = mine[(first + step) % mine.size()];
      const std::uint32_t shift = first + step >= mine.size() ? moments_ : 0;
      reach(now, input.uses[at], shift, input.chunk_bytes[chunk]);
      if (step < mine.size()) leave(now, input.uses[at], at, shift, chunk);
    }
  }

  /// What the time before a use costs.
  void reach(copies& now, const retention_use& it, std::uint32_t shift, std::uint64_t size)
  {
    const std::uint32_t begin = it.begin + shift;
    const bool needs = it.kind != use_kind::overwrite;
    if (is_on_device(it.kind)) {
      if (!now.on_device)
        constant_ += needs && !now.is_empty ? size : 0;
      else
        add_gap(now, begin, needs);
    } else if (it.kind == use_kind::host_read || it.kind == use_kind::host_update) {
      if (!now.is_dirty) return;
      constant_ += size;
      now.is_dirty = epochs_.back().writes_back = false;
    } else if (now.on_device && now.is_dirty) {
      add_gap(now, begin, false);
    }
  }

  /// Where the bytes are good after a use.
  void leave(copies& now, const retention_use& it, std::uint32_t at, std::uint32_t shift, std::uint32_t chunk)
  {
    if (is_on_device(it.kind)) {
      const bool writes = it.kind != use_kind::read || now.is_empty;
      if (writes || !now.on_device) open(chunk, writes);
      now.is_dirty = writes || (now.on_device && now.is_dirty);
      now.on_device = true;
      now.is_empty = false;
      hold(now, at, it.end + shift);
    } else if (it.kind != use_kind::host_read) {
      now.on_device = now.is_dirty = false;
      now.is_empty = it.kind == use_kind::drop;
    }
  }

  static void hold(copies& now, std::uint32_t at, std::uint32_t end)
  {
    if (end < now.end) return;
    now.end = end;
    now.last = at;
  }

  void add_gap(const copies& now, std::uint32_t begin, bool loads)
  {
    if (begin <= now.end) {
      if (begin == now.end) stays_[now.last] = 1;
      return;
    }
    gaps_.push_back({now.last, now.end % moments_, begin - now.end, loads});
    epochs_.back().end = gaps_.size();
  }

  void open(std::uint32_t chunk, bool writes_back) { epochs_.push_back({chunk, writes_back, gaps_.size()}); }

  std::uint32_t moments_;
  std::uint64_t constant_ = 0;
  std::vector<std::uint64_t> used_;
  std::vector<std::uint8_t> stays_;
  std::vector<std::uint32_t> order_;  // uses by chunk
  std::vector<gap> gaps_;
  std::vector<epoch> epochs_;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
