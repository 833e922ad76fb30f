// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

// The policies lru, fifo, list_order, cost_aware and belady, which is the default. by_retention follows a plan,
// and any_eviction is one policy out of a list.

namespace chunkmem::inline v0 {

namespace eviction {

/// Evicts the chunk whose last pin ended longest ago.
///
///     manager<backend::host_arena, eviction::lru> m{memory};
///
/// Good when nothing is known of the future; poor for a trainer that walks its layers in a cycle, where the chunk used
/// longest ago is the next one needed. Cost: a linked list in an array, 16 bytes for each chunk and O(1) for each call;
/// a chunk that enters again after later releases takes a step for each of these.
class lru {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "lru";

  void reset(std::uint32_t chunks)
  {
    links_.assign(std::size_t{chunks} + 1, link{});
    end_ = chunks;
    links_[end_] = {end_, end_, 0};
  }
  void on_profile(const access_record&) {}

  void enter(const candidate& item) noexcept
  {
    std::uint32_t before = links_[end_].before;
    if (before != end_ && item.released < links_[before].released) before = place_for(item.released);
    const std::uint32_t after = links_[before].after;
    const std::uint32_t id = index_of(item.chunk);
    links_[id] = {before, after, item.released};
    links_[before].after = id;
    links_[after].before = id;
  }

  void leave(const candidate& item) noexcept
  {
    const link at = links_[index_of(item.chunk)];
    links_[at.before].after = at.after;
    links_[at.after].before = at.before;
  }

  [[nodiscard]] chunk_id victim(access_index) const noexcept
  {
    const std::uint32_t oldest = links_[end_].after;
    return oldest == end_ ? chunk_id::none : chunk_id{oldest};
  }

 private:
  struct link {
    std::uint32_t before = 0;
    std::uint32_t after = 0;
    std::uint64_t released = 0;
  };

  /// The place of a chunk that was released earlier than the last one. O(1) at the front, where the victims of a frame
  /// run come back to; else O(chunks released later).
  [[nodiscard]] std::uint32_t place_for(std::uint64_t released) const noexcept
  {
    if (released <= links_[links_[end_].after].released) return end_;
    std::uint32_t before = links_[end_].before;
    while (released < links_[before].released) before = links_[before].before;
    return before;
  }

  sequence<link> links_;  // one for each chunk, and the list's end
  std::uint32_t end_ = 0;
};

static_assert(eviction_policy<lru>);

/// Evicts the chunk that came to the device longest ago: first in, first out.
///
///     manager<backend::host_arena, eviction::fifo> m{memory};
///
/// A chunk keeps its place in the queue while it is pinned; only leaving the device and coming back puts it at the end.
/// Good as a baseline; poor wherever a chunk is used again and again. Chunks of one arrival go by the lower id.
/// Cost: a heap in an array, 20 bytes for each chunk and O(log candidates) for each call but `victim`.
class fifo {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "fifo";

  void reset(std::uint32_t chunks)
  {
    heap_.assign(chunks, entry{});
    place_.assign(chunks, 0);
    size_ = 0;
  }
  void on_profile(const access_record&) {}

  void enter(const candidate& item) noexcept
  {
    const std::uint32_t hole = size_++;
    rise(hole, {item.arrived, item.chunk});
  }

  void leave(const candidate& item) noexcept
  {
    const std::uint32_t hole = place_[index_of(item.chunk)];
    const entry last = heap_[--size_];
    if (hole == size_) return;
    if (hole > 0 && last < heap_[(hole - 1) / 2])
      rise(hole, last);
    else
      sink(hole, last);
  }

  [[nodiscard]] chunk_id victim(access_index) const noexcept { return size_ == 0 ? chunk_id::none : heap_[0].chunk; }

 private:
  struct entry {
    std::uint64_t arrived = 0;
    chunk_id chunk{0};
    [[nodiscard]] bool operator<(const entry& other) const noexcept
    {
      return arrived != other.arrived ? arrived < other.arrived : chunk < other.chunk;
    }
  };

  void put(std::uint32_t index, const entry& it) noexcept
  {
    heap_[index] = it;
    place_[index_of(it.chunk)] = index;
  }

  void rise(std::uint32_t hole, const entry& it) noexcept
  {
    for (; hole > 0 && it < heap_[(hole - 1) / 2]; hole = (hole - 1) / 2) put(hole, heap_[(hole - 1) / 2]);
    put(hole, it);
  }

  void sink(std::uint32_t hole, const entry& it) noexcept
  {
    for (std::uint32_t child = 2 * hole + 1; child < size_; child = 2 * hole + 1) {
      if (child + 1 < size_ && heap_[child + 1] < heap_[child]) ++child;
      if (it < heap_[child]) break;
      put(hole, heap_[child]);
      hole = child;
    }
    put(hole, it);
  }

