// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <exception>
#include <string>
#include <utility>

namespace support {

/// The sentence of the `Error` that `call()` throws. Empty where `call()` throws nothing. Other errors pass through.
///
///     CHECK_THAT(support::refusal([&] { m.drop(tensor); }), ContainsSubstring("is pinned"));
template <class Error = chunkmem::error, class Call>
[[nodiscard]] std::string refusal(Call&& call)
{
  try {
    (void)std::forward<Call>(call)();
  } catch (const Error& refused) {
    return refused.what();
  }
  return {};
}

/// The complaint that `call()` returns, or the sentence of the error that it throws.
template <class Call>
[[nodiscard]] std::string complaint_of(Call&& call)
{
  try {
    return std::forward<Call>(call)();
  } catch (const std::exception& failed) {
    return failed.what();
  }
}

}  // namespace support
