// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/index_set.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/eviction/lru.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace eviction {

/// Evicts the chunk whose absence moves the fewest bytes for each byte it frees; the farthest next use decides among
/// equals.
///
///     manager<backend::host_arena, eviction::cost_aware> m{memory, {}, eviction::cost_aware{0.5}};  // theta
///
/// A chunk costs a load where its next use needs its bytes, and a write-back where the host has not got them. Per byte
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
  /// @throws config_error   negative or no number
  explicit cost_aware(double theta) : theta_{theta}, variants_{1}
  {
    if (!(theta >= 0)) throw config_error{"theta of cost_aware is negative or no number (0 lets cost decide alone)"};
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
    index_set idle;       // chunks that nothing has to load again
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

}  // namespace eviction

}  // namespace chunkmem::inline v0