  sequence<entry> heap_;           // the oldest first; the first size_
  sequence<std::uint32_t> place_;  // by chunk: where it is in the heap
  std::uint32_t size_ = 0;
};

static_assert(eviction_policy<fifo>);

/// Evicts the chunk with the lowest id: the first in the order of declaration.
///
///     manager<backend::host_arena, eviction::list_order> m{memory};
///
/// PatrickStar's rule while it records, and for equal next uses. Good as a baseline and where a trainer walks its
/// tensors once in their order; poor when the first ones are needed again soonest. Source: Fang et al. 2021, arXiv
/// 2108.05818. Cost: O(1) words for each call, 1.02 bits for each chunk.
class list_order {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "list_order";

  void reset(std::uint32_t chunks) { candidates_.reset(chunks); }
  void on_profile(const access_record&) {}
  void enter(const candidate& item) noexcept { candidates_.insert(index_of(item.chunk)); }
  void leave(const candidate& item) noexcept { candidates_.erase(index_of(item.chunk)); }

  [[nodiscard]] chunk_id victim(access_index) const noexcept
  {
    const std::uint32_t lowest = candidates_.first_from(0);
    return lowest == index_set::none ? chunk_id::none : chunk_id{lowest};
  }

 private:
  index_set candidates_;
};

static_assert(eviction_policy<list_order>);

/// Evicts the chunk whose absence moves the fewest bytes for each byte it frees; the farthest next use decides among
/// equals.
///
///     manager<backend::host_arena, eviction::cost_aware> m{memory, {}, eviction::cost_aware{0.5}};  // theta
///
/// A chunk costs a load where its next use needs its bytes, and a write-back where the host lacks them. Per byte
/// that is 0, 1 or 2, whatever its size: so optimizer states on the device (2, for a whole iteration) outlive weights
/// (1, for a part of it), which `belady` gets wrong. Good where an iteration repeats and bytes count; poor for a single
/// pass over random accesses, where `belady` moves less. Without a record it is `lru`.
///
/// `theta` weighs distance against cost: the least of cost - theta * iterations until the next use goes. 0 lets cost
/// decide alone; infinity is `belady`. Which is best depends on the record and the capacity, so where plans are made
/// eleven are tried on the recorded iteration (tuned_eviction), 55 replays for each new record; decisions without a
/// plan take 0. Source: Landlord (Young 1998), with the record in place of credits. Cost: O(1) words for each call,
/// 2.04 bits for each access and chunk, 4 bytes for each access.
class cost_aware {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "cost_aware";

  cost_aware() = default;
  /// @param theta   moves per byte that an iteration of distance outweighs, for every record
  /// @throws config_error   negative or NaN
  explicit cost_aware(double theta) : theta_{theta}, variants_{1}
  {
    if (!(theta >= 0)) throw config_error{"theta of cost_aware is negative or not a number (0 lets cost decide alone)"};
  }

  [[nodiscard]] std::uint32_t variants() const noexcept { return variants_; }
  /// @pre `variant` is below variants()
  void choose(std::uint32_t variant) noexcept
  {
    if (variants_ > 1) theta_ = thetas[variant];
  }

  void reset(std::uint32_t chunks)
  {
    forget(chunks, 0);
    profiled_ = false;
    chunks_ = chunks;
  }

  void on_profile(const access_record& record)
  {
    forget(chunks_, record.size());
    profiled_ = !record.empty();
    access_count_ = record.size();
  }

  void enter(const candidate& item) noexcept
  {
    if (!profiled_) return recent_.enter(item);
    of_kind& kind = kinds_[item.dirty ? 1 : 0];
    if (item.next_use == access_index::none) return kind.idle.insert(index_of(item.chunk));
    owner_[index_of(item.next_use)] = item.chunk;
    kind.next_uses.insert(index_of(item.next_use));
  }

  void leave(const candidate& item) noexcept
  {
    if (!profiled_) return recent_.leave(item);
    of_kind& kind = kinds_[item.dirty ? 1 : 0];
    if (item.next_use == access_index::none)
      kind.idle.erase(index_of(item.chunk));
    else
      kind.next_uses.erase(index_of(item.next_use));
  }

  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    if (!profiled_) return recent_.victim(now);
    for (const of_kind& kind : kinds_)  // free, then a write-back alone: no later than a load alone
      if (const std::uint32_t unused = kind.idle.first_from(0); unused != index_set::none) return chunk_id{unused};
    const std::uint32_t clean = farthest(kinds_[0], index_of(now));
    const std::uint32_t dirty = farthest(kinds_[1], index_of(now));
    if (clean == index_set::none) return dirty == index_set::none ? chunk_id::none : owner_[dirty];
    if (dirty == index_set::none) return owner_[clean];
    const double further =
        static_cast<double>(distance(dirty, index_of(now))) - static_cast<double>(distance(clean, index_of(now)));
    return owner_[theta_ * further > access_count_ ? dirty : clean];
  }

