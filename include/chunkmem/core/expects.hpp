#pragma once

#include <chunkmem/core/error.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

/// Throws where a caller broke a precondition; the text names the line that checks it.
///
/// A function, not a macro: the location comes from default arguments (clang 14 has no `std::source_location`).
/// @throws usage_error   `condition` is false; nothing was changed
constexpr void expects(bool condition, std::string_view what, const char* file = __builtin_FILE(),
                       unsigned line = static_cast<unsigned>(__builtin_LINE()))
{
  if (condition) [[likely]] return;
  throw usage_error{error_text{} << "chunkmem: " << what << " (at " << std::string_view{file} << ":" << line << ")"};
}

}  // namespace chunkmem::inline v0
