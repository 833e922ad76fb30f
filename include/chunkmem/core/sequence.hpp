// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace detail {

/// The memory of a `sequence`, as bytes. It is no template, so that a program compiles its code once.
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

  /// Makes room for `wanted` elements, exactly. @throws std::bad_alloc   nothing changed
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

/// A growing row of records in one piece of memory, for the parts inside. It has those members of std::vector that
/// they use, and iterators are pointers. One object file compiles the code behind all element types once: a trainer
/// that includes the manager compiles in two thirds of the time that std::vector takes (bench/NOTES.md).
///
/// Use it for members and temporaries of a header. Where a user's code gives or takes elements, use std::span or
/// std::vector.
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
    sequence taken{std::move(other)};  // the other one is empty, and what was here ends
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

/// Takes out the elements for which `is_out` is true; the others keep their order.
template <class Element, class Predicate>
void erase_if(sequence<Element>& elements, const Predicate& is_out)
{
  std::size_t kept = 0;
  for (std::size_t index = 0; index < elements.size(); ++index)
    if (!is_out(elements[index])) elements[kept++] = elements[index];
  elements.erase(elements.begin() + kept, elements.end());
}

}  // namespace chunkmem::inline v0
