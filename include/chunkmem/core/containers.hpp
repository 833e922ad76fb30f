// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

// For the library's own parts: sequence, index_set, and sort_records().

namespace chunkmem::inline v0 {

namespace detail {

/// The memory of a `sequence`, as bytes. Not a template, so that a program compiles its code once.
class sequence_store {
 public:
  sequence_store() = default;
  sequence_store(const sequence_store&) = delete;
  sequence_store& operator=(const sequence_store&) = delete;
  ~sequence_store() { ::operator delete(begin_); }

  [[nodiscard, gnu::always_inline]] void* begin() const noexcept { return begin_; }
  [[nodiscard, gnu::always_inline]] std::size_t count() const noexcept { return count_; }
  [[nodiscard, gnu::always_inline]] std::size_t room() const noexcept { return room_; }
  void count(std::size_t count) noexcept { count_ = count; }  ///< @pre count <= room()

  void swap(sequence_store& other) noexcept
  {
    std::swap(begin_, other.begin_);
    std::swap(count_, other.count_);
    std::swap(room_, other.room_);
  }

  /// Makes room for exactly `wanted` elements. @throws std::bad_alloc   nothing changed
  void reserve(std::size_t wanted, std::size_t width)
  {
    if (wanted <= room_) return;
    if (wanted > std::numeric_limits<std::size_t>::max() / 2 / width) throw std::bad_alloc{};
    void* const fresh = ::operator new(wanted* width);
    if (count_ != 0) std::memcpy(fresh, begin_, count_ * width);
    ::operator delete(begin_);
    begin_ = fresh;
    room_ = wanted;
  }
  /// Makes room for this many elements more. The room doubles at least, so that n elements cost O(n).
  void grow(std::size_t more, std::size_t width)
  {
    const std::size_t wanted = count_ + more;
    if (wanted > room_) reserve(wanted < 2 * room_ ? 2 * room_ : wanted < 4 ? 4 : wanted, width);
  }

  void assign(const void* from, std::size_t count, std::size_t width)
  {
    if (count > room_) {
      sequence_store fresh;
      fresh.reserve(count, width);
      swap(fresh);
    }
    if (count != 0) std::memmove(begin_, from, count * width);
    count_ = count;
  }
  /// Opens a gap of one element. @return   its memory
  void* open(std::size_t place, std::size_t width)
  {
    grow(1, width);
    std::byte* const gap = static_cast<std::byte*>(begin_) + place * width;
    std::memmove(gap + width, gap, (count_ - place) * width);
    ++count_;
    return gap;
  }
  void erase(std::size_t place, std::size_t count, std::size_t width) noexcept
  {
    if (count == 0) return;
    std::byte* const gap = static_cast<std::byte*>(begin_) + place * width;
    std::memmove(gap, gap + count * width, (count_ - place - count) * width);
    count_ -= count;
  }

 private:
  void* begin_ = nullptr;
  std::size_t count_ = 0, room_ = 0;  // elements
};

}  // namespace detail

/// A growing array of records, for the library's own parts. It has the members of std::vector that these use, and
/// iterators are pointers. All element types share code that is compiled once: a trainer that includes the manager
/// compiles in two thirds of the time that std::vector takes (bench/NOTES.md).
///
/// Use it for members and temporaries of a header. In interfaces for users, use std::span or std::vector.
///
///     sequence<std::uint32_t> owners(frames, nobody);
///     owners.push_back(chunk);
///
/// @tparam Element   trivially copyable, aligned as operator new aligns
/// Errors: std::bad_alloc, and nothing changed.
/// Cost: as std::vector; a copy is one memcpy.
template <class Element>
class sequence {
 public:
  using value_type = Element;
  using iterator = Element*;

  sequence() = default;
  explicit sequence(std::size_t count, const Element& value = Element{}) { resize(count, value); }
  sequence(std::initializer_list<Element> values) { store_.assign(values.begin(), values.size(), sizeof(Element)); }
  explicit sequence(std::span<const Element> values) { assign(values); }
  sequence(const sequence& other) { store_.assign(other.data(), other.size(), sizeof(Element)); }
  sequence(sequence&& other) noexcept { store_.swap(other.store_); }
  sequence& operator=(const sequence& other)
  {
    store_.assign(other.data(), other.size(), sizeof(Element));
    return *this;
  }
  sequence& operator=(sequence&& other) noexcept
  {
    sequence taken{std::move(other)};  // the other one is empty, and the old elements end
    store_.swap(taken.store_);
    return *this;
  }
  ~sequence() = default;

