#pragma once

#include <chunkmem/eviction/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace conformance {

/// An eviction policy, a second one that hears the same, and the set of candidates that both should hold.
template <chunkmem::eviction_policy Policy>
class eviction_trial {
 public:
  eviction_trial(std::uint32_t chunks, std::uint32_t moments, std::uint64_t seed) : dice_{seed}, chunks_{chunks}, moments_{moments}
  {
    support::record_builder build;
    for (std::uint32_t at = 0; at < moments; ++at) build.brief(dice_.below(chunks));
    std::vector<std::uint32_t> own(chunks);
    for (std::uint32_t at = 0; at < chunks; ++at) own[at] = at;
    record_ = build.finish(own, chunks);
    policy_.reset(chunks);
    twin_.reset(chunks);
    policy_.on_profile(record_);
    twin_.on_profile(record_);
  }

  void random_step()
  {
    const std::uint32_t chunk = dice_.below(chunks_);
    if (inside_.count(chunk) == 0) enter(chunk);
    else if (dice_.one_in(3)) leave(chunk);
  }

  /// The victim is a candidate, the twin agrees, asking changes nothing, and there is one where there are candidates.
  [[nodiscard]] const char* mistake()
  {
    const chunkmem::moment now{dice_.below(moments_ + 1)};
    const chunkmem::chunk_id victim = policy_.victim(now);
    if (policy_.victim(now) != victim) return "asking for a victim removed it";
    if (twin_.victim(now) != victim) return "the same calls gave two victims";
    if (inside_.empty()) return victim == chunkmem::chunk_id::none ? nullptr : "a victim without candidates";
    if (victim == chunkmem::chunk_id::none) return "no victim although there are candidates";
    return inside_.count(index_of(victim)) != 0 ? nullptr : "a victim that is no candidate";
  }

  /// Evicting one after the other gives each candidate once, and again in this order where they came back unchanged, the
  /// last that left first.
  [[nodiscard]] const char* mistake_in_draining()
  {
    Policy copy = policy_;
    const auto order = drain(copy);
    if (order.size() != inside_.size() || copy.victim(chunkmem::moment{0}) != chunkmem::chunk_id::none)
      return "a candidate was lost or named twice";
    for (auto back = order.rbegin(); back != order.rend(); ++back) copy.enter(inside_[*back]);
    return drain(copy) == order ? nullptr : "a candidate that came back unchanged is another one";
  }

  void reset()
  {
    policy_.reset(chunks_);
    twin_.reset(chunks_);
    if (dice_.one_in(2)) {
      policy_.on_profile(record_);
      twin_.on_profile(record_);
    }
    inside_.clear();
    used_.clear();
  }

 private:
  /// Victims in their order, until there is none or a wrong one.
  [[nodiscard]] std::vector<std::uint32_t> drain(Policy& policy)
  {
    std::vector<std::uint32_t> order;
    auto left = inside_;
    while (!left.empty()) {
      const auto found = left.find(index_of(policy.victim(chunkmem::moment{0})));
      if (found == left.end()) break;
      policy.leave(found->second);
      order.push_back(found->first);
      left.erase(found);
    }
    return order;
  }
  void enter(std::uint32_t chunk)
  {
    chunkmem::eviction::candidate item{chunkmem::chunk_id{chunk}, chunkmem::moment::none, dice_.between(1, 3), dice_.one_in(2)};
    item.arrived = ++clock_;
    item.released = ++clock_;
    if (moments_ > 0 && !dice_.one_in(4)) {  // a moment belongs to one chunk
      const std::uint32_t next = dice_.below(moments_);
      if (used_.insert(next).second) item.next_use = chunkmem::moment{next};
    }
    policy_.enter(item);
    twin_.enter(item);
    inside_[chunk] = item;
  }
  void leave(std::uint32_t chunk)
  {
    policy_.leave(inside_[chunk]);
    twin_.leave(inside_[chunk]);
    used_.erase(index_of(inside_[chunk].next_use));
    inside_.erase(chunk);
  }

  support::dice dice_;
  std::uint32_t chunks_;
  std::uint32_t moments_;
  chunkmem::access_record record_;
  Policy policy_{};
  Policy twin_{};
  std::map<std::uint32_t, chunkmem::eviction::candidate> inside_;
  std::set<std::uint32_t> used_;
  std::uint64_t clock_ = 0;
};

/// The laws of eviction_policy on random calls, with and without a profile.
template <chunkmem::eviction_policy Policy>
void eviction_policy_laws()
{
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice sizes{seed};
    eviction_trial<Policy> trial{sizes.between(1, 90), sizes.one_in(3) ? 0 : sizes.between(1, 300), seed + 1'000};
    for (int step = 0; step < 400; ++step) {
      trial.random_step();
      if (const char* mistake = trial.mistake(); mistake != nullptr) FAIL("seed " << seed << ", step " << step << ": " << mistake);
      if (const char* mistake = step % 100 == 50 ? trial.mistake_in_draining() : nullptr; mistake != nullptr)
        FAIL("seed " << seed << ": " << mistake);
      if (step % 150 == 149) trial.reset();
    }
  }
}

}  // namespace conformance
