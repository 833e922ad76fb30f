// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstddef>
#include <cstring>
#include <functional>
#include <new>

namespace support {

/// True where two ranges share a byte.
[[nodiscard]] inline bool overlap(const std::byte* one, chunkmem::bytes one_size, const std::byte* other,
                                  chunkmem::bytes other_size) noexcept
{
  const std::less<const std::byte*> before;
  return before(one, other + other_size.count()) && before(other, one + one_size.count());
}

/// Capped memory of two tiers that holds NaN bytes when it is fresh and when it was released.
class poisoned_memory {
 public:
  static constexpr std::byte poison{0xFF};  ///< four or two of them are a NaN

  poisoned_memory(chunkmem::bytes device_capacity, chunkmem::bytes host_capacity) noexcept
      : ledger_{device_capacity, host_capacity}
  {
  }
  poisoned_memory(const poisoned_memory&) = delete;
  poisoned_memory& operator=(const poisoned_memory&) = delete;
  ~poisoned_memory()
  {
    for (const auto& entry : ledger_.allocations()) give_back(entry.place);
  }

  [[nodiscard]] chunkmem::bytes capacity(chunkmem::tier where) const noexcept { return ledger_.capacity(where); }

  [[nodiscard]] std::byte* allocate(chunkmem::tier where, chunkmem::bytes size)
  {
    ledger_.require(where, size);
    void* const raw = ::operator new(size.count(), alignment, std::nothrow);
    if (raw == nullptr) ledger_.refuse(where, size);
    auto* const place = static_cast<std::byte*>(raw);
    spoil(place, size);
    ledger_.add(where, place, size);
    return place;
  }

  /// False where no memory of this tier is allocated there.
  bool release(chunkmem::tier where, std::byte* place) noexcept
  {
    const chunkmem::bytes size = ledger_.remove(where, place);
    if (size == chunkmem::bytes{}) return false;
    spoil(place, size);
    give_back(place);
    return true;
  }

  [[nodiscard]] bool holds(const std::byte* place, chunkmem::bytes size) const noexcept
  {
    return ledger_.holding(place, size) != nullptr;
  }

  /// The requested size at `place`, or 0.
  [[nodiscard]] chunkmem::bytes size_of(const std::byte* place) const noexcept
  {
    const auto* const entry = ledger_.holding(place, chunkmem::bytes{1});
    return entry != nullptr && entry->place == place ? entry->size : chunkmem::bytes{};
  }

  static void spoil(std::byte* place, chunkmem::bytes size) noexcept
  {
    std::memset(place, std::to_integer<int>(poison), size.count());
  }

 private:
  static constexpr std::align_val_t alignment{chunkmem::tensor_alignment.count()};
  static void give_back(std::byte* place) noexcept { ::operator delete(place, alignment); }

  chunkmem::backend::tier_ledger ledger_;
};

}  // namespace support
