// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace detail {

/// Records without their type. `less` compares two of them.
struct record_order {
  std::size_t width;  ///< of a record [bytes]
  const void* context;
  bool (*less)(const void* context, const void* left, const void* right);
};

constexpr std::size_t widest_record = 64;  ///< [bytes]

/// Insertion sort. @complexity O(count) if they are sorted already, else O(count * count)
inline void insert_records(std::byte* first, std::size_t count, const record_order& order)
{
  alignas(std::max_align_t) std::byte held[widest_record];
  for (std::size_t next = 1; next < count; ++next) {
    std::memcpy(held, first + next * order.width, order.width);
    std::size_t place = next;
    while (place > 0 && order.less(order.context, held, first + (place - 1) * order.width)) --place;
    std::byte* const gap = first + place * order.width;
    std::memmove(gap + order.width, gap, (next - place) * order.width);
    std::memcpy(gap, held, order.width);
  }
}

/// Puts `held` into the heap below `hole`, whose record is free. The largest record of a heap comes first.
inline void sift_record(std::byte* first, std::size_t count, std::size_t hole, const std::byte* held,
                        const record_order& order)
{
  for (std::size_t child = 2 * hole + 1; child < count; child = 2 * hole + 1) {
    std::byte* larger = first + child * order.width;
    if (child + 1 < count && order.less(order.context, larger, larger + order.width)) ++child, larger += order.width;
    if (!order.less(order.context, held, larger)) break;
    std::memcpy(first + hole * order.width, larger, order.width);
    hole = child;
  }
  std::memcpy(first + hole * order.width, held, order.width);
}

/// Heapsort (Williams 1964), and insertion sort for a few records.
inline void sort_bytes(std::byte* first, std::size_t count, const record_order& order)
{
  if (count < 16) return insert_records(first, count, order);
  alignas(std::max_align_t) std::byte held[widest_record];
  for (std::size_t hole = count / 2; hole-- > 0;) {
    std::memcpy(held, first + hole * order.width, order.width);
    sift_record(first, count, hole, held, order);
  }
  while (--count > 0) {
    std::memcpy(held, first + count * order.width, order.width);
    std::memcpy(first + count * order.width, first, order.width);
    sift_record(first, count, 0, held, order);
  }
}

}  // namespace detail

/// Sorts records for the parts inside. All types of records share one compiled function, where std::sort is compiled
/// anew for each of them: eleven sorts took a tenth of the time that a trainer's compiler needs (bench/NOTES.md).
///
///     sort_records(std::span{moves}, [](const move& left, const move& right) { return left.order < right.order; });
///
/// @param less   a strict weak order. Records that compare equal may change places: the sort is not stable.
///   Where their order matters, `less` has to compare another field too
/// @complexity   O(n log n) calls of `less` through a pointer; nothing is allocated
/// @throws       nothing
template <class Record, class Less>
void sort_records(std::span<Record> records, const Less& less) noexcept
{
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) <= detail::widest_record,
                "records that memcpy can move");
  const auto compare = [](const void* context, const void* left, const void* right) {
    return (*static_cast<const Less*>(context))(*static_cast<const Record*>(left), *static_cast<const Record*>(right));
  };
  detail::sort_bytes(reinterpret_cast<std::byte*>(records.data()), records.size(), {sizeof(Record), &less, compare});
}

}  // namespace chunkmem::inline v0
