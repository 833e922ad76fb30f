// SPDX-License-Identifier: Apache-2.0
#include <conformance/eviction_policy.hpp>

#include "verdict.hpp"

#include <chunkmem/eviction/eviction_policy.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace wrong_evictions_test {

using namespace chunkmem;

namespace {

/// Right: the candidate with the lowest id goes. Each policy below changes it by one mistake.
class lowest_id {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "lowest_id";
  void reset(std::uint32_t chunks) { items_.assign(chunks, {}); }
  void on_profile(const access_record&) {}
  void enter(const eviction::candidate& item) noexcept { items_[index_of(item.chunk)] = item; }
  void leave(const eviction::candidate& item) noexcept { items_[index_of(item.chunk)] = {}; }
  chunk_id victim(access_index) const noexcept
  {
    return least([](const eviction::candidate& item) { return index_of(item.chunk); });
  }

 protected:
  /// The candidate with the least key; of equals the one with the lowest id.
  template <class Key>
  chunk_id least(Key key) const noexcept
  {
    const eviction::candidate* best = nullptr;
    for (const eviction::candidate& item : items_)
      if (item.chunk != chunk_id::none && (best == nullptr || key(item) < key(*best))) best = &item;
    return best == nullptr ? chunk_id::none : best->chunk;
  }

