// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/policy_choice.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace eviction {

/// One eviction policy out of a list, chosen when the program runs: `any_eviction<belady, lru>{"lru"}`.
///
/// Good and poor as policy_choice says; decisions are rare beside accesses, so the indirect call is not felt.
template <eviction_policy... Policies>
class any_eviction : public policy_choice<Policies...> {
 public:
  static constexpr std::string_view name = "any_eviction";
  using policy_choice<Policies...>::policy_choice;

  void reset(std::uint32_t chunks)
  {
    this->ask([&](auto& chosen) { chosen.reset(chunks); });
  }
  void on_profile(const access_record& record)
  {
    this->ask([&](auto& chosen) { chosen.on_profile(record); });
  }
  void enter(const candidate& item) noexcept
  {
    this->ask([&](auto& chosen) { chosen.enter(item); });
  }
  void leave(const candidate& item) noexcept
  {
    this->ask([&](auto& chosen) { chosen.leave(item); });
  }
  [[nodiscard]] chunk_id victim(access_index now) noexcept
  {
    return this->ask([&](auto& chosen) { return chosen.victim(now); });
  }

  [[nodiscard]] std::uint32_t variants() const noexcept
  {
    return this->ask([](const auto& chosen) -> std::uint32_t {
      if constexpr (tuned_eviction<std::remove_cvref_t<decltype(chosen)>>)
        return chosen.variants();
      else
        return 1;
    });
  }
  void choose(std::uint32_t variant) noexcept
  {
    this->ask([&](auto& chosen) {
      if constexpr (tuned_eviction<std::remove_cvref_t<decltype(chosen)>>) chosen.choose(variant);
    });
  }
};

}  // namespace eviction

}  // namespace chunkmem::inline v0
