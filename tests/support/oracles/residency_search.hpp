// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/record_uses.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace support {

/// The fewest bytes that an iteration moves, by a search over where each chunk is: absent, resident, resident and
/// dirty, or without bytes. For four chunks; one use at each access. Before each use any chunks may leave, whatever a
/// rule would say.
class residency_search {
 public:
  explicit residency_search(const chunkmem::transfer::retention_input& what)
      : what_{what}, chunks_{what.chunk_bytes.size()}
  {
    for (std::size_t chunk = 0; chunk < chunks_; ++chunk) states_ *= 4;
  }

  std::uint64_t operator()() const
  {
    if (!what_.repeats) {
      const std::vector<std::uint64_t> ends = walk(0);
      return *std::ranges::min_element(ends);
    }
    std::uint64_t best = never;
    for (std::size_t start = 0; start < states_; ++start) best = std::min(best, walk(start)[start]);
    return best;
  }

 private:
  using use_kind = chunkmem::transfer::use_kind;
  enum place : std::size_t { absent, clean, dirty, empty };
  static constexpr std::uint64_t never = UINT64_MAX / 2;

  static place place_of(std::size_t state, std::size_t chunk) { return static_cast<place>(state >> (2 * chunk) & 3U); }
  static std::size_t with(std::size_t state, std::size_t chunk, place where)
  {
    return (state & ~(std::size_t{3} << (2 * chunk))) | static_cast<std::size_t>(where) << (2 * chunk);
  }

  /// The fewest bytes from one state to every state at the end.
  [[nodiscard]] std::vector<std::uint64_t> walk(std::size_t start) const
  {
    std::vector<std::uint64_t> now(states_, never);
    now[start] = 0;
    for (const auto& it : what_.uses) {
      leave_freely(now, it.begin);
      std::vector<std::uint64_t> next(states_, never);
      for (std::size_t state = 0; state < states_; ++state)
        if (now[state] != never) step(it, state, now[state], next);
      now.swap(next);
    }
    leave_freely(now, what_.device_bytes.size());  // so that an iteration may end as it began
    return now;
  }

  void leave_freely(std::vector<std::uint64_t>& best, std::size_t now) const
  {
    for (std::size_t chunk = 0; chunk < chunks_; ++chunk) {
      const bool is_wanted = what_.repeats || std::ranges::any_of(what_.uses, [&](const auto& it) {
                               return it.chunk == chunk && it.begin >= now;
                             });
      for (std::size_t state = 0; state < states_; ++state) {
        const place where = place_of(state, chunk);
        if (best[state] == never || (where != clean && where != dirty)) continue;
        std::uint64_t& left = best[with(state, chunk, absent)];
        left = std::min(left, best[state] + (where == dirty && is_wanted ? what_.chunk_bytes[chunk] : 0));
      }
    }
  }

  void step(const chunkmem::transfer::retention_use& it, std::size_t state, std::uint64_t bytes,
            std::vector<std::uint64_t>& next) const
  {
    const std::uint64_t size = what_.chunk_bytes[it.chunk];
    const place before = place_of(state, it.chunk);
    place after = before;
    switch (it.kind) {
      case use_kind::host_read: after = before == dirty ? clean : before; break;
      case use_kind::host_update:
      case use_kind::host_overwrite: after = absent; break;
      case use_kind::drop: after = empty; break;
      case use_kind::read: after = before == dirty || before == empty ? dirty : clean; break;
      default: after = dirty;
    }
    const bool reads_on_host = it.kind == use_kind::host_read || it.kind == use_kind::host_update;
    if (reads_on_host && before == dirty) bytes += size;
    if (chunkmem::transfer::is_on_device(it.kind) && it.kind != use_kind::overwrite && before == absent) bytes += size;
    const std::size_t moved = with(state, it.chunk, after);
    if (!fits(moved, it.begin)) return;
    next[moved] = std::min(next[moved], bytes);
  }

  [[nodiscard]] bool fits(std::size_t state, std::size_t now) const
  {
    std::uint64_t held = 0;
    for (std::size_t chunk = 0; chunk < chunks_; ++chunk)
      held += place_of(state, chunk) == clean || place_of(state, chunk) == dirty ? what_.chunk_bytes[chunk] : 0;
    return held <= what_.device_bytes[now];
  }

  chunkmem::transfer::retention_input what_;
  std::size_t chunks_;
  std::size_t states_ = 1;
};

}  // namespace support
