// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace checks {

/// The functions of a manager that the part of a check policy may call. All may be null.
///
///     part.attach({.manager = manager, .settle = settle});
struct surroundings {
  void* manager = nullptr;
  /// Waits for the built-in agents of a backend, but not for adopted ones, which may wait for other ranks: a pin or
  /// lease for an adopted agent ends when that agent has done its work so far.
  void (*settle)(void* manager) noexcept = nullptr;
  /// Writes which tensor a slot is, and in which list: tensor 'wte' (value).
  void (*describe)(void* manager, std::uint32_t slot, error_text& text) noexcept = nullptr;
};

/// A pin, for checks.
///
///     struct my_checks : no_checks {
///       void released(const pin_event& pin) noexcept { std::cerr << "slot " << pin.slot << " was released\n"; }
///     };
struct pin_event {
  std::uint32_t slot = 0;  ///< the tensor in its list
  std::uint32_t cell = 0;  ///< its bytes: another slot's where it shares them
  std::span<std::byte> content;
  access how = access::read;
  bool retained = true;  ///< these bytes do not change without a pin; false: ranks may change them
};

/// A gradient, for checks.
///
///     struct my_checks : no_checks {
///       void expect_written(const gradient_event& of, std::string_view) { std::cerr << "slot " << of.slot << '\n'; }
///     };
struct gradient_event {
  std::uint32_t parameter = 0;
  std::uint32_t slot = 0;
  std::span<std::byte> content;  ///< empty: the calling thread cannot read it
  dtype type = dtype::float32;
};

}  // namespace checks

namespace detail {

template <class Part>
concept hears_calls =
    requires(Part& part, const checks::surroundings& about, typename Part::place_type from, error_text& text) {
      part.attach(about);
      part.enter("a call", from);
      {
        part.enter_release()
      } noexcept;
      part.expect_no_mistake();
      part.tell_place(text, from);
    };
template <class Part>
concept hears_bytes =
    requires(Part& part, std::span<std::byte> content, const checks::pin_event& pin, std::uint32_t number) {
      part.reset(number, number);
      {
        part.add_arena(content)
      };
      {
        part.forget_arenas()
      } noexcept;
      {
        part.pinned(pin)
      };
      {
        part.released(pin)
      } noexcept;
      {
        part.is_watched(number)
      } noexcept -> std::same_as<bool>;
      {
        part.compare(pin)
      } noexcept;
      {
        part.forget(number)
      } noexcept;
      {
        part.forget_all()
      } noexcept;
      {
        part.fresh(content)
      } noexcept;
      {
        part.leased(content)
      };
      {
        part.lease_ended(content)
      } noexcept;
      {
        part.lend(content)
      } noexcept;
      {
        part.take_back(content)
      } noexcept;
    };
template <class Part>
concept hears_gradients = requires(Part& part, const checks::gradient_event& gradient, std::uint32_t number) {
  part.gradient_opened(gradient, true, true);
  {
    part.beta_read(number)
  } noexcept;
  part.expect_written(gradient, "a call");
  {
    part.gradient_gone(number)
  } noexcept;
  part.allow_no_gradient(number);
  {
    part.may_lack_gradient(number)
  } noexcept -> std::same_as<bool>;
};

}  // namespace detail

/// Observes a manager's calls, pins and gradients, to find mistakes of its caller.
///
/// `is_on` is false for a policy that checks nothing: then none of its calls is compiled. Its `part` lives in the
/// manager. Where the policy is on, copies are finished synchronously, and pins and releases wait for agents. They wait
/// for no other rank, except where a gather or a sum of a model over ranks begins, which is then synchronous too.
template <class Checks>
concept check_policy = names_itself<Checks> && std::same_as<typename Checks::policy_kind, checks_kind> &&
                       requires {
                         {
                           Checks::is_on
                         } -> std::convertible_to<bool>;
                         typename Checks::part;
                         typename Checks::part::place_type;
                       } && detail::hears_calls<typename Checks::part> && detail::hears_bytes<typename Checks::part> &&
                       detail::hears_gradients<typename Checks::part>;

namespace checks {

/// Accepts every call and checks nothing. Your own policy may derive from it and replace a few calls.
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

/// The default: no checks and no cost.
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
