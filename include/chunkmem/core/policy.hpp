// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

/// Kinds of policy. A model opts in with `using policy_kind = eviction_kind;`, so that a mistake inside it reads
/// "lacks victim" and not "matches no slot".
struct eviction_kind {};
struct placement_kind {};
struct transfer_kind {};
struct layout_kind {};
struct rules_kind {};
struct sink_kind {};
struct gradient_kind {};
struct communicator_kind {};
struct ownership_kind {};
struct checks_kind {};
struct activation_kind {};
struct pipeline_kind {};

/// Says of itself which kind it is and what it is called.
template <class Policy>
concept names_itself = requires {
  typename Policy::policy_kind;
  {
    Policy::name
  } -> std::convertible_to<std::string_view>;
};

namespace detail {

template <class Policy>
struct kind_of_policy {
  using type = void;
};
template <names_itself Policy>
struct kind_of_policy<Policy> {
  using type = typename Policy::policy_kind;
};

template <class Kind, class... Policies>
inline constexpr std::size_t count_of_kind =
    (0 + ... + std::size_t{std::same_as<typename kind_of_policy<Policies>::type, Kind>});

template <class Kind, class Default, class... Policies>
struct pick {
  using type = Default;
};
template <class Kind, class Default, class First, class... Rest>
struct pick<Kind, Default, First, Rest...> {
  using type = typename std::conditional_t<std::same_as<typename kind_of_policy<First>::type, Kind>,
                                           std::type_identity<First>, pick<Kind, Default, Rest...>>::type;
};

/// The kinds that a host class accepts; `check` turns each mistake about the list into one sentence.
template <class... Kinds>
struct accepts {
  template <class... Policies>
  static consteval bool check()
  {
    static_assert((names_itself<Policies> && ...),
                  "chunkmem: an argument is no policy: give it a policy_kind and a name, or remove it");
    static_assert(
        (!names_itself<Policies> || ...) || (is_known<Policies>() && ...),
        "chunkmem: a policy of an unknown kind: use one of the kinds in core/policy.hpp that this class accepts");
    static_assert(((count_of_kind<Kinds, Policies...> <= 1) && ...),
                  "chunkmem: two policies of one kind: keep one of them");
    return true;
  }

 private:
  template <class Policy>
  static consteval bool is_known()
  {
    return (std::same_as<typename kind_of_policy<Policy>::type, Kinds> || ...);
  }
};

}  // namespace detail

/// The policy of kind `Kind` in the list, or `Default` where the list names none. Order never matters.
template <class Kind, class Default, class... Policies>
using pick_policy = typename detail::pick<Kind, Default, Policies...>::type;

}  // namespace chunkmem::inline v0
