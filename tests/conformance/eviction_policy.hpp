// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/eviction/eviction_policy.hpp>
#include <conformance/trials.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace conformance {

/// An eviction policy, a second one that gets the same calls, and the set of candidates that both should hold.
template <chunkmem::eviction_policy Policy>
class eviction_trial {
 public:
  /// @param prototype   the policy with its settings, before any call
  eviction_trial(const Policy& prototype, std::uint32_t chunks, std::uint32_t access_count, std::uint64_t seed,
                 allocation_counter allocations = nullptr)
      : dice_{seed},
        chunks_{chunks},
        access_count_{access_count},
        prototype_{prototype},
        policy_{prototype},
        twin_{prototype},
        watch_{allocations}
  {
    support::record_builder build;
    for (std::uint32_t index = 0; index < access_count; ++index) build.brief(dice_.below(chunks));
    std::vector<std::uint32_t> own(chunks);
    for (std::uint32_t index = 0; index < chunks; ++index) own[index] = index;
    record_ = build.finish(own, chunks);
    for (Policy* each : {&policy_, &twin_}) {
      each->reset(chunks);
      each->on_profile(record_);
    }
  }

  void random_step()
  {
    const std::uint32_t chunk = dice_.below(chunks_);
    if (inside_.count(chunk) == 0)
      enter(chunk);
    else if (dice_.one_in(3))
      leave(chunk);
  }

  /// The victim is a candidate, the twin agrees, asking changes nothing, and there is one where there are candidates.
  [[nodiscard]] const char* mistake()
  {
    const chunkmem::access_index now{dice_.below(access_count_ + 1)};
    const auto asked = [&](Policy& policy) { return watch_([&] { return policy.victim(now); }); };
    const chunkmem::chunk_id victim = asked(policy_);
    if (asked(twin_) != victim)
      return was_reset_ ? "after a reset a policy is not as a new one" : "the same calls gave two victims";
    if (asked(policy_) != victim || asked(twin_) != victim) return "asking for a victim removed it";
    if (watch_.has_seen_one()) return "enter, leave or victim allocated";
    if (inside_.empty()) return victim == chunkmem::chunk_id::none ? nullptr : "a victim without candidates";
    if (victim == chunkmem::chunk_id::none) return "no victim although there are candidates";
    return inside_.count(index_of(victim)) != 0 ? nullptr : "a victim that is no candidate";
  }

  /// Evicting one after the other gives each candidate once. Where all of them, or the first of them, came back
  /// unchanged, the last that left first, the order is the same again. The policy does not notice what its copies do.
  [[nodiscard]] const char* mistake_in_draining()
  {
    const chunkmem::chunk_id before = policy_.victim(chunkmem::access_index{0});
    Policy copy = policy_;
    const auto order = drain(copy, inside_.size());
    if (policy_.victim(chunkmem::access_index{0}) != before) return "a copy shares its candidates with the original";
    const bool has_next = copy.victim(chunkmem::access_index{0}) != chunkmem::chunk_id::none;
    if (order.size() != inside_.size())
      return has_next ? "a victim that is no candidate" : "no victim although there are candidates";
    if (has_next) return "a victim without candidates";
    for (const std::size_t some : {order.size(), (order.size() + 1) / 2, std::min<std::size_t>(order.size(), 1)}) {
      copy = policy_;
      const auto left = drain(copy, some);
      for (auto back = left.rbegin(); back != left.rend(); ++back) copy.enter(inside_[*back]);
      if (drain(copy, inside_.size()) != order) return "a candidate that came back unchanged is another one";
    }
    return nullptr;
  }

  /// The used policy continues with the same calls as a fresh one: a reset has cleared all of its state.
  void reset()
  {
    twin_ = prototype_;
    policy_.reset(chunks_);
    twin_.reset(chunks_);
    if (dice_.one_in(2)) {
      policy_.on_profile(record_);
      twin_.on_profile(record_);
    }
    inside_.clear();
    used_.clear();
    was_reset_ = true;
  }

