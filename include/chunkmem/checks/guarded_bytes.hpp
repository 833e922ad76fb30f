// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>

// Of the run-time library of the address sanitizer; nothing here refers to them where a program is built without it.
extern "C" void __asan_poison_memory_region(const volatile void* begin, std::size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size);

namespace chunkmem::inline v0 {

namespace checks {

/// Which bytes of the arenas somebody may touch: those of pins and leases that live. The address sanitizer is told of
/// all others.
///
///     guarded_bytes guard;
///     guard.add_arena(arena);
///     guard.open(arena.first(1'024));   // a pin begins
///     guard.close(arena.first(1'024));  // and ends: the sanitizer reports the next access
///
/// Where a program is built with the sanitizer, it reports a read after a release, a write past a tensor into its
/// neighbour, and a use of free frames and gaps. Elsewhere only the book is kept. Cost: O(log open pins) for each pin,
/// and the sanitizer's own 1/8 of the bytes.
class guarded_bytes {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool is_guarding = true;
#elif defined(__has_feature)
  static constexpr bool is_guarding = __has_feature(address_sanitizer);
#else
  static constexpr bool is_guarding = false;
#endif

  guarded_bytes() = default;
  guarded_bytes(const guarded_bytes&) = delete;
  ~guarded_bytes() { forget(); }

  /// Nobody may touch these bytes, which are about to serve as an arena.
  /// @throws std::bad_alloc
  void add_arena(std::span<std::byte> arena)
  {
    if (arena.empty()) return;
    arenas_[arena.data()] = arena.size();
    guard(arena.data(), arena.size());
  }
  /// The arenas end: nothing is guarded, and nothing is open.
  void forget() noexcept
  {
    for (const auto& [begin, size] : arenas_) release(begin, size);
    arenas_.clear();
    open_.clear();
  }

  /// A pin or lease on these bytes begins. @throws std::bad_alloc   nothing was opened
  void open(std::span<std::byte> content)
  {
    if (content.empty()) return;
    auto& it = open_[content.data()];
    it.size = std::max(it.size, content.size());
    ++it.holders;
    release(content.data(), content.size());
  }
  /// It ends.
  void close(std::span<std::byte> content) noexcept
  {
    const auto it = open_.find(content.data());
    if (it == open_.end() || --it->second.holders > 0) return;
    guard(content.data(), it->second.size);
    open_.erase(it);
  }

  /// A copy of the library's own goes over these bytes, from here to `take_back`.
  void lend(std::span<const std::byte> content) noexcept { release(content.data(), content.size()); }
  void take_back(std::span<const std::byte> content) noexcept
  {
    if constexpr (!is_guarding) return;
    const std::byte* const end = content.data() + content.size();
    guard(content.data(), content.size());
    auto it = open_.lower_bound(content.data());
    if (it != open_.begin() && std::prev(it)->first + std::prev(it)->second.size > content.data()) --it;
    for (; it != open_.end() && it->first < end; ++it) release(it->first, it->second.size);
  }

  /// A pin or lease that lives holds this byte.
  [[nodiscard]] bool is_open(const std::byte* place) const noexcept
  {
    auto it = open_.upper_bound(place);
    if (it == open_.begin()) return false;
    --it;
    return place < it->first + it->second.size;
  }

 private:
  struct interval {
    std::size_t size = 0;
    std::uint32_t holders = 0;
  };

  static void guard([[maybe_unused]] const std::byte* begin, [[maybe_unused]] std::size_t size) noexcept
  {
    if constexpr (is_guarding) __asan_poison_memory_region(begin, size);
  }
  static void release([[maybe_unused]] const std::byte* begin, [[maybe_unused]] std::size_t size) noexcept
  {
    if constexpr (is_guarding) __asan_unpoison_memory_region(begin, size);
  }

  std::map<const std::byte*, std::size_t> arenas_;
  std::map<const std::byte*, interval> open_;
};

}  // namespace checks

}  // namespace chunkmem::inline v0
