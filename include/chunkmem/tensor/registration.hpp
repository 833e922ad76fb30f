#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// Bytes that must survive a restart, as the object that owns them names them.
struct restart_state {
  std::string_view name;         ///< after the name of the owner's type, where the type has one: "updates" of adam is "adam/updates"
  std::span<std::byte> content;  ///< part of the owner, which stays where it is
  /// Throws config_error where loaded bytes cannot be right. Null: any bytes can.
  void (*check)(std::span<const std::byte> loaded) = nullptr;
};

/// Ties an object to the manager that it was given to by `use`, and tells each of the two that the other is gone.
///
/// The object has it as a public member `registered`. The first `use` ties the object to that manager for good. A copy
/// of the object is not tied, and an assignment keeps the tie of its target: so a tied object stays where it is.
/// Source: connections of signals that end with either side (Boost.Signals2). Cost: one allocation for each `use`.
/// @threads   the caller of the manager
class registration {
 public:
  /// What both sides know. Each of them clears its own half when it ends.
  struct tie {
    const void* manager = nullptr;
    bool has_owner = true;
  };

  registration() noexcept = default;
  registration(const registration&) noexcept {}
  registration& operator=(const registration&) noexcept { return *this; }
  ~registration()
  {
    if (tie_ != nullptr) tie_->has_owner = false;
  }

  /// It was given to a manager, which may be gone.
  [[nodiscard]] bool is_tied() const noexcept { return tie_ != nullptr; }
  [[nodiscard]] bool is_tied_to(const void* manager) const noexcept { return tie_ != nullptr && tie_->manager == manager; }
  /// @param made   by the manager   @pre it is not tied
  void take(std::shared_ptr<tie> made) noexcept { tie_ = std::move(made); }

 private:
  std::shared_ptr<tie> tie_;
};

namespace detail {

/// The registration of an object, or of the progress that an optimizer kernel has.
template <class Owner>
[[nodiscard]] constexpr registration& registration_of(Owner& owner) noexcept
{
  if constexpr (requires { { owner.registered } -> std::same_as<registration&>; }) return owner.registered;
  else return owner.progress.registered;
}

/// Calls `visit(state)` for each state of an object, and of the progress that an optimizer kernel has.
template <class Owner, class Visit>
void for_each_state_of(Owner& owner, Visit visit)
{
  if constexpr (requires { owner.progress.for_each_state(visit); }) owner.progress.for_each_state(visit);
  if constexpr (requires { owner.for_each_state(visit); }) owner.for_each_state(visit);
}

/// What files call the type before its states, or nothing.
template <class Owner>
[[nodiscard]] constexpr std::string_view name_of_type() noexcept
{
  if constexpr (requires { std::string_view{Owner::name}; }) return Owner::name;
  else return {};
}

}  // namespace detail

/// An object that a manager can be given by `use`: an optimizer kernel, a loss scale, learning rates.
///
/// Laws: it has a member `registered`, or a member `progress` that has one; `for_each_state(visit)`, which is optional,
/// calls `visit(restart_state)` for each run of its bytes that must survive a restart, always the same ones; `lists()`,
/// which is optional too, names what is kept beside each parameter.
template <class Owner>
concept registrable = requires(Owner& owner) { { owner.registered } -> std::same_as<registration&>; } ||
                      requires(Owner& owner) { { owner.progress.registered } -> std::same_as<registration&>; };

}  // namespace chunkmem::inline v0