 private:
  /// Up to this many victims in their order, until there is none or a wrong one.
  [[nodiscard]] std::vector<std::uint32_t> drain(Policy& policy, std::size_t most)
  {
    std::vector<std::uint32_t> order;
    auto left = inside_;
    while (order.size() < most) {
      const auto found = left.find(index_of(policy.victim(chunkmem::access_index{0})));
      if (found == left.end()) break;
      policy.leave(found->second);
      order.push_back(found->first);
      left.erase(found);
    }
    return order;
  }
  void enter(std::uint32_t chunk)
  {
    chunkmem::eviction::candidate item{chunkmem::chunk_id{chunk}, chunkmem::access_index::none, dice_.between(1, 3),
                                       dice_.one_in(2)};
    item.arrived = ++clock_;
    item.released = ++clock_;
    if (access_count_ > 0 && !dice_.one_in(4)) {  // an access belongs to one chunk
      const std::uint32_t next = dice_.below(access_count_);
      if (used_.insert(next).second) item.next_use = chunkmem::access_index{next};
    }
    watch_([&] { policy_.enter(item), twin_.enter(item); });
    inside_[chunk] = item;
  }
  void leave(std::uint32_t chunk)
  {
    const chunkmem::eviction::candidate& item = inside_[chunk];
    watch_([&] { policy_.leave(item), twin_.leave(item); });
    used_.erase(index_of(item.next_use));
    inside_.erase(chunk);
  }

  support::dice dice_;
  std::uint32_t chunks_;
  std::uint32_t access_count_;
  chunkmem::access_record record_;
  Policy prototype_;
  Policy policy_;
  Policy twin_;
  std::map<std::uint32_t, chunkmem::eviction::candidate> inside_;
  std::set<std::uint32_t> used_;
  std::uint64_t clock_ = 0;
  bool was_reset_ = false;
  allocation_watch watch_;
};

/// One trial of the laws of eviction_policy: random calls, with and without a profile. A policy with settings is tried
/// with each of them in turn.
template <chunkmem::eviction_policy Policy>
[[nodiscard]] std::string mistake_in_evictions(Policy policy, std::uint64_t seed,
                                               allocation_counter allocations = nullptr)
{
  if (std::string_view{Policy::name}.empty()) return "a policy without a name";
  if constexpr (chunkmem::tuned_eviction<Policy>) {
    if (policy.variants() == 0) return "a policy with settings that has none";
    policy.choose(static_cast<std::uint32_t>(seed % policy.variants()));
  }
  {
    Policy one = policy;
    one.reset(1);
    Policy other = one;
    one.enter({.chunk = chunkmem::chunk_id{0}});
    if (other.victim(chunkmem::access_index{0}) != chunkmem::chunk_id::none)
      return "a copy shares its candidates with the original";
  }
  support::dice sizes{seed};
  eviction_trial<Policy> trial{policy, sizes.between(1, 90), sizes.one_in(3) ? 0 : sizes.between(1, 300), seed + 1'000,
                               allocations};
  for (int step = 0; step < 400; ++step) {
    trial.random_step();
    const char* mistake = trial.mistake();
    if (mistake == nullptr && step % 100 == 50) mistake = trial.mistake_in_draining();
    if (mistake != nullptr) return "step " + std::to_string(step) + ": " + mistake;
    if (step % 150 == 149) trial.reset();
  }
  return {};
}

inline constexpr std::uint64_t eviction_trials = 60;

/// The broken law of eviction_policy; empty: none.
template <chunkmem::eviction_policy Policy>
[[nodiscard]] std::string mistake_in_eviction_policy(const Policy& prototype = {},
                                                     allocation_counter allocations = nullptr)
{
  return first_mistake(eviction_trials,
                       [&](std::uint64_t seed) { return mistake_in_evictions(prototype, seed, allocations); });
}

/// The laws of eviction_policy, and of tuned_eviction where it is one.
template <chunkmem::eviction_policy Policy>
void eviction_policy_laws(const Policy& prototype = {}, allocation_counter allocations = nullptr)
{
  require_trials(eviction_trials,
                 [&](std::uint64_t seed) { return mistake_in_evictions(prototype, seed, allocations); });
}

}  // namespace conformance
