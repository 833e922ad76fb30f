// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>
#include <type_traits>

namespace chunkmem::inline v0 {

template <class Wanted, class... Choices>
inline constexpr bool is_one_of = (std::same_as<Wanted, Choices> || ...);

/// The value of type `Policy` among those given, or a default one.
template <class Policy>
[[nodiscard]] Policy policy_value()
{
  static_assert(std::default_initializable<Policy>,
                "chunkmem: a policy of this manager needs settings: give a value of it to the constructor");
  return Policy{};
}
template <class Policy, class First, class... Rest>
[[nodiscard]] Policy policy_value(const First& first, const Rest&... rest)
{
  if constexpr (std::same_as<Policy, First>)
    return first;
  else
    return policy_value<Policy>(rest...);
}

}  // namespace chunkmem::inline v0
