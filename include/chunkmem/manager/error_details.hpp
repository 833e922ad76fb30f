// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/trace/recalling_sink.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

namespace chunkmem::inline v0 {

/// What an error is told where details were asked for: where everything lies, and what a recalling sink remembers of
/// before.
///
/// @param names   of tensors, as far as they were given
/// @param most    of everything that is told line by line   @complexity as take_snapshot
template <class Engine>
[[nodiscard]] std::string error_details(const Engine& engine, std::span<const std::string> names, std::size_t most = 24)
{
  std::string text = to_string(take_snapshot_of(engine, names), most);
  if constexpr (recalling_sink<std::remove_cvref_t<decltype(engine.sink())>>)
    text += "last events:\n" + engine.sink().recall(most);
  return text;
}

}  // namespace chunkmem::inline v0