  [[nodiscard, gnu::always_inline]] Element* data() noexcept { return static_cast<Element*>(store_.begin()); }
  [[nodiscard, gnu::always_inline]] const Element* data() const noexcept
  {
    return static_cast<const Element*>(store_.begin());
  }
  [[nodiscard, gnu::always_inline]] std::size_t size() const noexcept { return store_.count(); }
  [[nodiscard, gnu::always_inline]] std::size_t capacity() const noexcept { return store_.room(); }
  [[nodiscard, gnu::always_inline]] bool empty() const noexcept { return store_.count() == 0; }

  [[nodiscard, gnu::always_inline]] Element* begin() noexcept { return data(); }
  [[nodiscard, gnu::always_inline]] Element* end() noexcept { return data() + size(); }
  [[nodiscard, gnu::always_inline]] const Element* begin() const noexcept { return data(); }
  [[nodiscard, gnu::always_inline]] const Element* end() const noexcept { return data() + size(); }
  [[nodiscard, gnu::always_inline]] Element& operator[](std::size_t index) noexcept { return data()[index]; }
  [[nodiscard, gnu::always_inline]] const Element& operator[](std::size_t index) const noexcept
  {
    return data()[index];
  }
  [[nodiscard, gnu::always_inline]] Element& front() noexcept { return *data(); }
  [[nodiscard, gnu::always_inline]] const Element& front() const noexcept { return *data(); }
  [[nodiscard, gnu::always_inline]] Element& back() noexcept { return data()[size() - 1]; }
  [[nodiscard, gnu::always_inline]] const Element& back() const noexcept { return data()[size() - 1]; }

  void reserve(std::size_t count) { store_.reserve(count, sizeof(Element)); }
  void clear() noexcept { store_.count(0); }
  void pop_back() noexcept { store_.count(size() - 1); }
  void push_back(const Element& value)
  {
    const Element copy = value;  // it may lie in this sequence
    if (size() == capacity()) store_.grow(1, sizeof(Element));
    ::new (static_cast<void*>(data() + size())) Element(copy);
    store_.count(size() + 1);
  }
  void resize(std::size_t count, const Element& value = Element{})
  {
    const Element copy = value;
    if (count > size()) store_.grow(count - size(), sizeof(Element));
    for (std::size_t index = size(); index < count; ++index) ::new (static_cast<void*>(data() + index)) Element(copy);
    store_.count(count);
  }
  void assign(std::size_t count, const Element& value)
  {
    const Element copy = value;
    clear();
    resize(count, copy);
  }
  /// @pre the values do not lie in this sequence, here and below
  void append(std::span<const Element> values)
  {
    const std::size_t before = size();
    store_.grow(values.size(), sizeof(Element));
    if (!values.empty()) std::memcpy(static_cast<void*>(data() + before), values.data(), values.size_bytes());
    store_.count(before + values.size());
  }
  void assign(std::span<const Element> values) { store_.assign(values.data(), values.size(), sizeof(Element)); }
  Element* insert(const Element* place, const Element& value)
  {
    const Element copy = value;
    return ::new (store_.open(static_cast<std::size_t>(place - data()), sizeof(Element))) Element(copy);
  }
  Element* erase(const Element* place) noexcept { return erase(place, place + 1); }
  Element* erase(const Element* first, const Element* last) noexcept
  {
    const std::size_t place = static_cast<std::size_t>(first - data());
    store_.erase(place, static_cast<std::size_t>(last - first), sizeof(Element));
    return data() + place;
  }
  void swap(sequence& other) noexcept { store_.swap(other.store_); }

  [[nodiscard]] bool operator==(const sequence& other) const { return has_elements(other.data(), other.size()); }
  [[nodiscard]] friend bool operator==(const sequence& elements, std::span<const Element> others)
  {
    return elements.has_elements(others.data(), others.size());
  }

 private:
  [[nodiscard]] bool has_elements(const Element* others, std::size_t count) const
  {
    if (size() != count) return false;
    for (std::size_t index = 0; index < count; ++index)
      if (!(data()[index] == others[index])) return false;
    return true;
  }

  static_assert(std::is_trivially_copyable_v<Element>,
                "a sequence of elements that memcpy cannot copy (use std::vector)");
  static_assert(alignof(Element) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__, "a sequence of elements of a larger alignment");

