// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/version.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

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

/// Has a kind and a name.
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

/// One policy out of a list, chosen at run time: the base of any_eviction, any_layout, any_placement and any_transfer.
///
///     eviction::any_eviction<eviction::belady, eviction::lru> policy{"lru"};  // config_error where none has this name
///
/// Good for command lines and for tests that walk through all policies with one type of manager; poor on a hot path,
/// since each call dispatches to the chosen policy. Add a policy of your own to the list. The first is the default.
/// Cost: one indirect call for each call; the memory of the largest.
///
/// @tparam First, Others   of one kind, each with a name of its own
template <class First, class... Others>
  requires(names_itself<First> && (names_itself<Others> && ...) &&
           (std::same_as<typename First::policy_kind, typename Others::policy_kind> && ...))
class policy_choice {
 public:
  using policy_kind = typename First::policy_kind;
  static constexpr std::array<std::string_view, 1 + sizeof...(Others)> names{First::name, Others::name...};

  policy_choice() = default;
  /// A policy with its settings.
  template <class Policy>
    requires(std::same_as<Policy, First> || (std::same_as<Policy, Others> || ...))
  explicit policy_choice(Policy chosen) : which_{std::move(chosen)}
  {
  }
  /// A policy by its name, with its default settings. @throws config_error   there is none with this name; lists the
  /// names
  explicit policy_choice(std::string_view wanted)
  {
    if (!(choose<First>(wanted) || (choose<Others>(wanted) || ...))) refuse(wanted);
  }

  /// The name of the chosen one.
  [[nodiscard]] std::string_view chosen() const noexcept { return names[which_.index()]; }

 protected:
  template <class Call>
  decltype(auto) ask(Call&& call)
  {
    return std::visit(std::forward<Call>(call), which_);
  }
  template <class Call>
  decltype(auto) ask(Call&& call) const
  {
    return std::visit(std::forward<Call>(call), which_);
  }

 private:
  template <class Policy>
  bool choose(std::string_view wanted)
  {
    if (wanted != std::string_view{Policy::name}) return false;
    which_.template emplace<Policy>();
    return true;
  }
  [[noreturn]] static void refuse(std::string_view wanted)
  {
    error_text text;
    text << "chunkmem: there is no policy named " << wanted << " to choose from (take one of:";
    for (const std::string_view name : names) text << " " << name;
    throw config_error{text << ")"};
  }

  std::variant<First, Others...> which_;
};

}  // namespace chunkmem::inline v0