 private:
  static constexpr double thetas[] = {0, 1.25, 1.5, 1.75, 2, 2.125, 2.25, 2.5, 2.75, 3, 4};
  struct of_kind {
    index_set idle;       // chunks that need no later load
    index_set next_uses;  // accesses
  };

  void forget(std::uint32_t chunks, std::uint32_t access_count)
  {
    recent_.reset(chunks);
    for (of_kind& kind : kinds_) {
      kind.idle.reset(chunks);
      kind.next_uses.reset(access_count);
    }
    owner_.resize(access_count);
  }

  [[nodiscard]] static std::uint32_t farthest(const of_kind& kind, std::uint32_t now) noexcept
  {
    const std::uint32_t past = kind.next_uses.last_before(now);  // needed in the next iteration
    return past != index_set::none ? past : kind.next_uses.last_before(index_set::none);
  }

  [[nodiscard]] std::uint32_t distance(std::uint32_t next, std::uint32_t now) const noexcept
  {
    return next >= now ? next - now : next + access_count_ - now;
  }

  lru recent_;
  of_kind kinds_[2];          // clean ones, and those that leave at the price of a write-back
  sequence<chunk_id> owner_;  // of each access in next_uses
  double theta_ = 0;
  std::uint32_t variants_ = static_cast<std::uint32_t>(std::size(thetas));
  std::uint32_t chunks_ = 0;
  std::uint32_t access_count_ = 0;
  bool profiled_ = false;
};

static_assert(tuned_eviction<cost_aware>);

/// Evicts the chunk whose next use is farthest away, by the recorded iteration; the default.
///
///     manager<backend::host_arena, eviction::belady> m{memory};
///
/// The fewest loads that any policy can reach with frames of one size. Without a record it is `lru`. An access belongs
/// to one chunk, so next uses are unique keys: a bit for each access replaces a heap. Chunks that the record never
/// touches go first, lowest id first. Source: Belady 1966 (IBM Systems Journal 5.2). Cost: O(1) words for each call,
/// 1.02 bits for each access and chunk, 4 bytes for each access, and the 16 for each chunk of lru.
class belady {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "belady";

  void reset(std::uint32_t chunks)
  {
    recent_.reset(chunks);
    idle_.reset(chunks);
    next_uses_.reset(0);
    owner_.clear();
    profiled_ = false;
    chunks_ = chunks;
  }

  void on_profile(const access_record& record)
  {
    recent_.reset(chunks_);
    idle_.reset(chunks_);
    next_uses_.reset(record.size());
    owner_.resize(record.size());
    profiled_ = !record.empty();
  }

  void enter(const candidate& item) noexcept
  {
    if (!profiled_) return recent_.enter(item);
    if (item.next_use == access_index::none) return idle_.insert(index_of(item.chunk));
    owner_[index_of(item.next_use)] = item.chunk;
    next_uses_.insert(index_of(item.next_use));
  }

  void leave(const candidate& item) noexcept
  {
    if (!profiled_) return recent_.leave(item);
    if (item.next_use == access_index::none) return idle_.erase(index_of(item.chunk));
    next_uses_.erase(index_of(item.next_use));
  }

  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    if (!profiled_) return recent_.victim(now);
    if (const std::uint32_t unused = idle_.first_from(0); unused != index_set::none) return chunk_id{unused};
    std::uint32_t farthest = next_uses_.last_before(index_of(now));  // already past: needed in the next iteration
    if (farthest == index_set::none) farthest = next_uses_.last_before(index_set::none);
    return farthest == index_set::none ? chunk_id::none : owner_[farthest];
  }

 private:
  lru recent_;
  index_set idle_;
  index_set next_uses_;
  sequence<chunk_id> owner_;  // of each access in next_uses_
  std::uint32_t chunks_ = 0;
  bool profiled_ = false;
};

static_assert(eviction_policy<belady>);

/// The order of evictions while a retention plan is carried out on a copy of the residency. Not a policy for users.
///
///     by_retention order;
///     order.place_below(plan.lease_limits);   // then as any eviction policy
///
/// A next use means here that the plan keeps the chunk until then. Chunks without a next use leave first, in the order
/// in which they were released: each load then waits for the frame that is free the longest. Chunks with a next use
/// leave only when nothing else is left. Cost: that of lru and of belady together.
class by_retention {
 public:
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "by_retention";
  static constexpr std::uint32_t no_lease_limit = UINT32_MAX;

  /// @param lease_limits   by access index: leases come down to this frame before a chunk that is loaded now leaves
  ///                       again. The array outlives its use
  void place_below(std::span<const std::uint32_t> lease_limits) noexcept { lease_limits_ = lease_limits; }

