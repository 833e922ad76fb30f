// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <utility>
#include <variant>

namespace chunkmem::inline v0 {

/// One policy out of a list, chosen when the program runs: what any_eviction, any_layout, any_placement and
/// any_transfer are.
///
///     eviction::any_eviction<eviction::belady, eviction::lru> policy{"lru"};  // config_error where none has this name
///
/// Good for command lines and for tests that walk through all policies with one type of manager; poor on a hot path,
/// since each call finds the chosen one first. A policy of your own joins by being named in the list. The first is the
/// default. Cost: one indirect call for each call; the memory of the largest.
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
  /// A policy by its name, with its default settings. @throws config_error   there is none of that name; says which
  /// there are
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
