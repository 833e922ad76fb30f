// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace chunkmem::inline v0 {
namespace backend {

/// The allocations of a backend by tier: their addresses and sizes, and that no tier exceeds its capacity.
///
///     tier_ledger ledger{64_MiB, 1_GiB};
///     ledger.require(tier::device, 1_MiB);  // throws where the tier has no room
///     ledger.add(tier::device, allocate(1_MiB), 1_MiB);
///
/// Counts requested bytes, not the system's rounded ones. `require`, then get the memory, then `add`: `add` cannot
/// fail, so a failure in between leaves no entry. Good for set-up, where allocations are few; poor as a general
/// allocator, because each lookup is a scan.
/// Cost: O(live allocations) per call.
///
/// @threads   one caller per ledger
class tier_ledger {
 public:
  struct allocation {
    tier where = tier::host;
    std::byte* place = nullptr;
    bytes size;
  };

  tier_ledger(bytes device_capacity, bytes host_capacity) noexcept
  {
    capacity_[tier::device] = device_capacity;
    capacity_[tier::host] = host_capacity;
  }

  [[nodiscard]] bytes capacity(tier where) const noexcept { return is_tier(where) ? capacity_[where] : bytes{}; }
  /// @pre   at most `capacity` is live
  void resize(tier where, bytes capacity) noexcept { capacity_[where] = capacity; }
  [[nodiscard]] bytes live(tier where) const noexcept { return live_[where]; }
  [[nodiscard]] std::span<const allocation> allocations() const noexcept { return allocations_; }

  /// How often `remove` got an address that is not allocated: an error of the caller, for which `release` may not
  /// throw.
  [[nodiscard]] std::uint64_t unknown_releases() const noexcept { return unknown_releases_; }

  /// Checks that `size` more bytes fit, and makes room for their entry.
  ///
  /// @throws usage_error     size is 0, or there is no such tier
  /// @throws out_of_memory   the tier would hold more than its capacity; nothing was changed
  void require(tier where, bytes size)
  {
    if (!is_tier(where)) {
      throw usage_error{error_text{} << "chunkmem: no memory on the " << name_of(where) << " tier: " << size.count()
                                     << " B requested (use tier::device or tier::host)"};
    }
    if (size == bytes{}) {
      throw usage_error{error_text{} << "chunkmem: allocation of 0 B on the " << name_of(where)
                                     << " tier (ask for at least 1 B)"};
    }
    if (size > capacity_[where] - live_[where]) refuse(where, size);
    try {
      // grow by doubling: exact reserve(size() + 1) would copy the table every time
      if (allocations_.size() == allocations_.capacity()) allocations_.reserve(allocations_.size() * 2 + 8);
    } catch (const std::bad_alloc&) {
      refuse(where, size);
    }
  }

  /// @pre `require` with the same arguments returned, and nothing was added since
  void add(tier where, std::byte* place, bytes size) noexcept
  {
    allocations_.push_back({where, place, size});
    live_[where] += size;
  }

  /// @return the size of the allocation, or 0 where none is at `place`; null is ignored
  bytes remove(tier where, const std::byte* place) noexcept
  {
    if (place == nullptr) return {};
    for (allocation& entry : allocations_) {
      if (entry.place != place || entry.where != where) continue;
      const bytes size = entry.size;
      live_[where] -= size;
      entry = allocations_.back();
      allocations_.pop_back();
      return size;
    }
    ++unknown_releases_;
    return {};
  }

  /// The live allocation in which all of [place, place + size) lies, or null.
  [[nodiscard]] const allocation* holding(const std::byte* place, bytes size) const noexcept
  {
    const std::uint64_t wanted = address_of(place);
    for (const allocation& entry : allocations_) {
      if (wanted < address_of(entry.place)) continue;
      const std::uint64_t offset = wanted - address_of(entry.place);
      if (offset < entry.size.count() && size.count() <= entry.size.count() - offset) return &entry;
    }
    return nullptr;
  }

  /// Throws the error of a failed allocation of `size` bytes; also for systems that have less than their capacity.
  [[noreturn]] void refuse(tier where, bytes size) const
  {
    const std::uint64_t held = live_[where].count();
    const std::uint64_t needed = size.count() > UINT64_MAX - held ? UINT64_MAX : held + size.count();
    throw out_of_memory{{.where = where,
                         .requested = size.count(),
                         .capacity = capacity_[where].count(),
                         .pinned = held,
                         .needed = needed,
                         .refused = needed <= capacity_[where].count(),
                         .taken = held}};
  }

 private:
  // Pointers to unrelated blocks have no order; integers have.
  [[nodiscard]] static std::uint64_t address_of(const std::byte* place) noexcept
  {
    return std::uint64_t{reinterpret_cast<std::uintptr_t>(place)};
  }

  per_tier<bytes> capacity_;
  per_tier<bytes> live_;
  sequence<allocation> allocations_;
  std::uint64_t unknown_releases_ = 0;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
