// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/replay.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_iteration.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <vector>

namespace support {

/// Chunks of one frame under reads, updates and overwrites, with a number of frames for each access.
struct tidal_trace {
  std::uint32_t chunks = 0;
  std::vector<std::uint32_t> used;          ///< by access index: the chunk
  std::vector<chunkmem::entry_kind> kinds;  ///< by access index
  std::vector<std::uint32_t> frames;        ///< by access index

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(used.size()); }
  [[nodiscard]] bool loads(std::uint32_t now) const { return kinds[now] != chunkmem::entry_kind::write; }
  [[nodiscard]] std::vector<std::uint32_t> own_chunks() const
  {
    std::vector<std::uint32_t> own(chunks);
    for (std::uint32_t index = 0; index < chunks; ++index) own[index] = index;
    return own;
  }
  [[nodiscard]] chunkmem::access_record record() const
  {
    record_builder build;
    for (std::uint32_t now = 0; now < size(); ++now) build.brief(used[now], kinds[now]);
    return build.finish(own_chunks(), chunks);
  }
};

/// @param tidal   the frames change from access to access
inline tidal_trace roll_tidal_trace(dice& dice, bool tidal)
{
  using enum chunkmem::entry_kind;
  static constexpr chunkmem::entry_kind kinds[] = {read, read_write, chunkmem::entry_kind::write};
  tidal_trace made{.chunks = dice.between(2, 8), .used = {}, .kinds = {}, .frames = {}};
  std::uint32_t frames = dice.between(1, made.chunks);
  for (std::uint32_t left = dice.between(1, 16); left > 0; --left) {
    made.used.push_back(dice.below(made.chunks));
    made.kinds.push_back(kinds[dice.below(3)]);
    if (tidal) frames = std::clamp(frames + dice.below(5), 3U, made.chunks + 2) - 2;
    made.frames.push_back(frames);
  }
  return made;
}

/// The fewest loads that any choice of victims reaches, by trying every set of chunks that could stay at each access.
class fewest_tidal_loads {
 public:
  explicit fewest_tidal_loads(const tidal_trace& what) : trace_{what}, best_(what.size() << 8, unknown) {}
  std::uint32_t operator()() { return from(0, 0); }

 private:
  static constexpr std::uint32_t unknown = UINT32_MAX;

  std::uint32_t from(std::uint32_t now, std::uint32_t resident)
  {
    if (now == trace_.size()) return 0;
    std::uint32_t& best = best_[now << 8 | resident];
    if (best != unknown) return best;
    const std::uint32_t wanted = 1U << trace_.used[now];
    const std::uint32_t cost = (resident & wanted) == 0 && trace_.loads(now) ? 1 : 0;
    const std::uint32_t others = resident & ~wanted;
    const int room = static_cast<int>(trace_.frames[now]) - 1;
    const int kept = std::min(std::popcount(others), room);  // retained chunks cost nothing
    std::uint32_t least = unknown;
    for (std::uint32_t stay = others;; stay = (stay - 1) & others) {
      if (std::popcount(stay) == kept) least = std::min(least, cost + from(now + 1, stay | wanted));
      if (stay == 0) break;
    }
    return best = least;
  }

  const tidal_trace& trace_;
  std::vector<std::uint32_t> best_;  // by access index and what is resident before it
};

/// Loads of demand paging with a policy that knows the record: victims are evicted until the access has enough frames.
template <chunkmem::eviction_policy Policy>
std::uint32_t tidal_loads_of(const tidal_trace& what, Policy policy = {})
{
  using namespace chunkmem;
  const access_record record = what.record();
  policy.reset(what.chunks);
  policy.on_profile(record);
  std::map<std::uint32_t, eviction::candidate> resident;  // without the chunk in use
  std::uint32_t loads = 0;
  for (std::uint32_t now = 0; now < what.size(); ++now) {
    const std::uint32_t wanted = what.used[now];
    if (const auto found = resident.find(wanted); found != resident.end()) {
      policy.leave(found->second);
      resident.erase(found);
    } else {
      loads += what.loads(now) ? 1 : 0;
    }
    while (resident.size() >= what.frames[now]) {
      const std::uint32_t victim = index_of(policy.victim(access_index{now}));
      policy.leave(resident.at(victim));
      resident.erase(victim);
    }
    policy.enter(resident[wanted] = {chunk_id{wanted}, access_index{record.entries()[now].next_of_chunk}, 1, false,
                                     now + 1, now + 1});
  }
  return loads;
}

/// Loads that a manager's own decisions make, the first time after the host was filled. @pre the frames do not change
template <chunkmem::eviction_policy Policy>
std::uint32_t engine_loads_of(const tidal_trace& what)
{
  using namespace chunkmem;
  constexpr bytes frame{256};
  const std::vector<std::uint32_t> frames_of_chunk(what.chunks, 1);
  chunk_cache<Policy> state;
  state.reset(frames_of_chunk, what.chunks);
  state.reset_tier(tier::device, frame * what.frames[0], frame, what.frames[0]);
  state.reset_tier(tier::host, frame * what.chunks, frame, what.chunks);
  decision_log log;
  fill_on_host(state, log);
  const access_record record = what.record();
  state.start_of(record);
  state.tell_policy(record);
  log.clear();
  replay<Policy>{}.run(record, what.own_chunks(), state, log, true);
  return static_cast<std::uint32_t>(std::ranges::count(log.moves(), transfer::move_kind::load, &transfer::move::kind));
}

}  // namespace support
