#pragma once

#include <chunkmem/core/version.hpp>

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// One sentence built in place, so that an error can be thrown when the heap has nothing left.
///
/// Text past the capacity is cut, never allocated. Cost: no allocation, O(characters).
class error_text {
 public:
  constexpr error_text() = default;

  error_text& operator<<(std::string_view words) noexcept
  {
    const std::size_t room = capacity - length_;
    const std::size_t taken = words.size() < room ? words.size() : room;
    for (std::size_t i = 0; i < taken; ++i) storage_[length_ + i] = words[i];
    length_ += taken;
    storage_[length_] = '\0';
    return *this;
  }

  error_text& operator<<(std::uint64_t number) noexcept
  {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof digits, number);
    return *this << std::string_view{digits, static_cast<std::size_t>(end.ptr - digits)};
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
  static constexpr std::size_t capacity = 511;
  char storage_[capacity + 1] = {};
  std::size_t length_ = 0;
};

}  // namespace chunkmem::inline v0
