// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace checks {

/// Hears of everything and looks at nothing. A policy of one's own may begin with it and replace a few calls.
///
///     struct my_checks : no_checks {
///       void pinned(const pin_event& pin) { std::cerr << "slot " << pin.slot << '\n'; }
///     };
struct no_checks {
  struct place_type {};
  struct scope {
    static constexpr bool is_outermost() noexcept { return true; }
  };

  static constexpr void attach(const surroundings&) noexcept {}
  static constexpr scope enter(const char*, place_type) noexcept { return {}; }
  static constexpr scope enter_release() noexcept { return {}; }
  static constexpr void expect_no_mistake() noexcept {}
  static constexpr void tell_place(error_text&, place_type) noexcept {}

  static constexpr void reset(std::uint32_t, std::uint32_t) noexcept {}
  static constexpr void add_arena(std::span<std::byte>) noexcept {}
  static constexpr void forget_arenas() noexcept {}
  static constexpr void pinned(const pin_event&) noexcept {}
  static constexpr void released(const pin_event&) noexcept {}
  static constexpr bool is_watched(std::uint32_t) noexcept { return false; }
  static constexpr void compare(const pin_event&) noexcept {}
  static constexpr void forget(std::uint32_t) noexcept {}
  static constexpr void forget_all() noexcept {}
  static constexpr void fresh(std::span<std::byte>) noexcept {}
  static constexpr void leased(std::span<std::byte>) noexcept {}
  static constexpr void lease_ended(std::span<std::byte>) noexcept {}
  static constexpr void lend(std::span<std::byte>) noexcept {}
  static constexpr void take_back(std::span<std::byte>) noexcept {}

  static constexpr void gradient_opened(const gradient_event&, bool, bool) noexcept {}
  static constexpr void beta_read(std::uint32_t) noexcept {}
  static constexpr void expect_written(const gradient_event&, std::string_view) noexcept {}
  static constexpr void gradient_gone(std::uint32_t) noexcept {}
  static constexpr void allow_no_gradient(std::uint32_t) noexcept {}
  static constexpr bool may_lack_gradient(std::uint32_t) noexcept { return true; }
};

/// The default: nothing is looked at and nothing is paid.
///
///     manager<backend::host_arena, checks::none> m{memory};  // the same type as manager<backend::host_arena>
struct none {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "none";
  static constexpr bool is_on = false;
  using part = no_checks;
};

static_assert(check_policy<none>);

}  // namespace checks

}  // namespace chunkmem::inline v0