  std::vector<eviction::candidate> items_;  // by chunk; an id of none is no candidate
};

/// Evicts what was used least often, and takes each `enter` for a use.
struct counts_each_enter : lowest_id {
  void reset(std::uint32_t chunks) { lowest_id::reset(chunks), uses_.assign(chunks, 0); }
  void enter(const eviction::candidate& item) noexcept { lowest_id::enter(item), ++uses_[index_of(item.chunk)]; }
  chunk_id victim(access_index) const noexcept
  {
    return least([&](const eviction::candidate& item) { return uses_[index_of(item.chunk)]; });
  }
  std::vector<std::uint64_t> uses_;
};

/// The same with a use for each release, which is right, but the counts of one model are there for the next.
struct keeps_counts_over_reset : lowest_id {
  struct history {
    std::uint64_t uses = 0;
    std::uint64_t released = 0;
  };
  void reset(std::uint32_t chunks) { lowest_id::reset(chunks), seen_.resize(chunks); }
  void enter(const eviction::candidate& item) noexcept
  {
    lowest_id::enter(item);
    history& of_chunk = seen_[index_of(item.chunk)];
    if (of_chunk.released != item.released) of_chunk = {of_chunk.uses + 1, item.released};
  }
  chunk_id victim(access_index) const noexcept
  {
    return least([&](const eviction::candidate& item) { return seen_[index_of(item.chunk)].uses; });
  }
  std::vector<history> seen_;
};

/// A first-in, first-out queue by its own count of calls, and not by when a chunk arrived.
struct queues_by_enter : lowest_id {
  void enter(const eviction::candidate& item) noexcept
  {
    lowest_id::enter(item);
    items_[index_of(item.chunk)].arrived = ++calls_;
  }
  void reset(std::uint32_t chunks) { lowest_id::reset(chunks), calls_ = 0; }
  chunk_id victim(access_index) const noexcept
  {
    return least([](const eviction::candidate& item) { return item.arrived; });
  }
  std::uint64_t calls_ = 0;
};

/// Has one set for clean chunks and one for dirty ones, and forgets the second when a chunk leaves.
struct leaves_clean_ones_only : lowest_id {
  void leave(const eviction::candidate& item) noexcept
  {
    if (!item.dirty) lowest_id::leave(item);
  }
};

/// Remembers what came last and does not hear that it left.
struct names_the_dead : lowest_id {
  void reset(std::uint32_t) { last_ = chunk_id::none; }
  void enter(const eviction::candidate& item) noexcept { last_ = item.chunk; }
  void leave(const eviction::candidate&) noexcept {}
  chunk_id victim(access_index) const noexcept { return last_; }
  chunk_id last_ = chunk_id::none;
};

/// Takes the victim out of its set before `leave` does.
struct takes_the_victim_out : lowest_id {
  chunk_id victim(access_index now) noexcept
  {
    const chunk_id chosen = lowest_id::victim(now);
    if (chosen != chunk_id::none) items_[index_of(chosen)] = {};
    return chosen;
  }
};

/// Draws lots with a generator that all policies of the program share.
struct draws_lots : lowest_id {
  chunk_id victim(access_index) const noexcept
  {
    static std::uint32_t state = 1;
    state = state * 1'664'525 + 1'013'904'223;
    return least([](const eviction::candidate& item) { return (index_of(item.chunk) * 2'654'435'761U) ^ state; });
  }
};

/// Breaks ties by where its entries lie in memory.
struct breaks_ties_by_address : lowest_id {
  chunk_id victim(access_index) const noexcept
  {
    return least([&](const eviction::candidate& item) {
      return (reinterpret_cast<std::uintptr_t>(&items_[index_of(item.chunk)]) / sizeof item) * 0x9E3779B97F4A7C15U;
    });
  }
};

/// A new model finds the candidates of the last one.
struct keeps_candidates_over_reset : lowest_id {
  void reset(std::uint32_t chunks) { items_.resize(chunks); }
};

/// Knows of a record once and for all.
struct keeps_the_profile_over_reset : lowest_id {
  void on_profile(const access_record& record) { looks_ahead_ = record.size() != 0; }
  chunk_id victim(access_index) const noexcept
  {
    return least([&](const eviction::candidate& item) {
      return looks_ahead_ ? UINT32_MAX - index_of(item.next_use) : index_of(item.chunk);
    });
  }
  bool looks_ahead_ = false;
};

/// Copies share their candidates: a plan that is tried on a copy disturbs the run.
struct shares_its_set : lowest_id {
  void reset(std::uint32_t chunks) { shared_ = std::make_shared<lowest_id>(), shared_->reset(chunks); }
  void enter(const eviction::candidate& item) noexcept { shared_->enter(item); }
  void leave(const eviction::candidate& item) noexcept { shared_->leave(item); }
  chunk_id victim(access_index now) const noexcept { return shared_->victim(now); }
  std::shared_ptr<lowest_id> shared_;
};

/// One entry for each access of next use: what is never used again has to share one.
struct one_for_each_access : lowest_id {
  void reset(std::uint32_t) { at_.assign(1, chunk_id::none); }
  void on_profile(const access_record& record) { at_.assign(record.size() + 1, chunk_id::none); }
  void enter(const eviction::candidate& item) noexcept { at_[place_of(item)] = item.chunk; }
  void leave(const eviction::candidate& item) noexcept { at_[place_of(item)] = chunk_id::none; }
  chunk_id victim(access_index) const noexcept
  {
    const auto last = std::find_if(at_.rbegin(), at_.rend(), [](chunk_id chunk) { return chunk != chunk_id::none; });
    return last == at_.rend() ? chunk_id::none : *last;
  }
  std::size_t place_of(const eviction::candidate& item) const
  {
    return std::min<std::size_t>(index_of(item.next_use), at_.size() - 1);
  }
  std::vector<chunk_id> at_;
};

/// Looks at all candidates but that of the last id.
struct passes_the_last_id_over : lowest_id {
  chunk_id victim(access_index) const noexcept
  {
    for (std::size_t index = 0; index + 1 < items_.size(); ++index)
      if (items_[index].chunk != chunk_id::none) return items_[index].chunk;
    return chunk_id::none;
  }
};

/// Sorts a copy of all candidates for each decision.
struct allocates_in_victim : lowest_id {
  chunk_id victim(access_index) const noexcept
  {
    std::vector<std::uint32_t> all;
    for (const eviction::candidate& item : items_)
      if (item.chunk != chunk_id::none) all.push_back(index_of(item.chunk));
    std::sort(all.begin(), all.end(), std::greater<>{});
    return all.empty() ? chunk_id::none : chunk_id{all.back()};
  }
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_eviction_policy<Policy>({}, laws::allocations_so_far)};
}

}  // namespace

TEST_CASE("the laws of eviction hold for the least that the concept asks, which allocates nothing", "[laws][eviction]")
{
  conformance::eviction_policy_laws<lowest_id>({}, laws::allocations_so_far);
}

}  // namespace wrong_evictions_test

const laws::verdicts& laws::wrong_evictions()
{
  using namespace wrong_evictions_test;
  static const verdicts all{
      judge<counts_each_enter>("a candidate that came back unchanged is another one"),
      judge<queues_by_enter>("a candidate that came back unchanged is another one"),
      judge<keeps_counts_over_reset>("after a reset a policy is not as a new one"),
      judge<keeps_candidates_over_reset>("after a reset a policy is not as a new one"),
      judge<keeps_the_profile_over_reset>("after a reset a policy is not as a new one"),
      judge<leaves_clean_ones_only>("a victim that is no candidate"),
      judge<names_the_dead>("a victim that is no candidate"),
      judge<takes_the_victim_out>("asking for a victim removed it"),
      judge<draws_lots>("the same calls gave two victims"),
      judge<breaks_ties_by_address>("the same calls gave two victims"),
      judge<shares_its_set>("a copy shares its candidates with the original"),
      judge<one_for_each_access>("no victim although there are candidates"),
      judge<passes_the_last_id_over>("no victim although there are candidates"),
      judge<allocates_in_victim>("enter, leave or victim allocated"),
  };
  return all;
}
