// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error_text.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace checks {

/// The line of the caller's program that made a call. As a defaulted last parameter it names the place of the call.
///
///     const auto where = [](const call_place& from = call_place{}) { return from.line; };
///     std::cout << where() << '\n';  // the number of this line
///
/// Not `std::source_location`, which clang 14 lacks.
struct call_place {
  const char* file = nullptr;
  unsigned line = 0;

  explicit constexpr call_place(const char* from = __builtin_FILE(),
                                unsigned index = static_cast<unsigned>(__builtin_LINE())) noexcept
      : file{from}, line{index}
  {
  }
};

/// For a sentence: "trainer.cpp:12", without folders.
inline error_text& operator<<(error_text& text, const call_place& place) noexcept
{
  const std::string_view path{place.file};
  const std::size_t slash = path.rfind('/');
  return text << path.substr(slash == std::string_view::npos ? 0 : slash + 1) << ":" << std::uint64_t{place.line};
}

}  // namespace checks

}  // namespace chunkmem::inline v0
