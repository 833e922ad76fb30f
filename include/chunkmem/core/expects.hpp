// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

/// Throws where a caller broke a precondition. The text says which, and what to change.
///
/// The place in the source is left out: it would be a line of this library, where the caller has nothing to mend.
/// @throws usage_error   `condition` is false; nothing was changed
constexpr void expects(bool condition, std::string_view what)
{
  if (condition) [[likely]]
    return;
  throw usage_error{error_text{} << "chunkmem: " << what};
}

}  // namespace chunkmem::inline v0
