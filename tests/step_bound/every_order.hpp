// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace step_bound_test {

/// Up to twelve blocks of a byte, a bit each.
using block_set = std::uint32_t;

/// One thing after the other that the caller does, on the device or on the host.
struct block_access {
  bool on_host = false;
  block_set reads = 0;    ///< their bytes must be there
  block_set makes = 0;    ///< there alone from now on, whatever was there before; on the device each needs a frame
  block_set changes = 0;  ///< of those that it reads: there alone from now on
  block_set ends = 0;     ///< of no use behind this access
  int ticks = 0;          ///< to compute
};

/// The least ticks from the begin of the first access to the end of the last one, among all orders of loads,
/// write-backs and evictions, all waits, and all blocks that may be on the device when the first access begins.
///
/// The device has frames of one block. Each link moves one block at a time, in `ticks_of_block`. All blocks also lie on
/// the host when the first access begins, and one may be on its way up. Dijkstra's search over all states.
class every_order {
 public:
  every_order(std::vector<block_access> accesses, int blocks, int frames, int ticks_of_block)
      : accesses_{std::move(accesses)}, blocks_{blocks}, frames_{frames}, lasts_{ticks_of_block}
  {
  }

  [[nodiscard]] int least_ticks()
  {
    const block_set all = (1U << blocks_) - 1;
    for (block_set there = 0; there <= all; ++there) {
      if (std::popcount(there) > frames_) continue;
      const state begin{.device = there, .host = all};
      reach(begin, 0);
      for (int block = 0; block < blocks_ && std::popcount(there) < frames_; ++block)
        for (int left = 1; left < lasts_ && !has(there, block); ++left) {
          state loading = begin;
          loading.up = block, loading.up_left = left;
          reach(loading, 0);
        }
    }
    while (true) {
      const auto [when, code] = open_.top();
      open_.pop();
      if (least_[code] != when) continue;
      const state now = unpacked(code);
      if (now.next == static_cast<int>(accesses_.size())) return when;
      expand(now, when);
    }
  }

 private:
  static constexpr int none = 15;

  struct state {
    int next = 0;                    // the access that runs, or is to begin
    int left = none;                 // ticks that it still computes; none: it has not begun
    block_set device = 0, host = 0;  // with valid bytes there
    int up = none, up_left = 0;
    int down = none, down_left = 0;
  };

  static bool has(block_set blocks, int block) { return (blocks >> block & 1U) != 0; }
  static std::uint64_t packed(const state& it)
  {
    std::uint64_t code = 0;
    for (const auto& [value, bits] : {std::pair{it.next, 6},
                                      {it.left, 4},
                                      {static_cast<int>(it.device), 12},
                                      {static_cast<int>(it.host), 12},
                                      {it.up, 4},
                                      {it.up_left, 4},
                                      {it.down, 4},
                                      {it.down_left, 4}})
      code = code << bits | static_cast<std::uint64_t>(value);
    return code;
  }
  static state unpacked(std::uint64_t code)
  {
    const auto take = [&](int bits) {
      const auto value = static_cast<int>(code & ((std::uint64_t{1} << bits) - 1));
      code >>= bits;
      return value;
    };
    state it;
    it.down_left = take(4), it.down = take(4), it.up_left = take(4), it.up = take(4);
    it.host = static_cast<block_set>(take(12)), it.device = static_cast<block_set>(take(12));
    it.left = take(4), it.next = take(6);
    return it;
  }

  void reach(const state& it, int when)
  {
    const std::uint64_t code = packed(it);
    const auto [found, is_new] = least_.try_emplace(code, when);
    if (!is_new && found->second <= when) return;
    found->second = when;
    open_.push({when, code});
  }

  [[nodiscard]] int taken(const state& now) const { return std::popcount(now.device) + (now.up != none ? 1 : 0); }
  /// Blocks that the running access reads or writes, on the device or on the host.
  [[nodiscard]] block_set in_use(const state& now, bool on_host, bool writing) const
  {
    if (now.left == none) return 0;
    const block_access& it = accesses_[static_cast<std::size_t>(now.next)];
    if (it.on_host != on_host) return 0;
    return it.makes | it.changes | (writing ? 0 : it.reads);
  }

  void expand(const state& now, int when)
  {
    if (now.left == none) begin_access(now, when);
    for (int block = 0; block < blocks_; ++block) {
      const bool is_here = has(now.device, block);
      const bool is_there = has(now.host, block);
      if (now.up == none && is_there && !is_here && taken(now) < frames_ && !has(in_use(now, true, true), block)) {
        state then = now;
        then.up = block, then.up_left = lasts_;
        reach(then, when);
      }
      if (now.down == none && is_here && !is_there && !has(in_use(now, false, true), block)) {
        state then = now;
        then.down = block, then.down_left = lasts_;
        reach(then, when);
      }
      if (is_here && is_there && now.down != block && !has(in_use(now, false, false), block)) {
        state then = now;
        then.device &= ~(1U << block);
        reach(then, when);
      }
    }
    pass_time(now, when);
  }

  void begin_access(const state& now, int when)
  {
    const block_access& it = accesses_[static_cast<std::size_t>(now.next)];
    const block_set written = it.makes | it.changes;
    if ((now.up != none && has(written, now.up)) || (now.down != none && has(written, now.down))) return;
    state then = now;
    then.left = it.ticks;
    if (it.on_host) {
      if ((it.reads & ~now.host) != 0) return;
      then.host |= written;
      then.device &= ~written;
    } else {
      if ((it.reads & ~now.device) != 0) return;
      then.device |= it.makes;
      then.host &= ~written;
      if (taken(then) > frames_) return;
    }
    if (then.left == 0) end_access(then);
    reach(then, when);
  }
  void end_access(state& now) const
  {
    const block_access& it = accesses_[static_cast<std::size_t>(now.next++)];
    now.left = none;
    now.device &= ~it.ends;
    now.host &= ~it.ends;
    if (now.down != none && has(it.ends, now.down)) now.down = none, now.down_left = 0;
  }

  /// To the moment when something ends.
  void pass_time(const state& now, int when)
  {
    int step = INT32_MAX;
    if (now.left != none) step = std::min(step, now.left);
    if (now.up != none) step = std::min(step, now.up_left);
    if (now.down != none) step = std::min(step, now.down_left);
    if (step == INT32_MAX) return;
    state then = now;
    if (then.up != none && (then.up_left -= step) == 0) then.device |= 1U << std::exchange(then.up, none);
    if (then.down != none && (then.down_left -= step) == 0) then.host |= 1U << std::exchange(then.down, none);
    if (then.left != none && (then.left -= step) == 0) end_access(then);
    reach(then, when + step);
  }

  std::vector<block_access> accesses_;
  int blocks_, frames_, lasts_;
  std::unordered_map<std::uint64_t, int> least_;
  std::priority_queue<std::pair<int, std::uint64_t>, std::vector<std::pair<int, std::uint64_t>>, std::greater<>> open_;
};

}  // namespace step_bound_test