  detail::sequence_store store_;
};

/// Removes the elements for which `is_out` is true; the others keep their order.
template <class Element, class Predicate>
void erase_if(sequence<Element>& elements, const Predicate& is_out)
{
  std::size_t kept = 0;
  for (std::size_t index = 0; index < elements.size(); ++index)
    if (!is_out(elements[index])) elements[kept++] = elements[index];
  elements.erase(elements.begin() + kept, elements.end());
}

/// A set of small integers with fast search for the next member: a tree of 64-bit words.
///
///     index_set free;
///     free.reset(1'000);
///     free.insert(7);
///     const std::uint32_t lowest = free.first_from(0);  // 7
///
/// A million members need four levels; insert and erase touch one word unless a word becomes empty or stops being so.
/// Good for free frames (the lowest) and for Belady keys (the last before now). Memory: 1.02 bits per possible member.
/// Cost: O(levels), no allocation after `reset`.
class index_set {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// Forgets everything and makes room for the members 0 to `universe` - 1. Allocates only when it grows.
  void reset(std::uint32_t universe)
  {
    std::size_t words = 0;
    levels_ = 0;
    for (std::size_t members = universe;; members = (members + 63) / 64) {
      first_word_[levels_++] = words;
      words += (members + 63) / 64 + 1;
      if (members < 64) break;  // the top word keeps a spare bit, so that no end of a range falls beyond it
    }
    words_.assign(words, 0);
    universe_ = universe;
  }

  [[nodiscard]] bool contains(std::uint32_t member) const noexcept
  {
    return (words_[member >> 6] >> (member & 63) & 1) != 0;
  }
  [[nodiscard]] bool empty() const noexcept { return words_.empty() || words_[first_word_[levels_ - 1]] == 0; }

  void insert(std::uint32_t member) noexcept
  {
    std::uint64_t& word = words_[member >> 6];
    const std::uint64_t before = word;
    word = before | std::uint64_t{1} << (member & 63);
    if (before == 0) [[unlikely]]
      climb(member >> 6, true);
  }

  void erase(std::uint32_t member) noexcept
  {
    std::uint64_t& word = words_[member >> 6];
    word &= ~(std::uint64_t{1} << (member & 63));
    if (word == 0) [[unlikely]]
      climb(member >> 6, false);
  }

  /// The smallest member that is not below `start`, or none.
  [[nodiscard]] std::uint32_t first_from(std::uint32_t start) const noexcept
  {
    if (start >= universe_) return none;
    std::size_t index = start;
    for (std::size_t level = 0; level < levels_; ++level) {
      const std::uint64_t rest = word_at(level, index >> 6) & (~std::uint64_t{0} << (index & 63));
      if (rest != 0)
        return descend(level, (index & ~std::size_t{63}) | static_cast<std::size_t>(std::countr_zero(rest)), false);
      index = (index >> 6) + 1;
    }
    return none;
  }

  /// The largest member below `end`, or none.
  [[nodiscard]] std::uint32_t last_before(std::uint32_t end) const noexcept
  {
    std::size_t index = end < universe_ ? end : universe_;
    for (std::size_t level = 0; level < levels_ && index > 0; ++level) {
      const std::uint64_t kept = (index & 63) != 0 ? ~(~std::uint64_t{0} << (index & 63)) : 0;
      const std::uint64_t rest = word_at(level, index >> 6) & kept;
      if (rest != 0)
        return descend(level, (index & ~std::size_t{63}) | (63 - static_cast<std::size_t>(std::countl_zero(rest))),
                       true);
      index >>= 6;
    }
    return none;
  }

  [[nodiscard]] bool operator==(const index_set& other) const noexcept { return words_ == other.words_; }

 private:
  [[nodiscard]] std::uint64_t word_at(std::size_t level, std::size_t word) const noexcept
  {
    return words_[first_word_[level] + word];
  }

  [[gnu::noinline]] void climb(std::size_t index, bool occupied) noexcept
  {
    for (std::size_t level = 1; level < levels_; ++level, index >>= 6) {
      std::uint64_t& word = words_[first_word_[level] + (index >> 6)];
      const std::uint64_t before = word;
      const std::uint64_t bit = std::uint64_t{1} << (index & 63);
      word = occupied ? before | bit : before & ~bit;
      if ((occupied ? before : word) != 0) return;
    }
  }

  [[nodiscard]] std::uint32_t descend(std::size_t level, std::size_t index, bool last) const noexcept
  {
    while (level-- > 0) {
      const std::uint64_t word = word_at(level, index);
      index = index << 6 | static_cast<std::size_t>(last ? 63 - std::countl_zero(word) : std::countr_zero(word));
    }
    return static_cast<std::uint32_t>(index);
  }

  sequence<std::uint64_t> words_;
  std::size_t first_word_[6] = {};
  std::size_t levels_ = 1;
  std::uint32_t universe_ = 0;
};

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

/// Sorts records of the library's own parts. All types of records share one compiled function, where std::sort is
/// compiled for each type: eleven sorts took a tenth of a trainer's compile time (bench/NOTES.md).
///
///     sort_records(std::span{moves}, [](const move& left, const move& right) { return left.order < right.order; });
///
/// @param less   a strict weak order. The sort is not stable: where the order of equal records matters, `less` has to
///   compare another field too
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
