// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <vector>

namespace support {

/// A pool of device memory.
struct fake_pool {
  bool exists = true;
  int device = 0;
  std::size_t limit = 0;  ///< [bytes]; 0: no limit of its own
  std::size_t used = 0;   ///< [bytes]
  std::size_t kept = 0;   ///< device memory of the pool: used, or freed and kept [bytes]
};

/// Device and pinned memory of a fake GPU: limits, states, bounds.
///
/// Nothing is unmapped before the end, so that a use after free reads poison and is found by its address. Cost: O(log
/// allocations ever made) per query.
///
/// @threads   one at a time: the fake's lock is held
class fake_memory {
 public:
  static constexpr std::byte poison{0xFF};  ///< four or two of them are a NaN
  static constexpr std::align_val_t alignment{256};

  enum class state : std::uint8_t {
    promised,    ///< allocated in stream order, and its stream has not reached the allocation
    live,        ///< may be used
    given_back,  ///< freed in stream order, and its stream has not reached the free
    dead,
  };
  struct block {
    std::size_t size = 0;
    state now = state::live;
    bool on_device = false;
    int device = 0;
    std::uint64_t pool = 0;      ///< number of the pool; 0: none
    bool is_registered = false;  ///< the user's own memory, only pinned
  };

  explicit fake_memory(const fake_cuda_options& options)
      : pinned_left_{options.pinned_memory},
        device_left_(static_cast<std::size_t>(options.devices), options.device_memory)
  {
  }
  fake_memory(const fake_memory&) = delete;
  fake_memory& operator=(const fake_memory&) = delete;
  ~fake_memory()
  {
    for (const auto& [place, it] : blocks_)
      if (!it.is_registered) ::operator delete(const_cast<std::byte*>(place), alignment);
  }

  std::vector<fake_pool> pools;  ///< by number - 1

  [[nodiscard]] std::size_t device_left(int device) const { return device_left_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] std::size_t live_on_device() const noexcept { return live_on_device_; }
  [[nodiscard]] std::size_t live_pinned() const noexcept { return live_pinned_; }

  /// Takes bytes of a device for other uses than allocations: contexts, libraries. @return   false without room
  [[nodiscard]] bool take(int device, std::size_t size)
  {
    std::size_t& left = device_left_[static_cast<std::size_t>(device)];
    if (size > left) return false;
    left -= size;
    return true;
  }

  /// Null where the device or the pool has no room.
  [[nodiscard]] std::byte* allocate_device(std::size_t size, int device, std::uint64_t pool, state first)
  {
    if (pool == 0) {
      if (!take(device, size)) return nullptr;
    } else {
      fake_pool& from = pools[pool - 1];
      if (from.limit != 0 && size > from.limit - from.used) return nullptr;
      const std::size_t wanted = from.used + size;
      if (wanted > from.kept && !take(device, wanted - from.kept)) return nullptr;
      from.used = wanted;
      from.kept = std::max(from.kept, wanted);
    }
    ++live_on_device_;
    return map({.size = size, .now = first, .on_device = true, .device = device, .pool = pool});
  }

  [[nodiscard]] std::byte* allocate_pinned(std::size_t size)
  {
    if (size > pinned_left_) return nullptr;
    pinned_left_ -= size;
    ++live_pinned_;
    return map({.size = size});
  }

  /// Pins memory of the user, without poisoning it.
  void enroll(std::byte* place, std::size_t size)
  {
    blocks_.emplace(place, block{.size = size, .is_registered = true});
  }
  void dismiss(const std::byte* place) { blocks_.erase(place); }

  /// Ends an allocation. @return   false where there is none at `place`
  bool give_back(std::byte* place, bool on_device)
  {
    const auto found = blocks_.find(place);
    if (found == blocks_.end()) return false;
    block& it = found->second;
    if (it.is_registered || it.on_device != on_device || it.now == state::given_back || it.now == state::dead)
      return false;
    it.now = state::given_back;
    if (!on_device) {
      pinned_left_ += it.size;
      --live_pinned_;
      return true;
    }
    if (it.pool != 0) pools[it.pool - 1].used -= it.size;
    if (it.pool == 0)
      device_left_[static_cast<std::size_t>(it.device)] += it.size;
    else if (!pools[it.pool - 1].exists)
      empty(pools[it.pool - 1]);
    --live_on_device_;
    return true;
  }

  /// Returns memory that the pool keeps and that is not used to its device.
  void empty(fake_pool& pool)
  {
    device_left_[static_cast<std::size_t>(pool.device)] += pool.kept - pool.used;
    pool.kept = pool.used;
  }

  /// Marks a promised block as usable.
  void bring_to_life(const std::byte* place)
  {
    if (block& it = blocks_.at(place); it.now == state::promised) it.now = state::live;
  }

  /// Marks a released block as unusable.
  void bury(std::byte* place)
  {
    block& it = blocks_.at(place);
    it.now = state::dead;
    std::memset(place, std::to_integer<int>(poison), it.size);
  }

  /// The error of an access to a range now; null: none.
  [[nodiscard]] const char* objection(const std::byte* place, std::size_t size) const
  {
    const auto* const it = touched(place, size);
    if (it == nullptr) return nullptr;  // pageable memory, whose bounds are unknown
    const std::less<const std::byte*> before;
    if (before(place, it->first) || size > it->second.size - static_cast<std::size_t>(place - it->first))
      return "leaves its allocation";
    switch (it->second.now) {
      case state::promised: return "is used before its allocation, in the order of streams";
      case state::dead: return "is used after it was freed";
      default: return nullptr;
    }
  }

  /// Whether its owner has freed it, even if the stream has not reached the free.
  [[nodiscard]] bool is_given_back(const std::byte* place) const
  {
    const auto* const it = touched(place, 1);
    return it != nullptr && (it->second.now == state::given_back || it->second.now == state::dead);
  }

  /// The allocation that has this byte and is not released; null: none.
  [[nodiscard]] const block* block_of(const std::byte* place) const
  {
    const auto* const it = touched(place, 1);
    return it != nullptr && it->second.now <= state::live ? &it->second : nullptr;
  }
  [[nodiscard]] bool is_device(const std::byte* place) const
  {
    const auto* const it = touched(place, 1);
    return it != nullptr && it->second.on_device;
  }
  [[nodiscard]] bool is_pageable(const std::byte* place) const { return touched(place, 1) == nullptr; }

 private:
  using table = std::map<const std::byte*, block, std::less<>>;

  std::byte* map(const block& it)
  {
    auto* const place = static_cast<std::byte*>(::operator new(it.size, alignment));
    std::memset(place, std::to_integer<int>(poison), it.size);
    blocks_.emplace(place, it);
    return place;
  }

  /// A block that shares a byte with the range.
  [[nodiscard]] const table::value_type* touched(const std::byte* place, std::size_t size) const
  {
    if (place == nullptr) return nullptr;
    const std::less<const std::byte*> before;
    auto next = blocks_.upper_bound(place);
    if (next != blocks_.begin()) {
      const auto& it = *std::prev(next);
      if (before(place, it.first + it.second.size)) return &it;
    }
    return next != blocks_.end() && before(next->first, place + size) ? &*next : nullptr;
  }

  std::size_t pinned_left_;
  std::vector<std::size_t> device_left_;
  table blocks_;
  std::size_t live_on_device_ = 0;
  std::size_t live_pinned_ = 0;
};

}  // namespace support
