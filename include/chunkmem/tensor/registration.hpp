// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>
#include <chunkmem/tensor/missed_updates.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

/// Bytes that checkpoints save and load, with the name that their owner gives them.
///
///     struct my_data {
///       void for_each_state(auto visit) { visit(restart_state{"cursor", std::as_writable_bytes(std::span{cursor})}); }
///       std::array<std::uint64_t, 1> cursor{};
///       registration registered;
///     };
struct restart_state {
  std::string_view
      name;  ///< after the name of the owner's type, where the type has one: "updates" of adam is "adam/updates"
  std::span<std::byte> content;  ///< part of the owner, which must not move
  /// Throws config_error where loaded bytes cannot be right. Null: any bytes can.
  void (*check)(std::span<const std::byte> loaded) = nullptr;
  /// Or a number for each parameter: a checkpoint holds those that are not zero, each under `name` and the name of its
  /// tensor. Part of the owner too. The content, if any, is that of another state then: the number of a parameter whose
  /// lists start again in a load.
  missed_updates* by_tensor = nullptr;
  /// The content never changes: a load gives the loaded bytes to `check`, and leaves the content. A checkpoint without
  /// it counts as zeros, and zeros are not written.
  bool is_constant = false;
};

class registration;

/// The objects that were given to a manager by `use`: the manager's side of the ties.
///
///     registrations given;
///     given.make_room();
///     given.add(registered);
class registrations {
 public:
  registrations() noexcept = default;
  registrations(const registrations&) = delete;
  ~registrations();

  /// Makes room for one more object. Guarantee: strong.
  void make_room() { owners_.reserve(owners_.size() + 1); }
  /// The number of the next object.
  [[nodiscard]] std::size_t next() const noexcept { return owners_.size(); }
  /// @pre make_room was called, and the owner is not tied
  void add(registration& owner) noexcept;
  /// The owner has not ended.
  [[nodiscard]] bool has(std::size_t number) const noexcept { return owners_[number] != nullptr; }

 private:
  friend class registration;
  std::vector<registration*> owners_;  // null: gone
};

/// Ties an object to the manager to which it was given by `use`, and notifies each of the two when the other one ends.
///
///     struct my_kernel { registration registered; };
///
/// The object has it as a public member `registered`. The first `use` ties the object to that manager for good. A copy
/// of the object is not tied, and an assignment keeps the tie of its target: so a tied object must not move. Source:
/// connections of signals that end with either side (Boost.Signals2). Cost: no allocation.
/// @threads   the caller of the manager
class registration {
 public:
  registration() noexcept = default;
  registration(const registration&) noexcept {}
  registration& operator=(const registration&) noexcept { return *this; }
  ~registration()
  {
    if (with_ != nullptr) with_->owners_[number_] = nullptr;
  }

  /// The object was given to a manager, which may have ended.
  [[nodiscard]] bool is_tied() const noexcept { return is_tied_; }
  [[nodiscard]] bool is_tied_to(const registrations& manager) const noexcept { return with_ == &manager; }

 private:
  friend class registrations;
  registrations* with_ = nullptr;  // null: no manager, or one that has ended
  std::size_t number_ = 0;
  bool is_tied_ = false;
};

inline registrations::~registrations()
{
  for (registration* const owner : owners_)
    if (owner != nullptr) owner->with_ = nullptr;
}
inline void registrations::add(registration& owner) noexcept
{
  owner.with_ = this;
  owner.number_ = owners_.size();
  owner.is_tied_ = true;
  owners_.push_back(&owner);
}

namespace detail {

/// The registration of an object, or of the progress that an optimizer kernel has.
template <class Owner>
[[nodiscard]] constexpr registration& registration_of(Owner& owner) noexcept
{
  if constexpr (requires {
                  {
                    owner.progress.registered
                  } -> std::same_as<registration&>;
                })
    return owner.progress.registered;  // what a step asks for
  else
    return owner.registered;
}

/// Calls `visit(state)` for each state of an object, and of the progress that an optimizer kernel has.
template <class Owner, class Visit>
void for_each_state_of(Owner& owner, Visit visit)
{
  if constexpr (requires { owner.progress.for_each_state(visit); }) owner.progress.for_each_state(visit);
  if constexpr (requires { owner.for_each_state(visit); }) owner.for_each_state(visit);
}

/// The prefix of the type's states in files, or empty.
template <class Owner>
[[nodiscard]] constexpr std::string_view name_of_type() noexcept
{
  if constexpr (requires { std::string_view{Owner::name}; })
    return Owner::name;
  else
    return {};
}

}  // namespace detail

/// An object for `use` of a manager: an optimizer kernel, a loss scale, learning rates.
///
/// Laws: it has a member `registered`, or a member `progress` that has one; `for_each_state(visit)`, which is optional,
/// calls `visit(restart_state)` for each run of its bytes that checkpoints save, always the same ones; `lists()`, which
/// is optional too, names its lists for each parameter.
template <class Owner>
concept registrable = requires(Owner& owner) {
  {
    owner.registered
  } -> std::same_as<registration&>;
} || requires(Owner& owner) {
  {
    owner.progress.registered
  } -> std::same_as<registration&>;
};

}  // namespace chunkmem::inline v0