  /// @param frames   by access index: the frame wanted for a chunk that is loaded now, or none. The array outlives its
  ///                 use
  void place_in(std::span<const std::uint32_t> frames) noexcept { frames_ = frames; }

  /// @param places   by access index: the first frame of the chunk that is used now, or none; empty: no places are
  ///                 planned. The array outlives its use
  void settle_in(std::span<const std::uint32_t> places) noexcept { places_ = places; }

  void reset(std::uint32_t chunks)
  {
    given_up_.reset(chunks);
    staying_.reset(chunks);
  }
  void on_profile(const access_record& record) { staying_.on_profile(record); }

  void enter(const candidate& item) noexcept { gives_up(item) ? given_up_.enter(item) : staying_.enter(item); }
  void leave(const candidate& item) noexcept { gives_up(item) ? given_up_.leave(item) : staying_.leave(item); }

  [[nodiscard]] chunk_id victim(access_index now) const noexcept
  {
    const chunk_id first = given_up_.victim(now);
    return first != chunk_id::none ? first : staying_.victim(now);
  }

  /// Whether the plan does not keep the chunk.
  [[nodiscard]] bool gives_up(const candidate& item) const noexcept { return item.next_use == access_index::none; }
  /// A chunk that is loaded now must lie below this frame.
  [[nodiscard]] std::uint32_t lease_limit(access_index now) const noexcept
  {
    return index_of(now) < lease_limits_.size() ? lease_limits_[index_of(now)] : no_lease_limit;
  }
  /// The frame wanted for a chunk that is loaded now, or none.
  [[nodiscard]] std::uint32_t preferred(access_index now) const noexcept
  {
    return index_of(now) < frames_.size() ? frames_[index_of(now)] : no_lease_limit;
  }
  /// The first frame that is planned for the chunk that is used now, or none.
  [[nodiscard]] frame_id place(access_index now) const noexcept
  {
    return index_of(now) < places_.size() ? frame_id{places_[index_of(now)]} : frame_id::none;
  }
  /// Chunks take free frames in the order in which the frames became free. False: the highest first, which leaves the
  /// low frames to chunks that stay while leases come down. Plans with places have the second order.
  void order_by_age(bool on) noexcept { is_ordered_by_age_ = on; }
  /// Frames of chunks that the plan gives up are free ones in this order, for a load.
  void take_given_up(bool on) noexcept { takes_given_up_ = on; }
  [[nodiscard]] bool takes_given_up() const noexcept { return takes_given_up_ && is_ordered_by_age(); }
  [[nodiscard]] bool is_ordered_by_age() const noexcept { return is_ordered_by_age_ && !has_places(); }
  [[nodiscard]] bool has_places() const noexcept { return !places_.empty(); }

 private:
  lru given_up_;
  belady staying_;
  std::span<const std::uint32_t> lease_limits_;
  std::span<const std::uint32_t> frames_;
  std::span<const std::uint32_t> places_;
  bool is_ordered_by_age_ = true;
  bool takes_given_up_ = true;
};

static_assert(bounded_eviction<by_retention>);

/// One eviction policy out of a list, chosen when the program runs: `any_eviction<belady, lru>{"lru"}`.
///
/// Good and poor cases: see policy_choice. Decisions are rare compared with accesses, so the indirect call costs
/// little.
template <eviction_policy... Policies>
class any_eviction : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_eviction";
  using policy_choice<Policies...>::policy_choice;

  void reset(std::uint32_t chunks)
  {
    this->ask([&](auto& chosen) { chosen.reset(chunks); });
  }
  void on_profile(const access_record& record)
  {
    this->ask([&](auto& chosen) { chosen.on_profile(record); });
  }
  void enter(const candidate& item) noexcept
  {
    this->ask([&](auto& chosen) { chosen.enter(item); });
  }
  void leave(const candidate& item) noexcept
  {
    this->ask([&](auto& chosen) { chosen.leave(item); });
  }
  [[nodiscard]] chunk_id victim(access_index now) noexcept
  {
    return this->ask([&](auto& chosen) { return chosen.victim(now); });
  }

  [[nodiscard]] std::uint32_t variants() const noexcept
  {
    return this->ask([](const auto& chosen) -> std::uint32_t {
      if constexpr (tuned_eviction<std::remove_cvref_t<decltype(chosen)>>)
        return chosen.variants();
      else
        return 1;
    });
  }
  void choose(std::uint32_t variant) noexcept
  {
    this->ask([&](auto& chosen) {
      if constexpr (tuned_eviction<std::remove_cvref_t<decltype(chosen)>>) chosen.choose(variant);
    });
  }
};

}  // namespace eviction

}  // namespace chunkmem::inline v0
