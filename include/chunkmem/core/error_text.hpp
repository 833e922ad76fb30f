// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/printable.hpp>
#include <chunkmem/core/version.hpp>

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// One sentence built in place, so that an error can be thrown when the heap has nothing left.
///
///     throw usage_error{error_text{} << "chunkmem: a tensor of " << size << " B (give it elements)"};
///
/// Names come from files and users: what could end the line or speak to a terminal is written as `\xNN`, see
/// `printable`. Text past the capacity is cut, never allocated; a character or an escape is never cut in two: dots take
/// its place. Cost: no allocation, O(characters).
class error_text {
 public:
  constexpr error_text() = default;

  error_text& operator<<(std::string_view words) noexcept
  {
    while (!words.empty()) {
      const std::size_t length = printable_length(words);
      append(length != 0 ? words.substr(0, length) : detail::escaped_byte{words.front()}.view());
      words.remove_prefix(length != 0 ? length : 1);
    }
    storage_[length_] = '\0';
    return *this;
  }

  /// A whole number in digits, with its sign. A `char` is a character and not its code, a `bool` is a word; bytes
  /// (`std::uint8_t`) are numbers.
  template <std::integral Number>
  error_text& operator<<(Number number) noexcept
  {
    if constexpr (std::same_as<Number, bool>) {
      return *this << std::string_view{number ? "true" : "false"};
    } else if constexpr (std::same_as<Number, char>) {
      return *this << std::string_view{&number, 1};
    } else {
      char digits[20];
      const auto end = std::to_chars(digits, digits + sizeof digits, number);
      return *this << std::string_view{digits, static_cast<std::size_t>(end.ptr - digits)};
    }
  }

  /// The fewest digits that tell it from its neighbours; "nan" and "inf" as they are.
  template <std::floating_point Number>
  error_text& operator<<(Number number) noexcept
  {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number);
    return *this << std::string_view{digits, static_cast<std::size_t>(end.ptr - digits)};
  }

  [[nodiscard]] const char* c_str() const noexcept { return storage_; }
  [[nodiscard]] std::string_view view() const noexcept { return {storage_, length_}; }

 private:
  void append(std::string_view piece) noexcept
  {
    const bool fits = piece.size() <= capacity - length_;
    for (std::size_t index = 0; index < piece.size() && length_ < capacity; ++index)
      storage_[length_++] = fits ? piece[index] : '.';
  }

  static constexpr std::size_t capacity = 511;
  char storage_[capacity + 1] = {};
  std::size_t length_ = 0;
};

}  // namespace chunkmem::inline v0
