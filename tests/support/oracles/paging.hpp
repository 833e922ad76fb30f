// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/eviction/eviction_policy.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace support {

/// Chunks of one frame, read one after the other.
using trace = std::vector<std::uint32_t>;

/// Loads of demand paging with a policy: the smallest driver that the eviction concept allows.
template <chunkmem::eviction_policy Policy>
std::uint32_t loads_of(const trace& reads, std::uint32_t chunks, std::uint32_t frames, bool profiled)
{
  using namespace chunkmem;
  record_builder build;
  for (const std::uint32_t chunk : reads) build.brief(chunk);
  std::vector<std::uint32_t> own(chunks);
  for (std::uint32_t index = 0; index < chunks; ++index) own[index] = index;
  const access_record record = build.finish(own, chunks);
  Policy policy;
  policy.reset(chunks);
  if (profiled) policy.on_profile(record);
  std::map<std::uint32_t, eviction::candidate> resident;
  std::vector<std::uint64_t> arrived(chunks);
  std::uint32_t loads = 0;
  for (std::uint32_t now = 0; now < record.size(); ++now) {
    const std::uint32_t wanted = reads[now];
    if (const auto found = resident.find(wanted); found != resident.end()) {
      policy.leave(found->second);
      resident.erase(found);
    } else {
      ++loads;
      arrived[wanted] = now + 1;
      if (resident.size() == frames) {
        const chunk_id victim = policy.victim(access_index{now});
        policy.leave(resident.at(index_of(victim)));
        resident.erase(index_of(victim));
      }
    }
    const access_index next = profiled ? access_index{record.entries()[now].next_of_chunk} : access_index::none;
    policy.enter(resident[wanted] = {chunk_id{wanted}, next, 1, false, arrived[wanted], now + 1});
  }
  return loads;
}

/// The fewest loads that any choice of victims reaches, by trying all of them. For a dozen reads of a few chunks.
class fewest_loads {
 public:
  fewest_loads(const trace& reads, std::uint32_t frames) : reads_{reads}, frames_{frames} {}
  std::uint32_t operator()() { return from(0, 0); }

 private:
  std::uint32_t from(std::size_t now, std::uint32_t resident)
  {
    if (now == reads_.size()) return 0;
    const auto known = best_.find({now, resident});
    if (known != best_.end()) return known->second;
    const std::uint32_t wanted = 1U << reads_[now];
    std::uint32_t best = UINT32_MAX;
    if ((resident & wanted) != 0) {
      best = from(now + 1, resident);
    } else {
      std::uint32_t held = 0;
      for (std::uint32_t bits = resident; bits != 0; bits &= bits - 1) ++held;
      if (held < frames_) best = 1 + from(now + 1, resident | wanted);
      // also where there is room: it cannot be worth it
      for (std::uint32_t bits = resident; bits != 0; bits &= bits - 1)
        best = std::min(best, 1 + from(now + 1, (resident & ~(bits & (~bits + 1))) | wanted));
    }
    return best_[{now, resident}] = best;
  }

  trace reads_;
  std::uint32_t frames_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::uint32_t> best_;
};

}  // namespace support
