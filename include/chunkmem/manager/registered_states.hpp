// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/tensor/name_rules.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Bytes that must survive a restart, by name: those of objects that were given to `use`, and the caller's own.
///
/// `add(owner, ...)` registers all states of an object, `add(name, content)` one of the caller's. A checkpoint visits
/// them by `for_each`. An object that is gone leaves its names, without content: `expect_whole` refuses a save then.
class registered_states {
 public:
  /// Ties the object to this manager and registers its states. Guarantee: strong.
  /// @param add_lists   called between, when nothing but it can throw any more
  /// @throws usage_error   the object is tied already, or a name twice; config_error   no checkpoint could hold a name;
  ///   and what add_lists throws
  template <registrable Owner, class AddLists>
  void add(Owner& owner, AddLists add_lists)
  {
    registration& registered = detail::registration_of(owner);
    expects(!registered.is_tied_to(used_),
            "an object was given to use() again: this manager has it already (call use once)");
    expects(!registered.is_tied(),
            "an object was given to use() again: it counts the updates of its first manager (make one for each "
            "manager)");
    std::vector<named_state> states = states_;
    detail::for_each_state_of(owner, [&](const restart_state& it) {
      append(states, {full_name(detail::name_of_type<Owner>(), it.name), it.content, it.check, used_.next()});
    });
    used_.make_room();
    add_lists();
    states_ = std::move(states);
    used_.add(registered);
  }
  /// The caller's own. @throws usage_error   a name twice; config_error   no checkpoint could hold the name
  void add(std::string_view name, std::span<std::byte> content)
  {
    append(states_, {std::string{name}, content, nullptr, callers_own});
  }

  /// @param what   it is: "an optimizer kernel"   @throws usage_error   this manager was not given it by `use`
  void expect_used(const registration& registered, std::string_view what) const
  {
    if (registered.is_tied_to(used_)) [[likely]]
      return;
    const std::string_view why =
        registered.is_tied()
            ? " that another manager was given (make one for each manager, and give it to use())"
            : " that the manager was not given (call m.use() with it before the first access; a copy is another one)";
    throw usage_error{error_text{} << "chunkmem: a step with " << what << why};
  }
  /// @throws usage_error   the owner of a state was given to `use` and is gone, and the bytes with it
  void expect_whole() const
  {
    for (const named_state& named : states_)
      if (!has_owner(named))
        throw usage_error{
            error_text{} << "chunkmem: the owner of the state " << named.name
                         << " was given to use() and is gone (keep it where it is for as "
                         << "long as its manager is saved or loaded; a copy or a moved one is not known)"};
  }

  /// Calls `visit(name, content)` for each. Where the owner is gone, there is no content.
  template <class Visit>
  void for_each(Visit visit) const
  {
    for (const named_state& named : states_)
      visit(std::string_view{named.name}, has_owner(named) ? named.content : std::span<std::byte>{});
  }
  /// Throws config_error where loaded bytes cannot be right for the state of this name. Null: any bytes can.
  [[nodiscard]] auto check_of(std::string_view name) const noexcept -> void (*)(std::span<const std::byte>)
  {
    for (const named_state& named : states_)
      if (named.name == name) return named.check;
    return nullptr;
  }

 private:
  static constexpr std::size_t callers_own = SIZE_MAX;
  struct named_state {
    std::string name;
    std::span<std::byte> content;
    void (*check)(std::span<const std::byte> loaded) = nullptr;
    std::size_t owner = callers_own;  // among those that were given to use()
  };

  [[nodiscard]] bool has_owner(const named_state& named) const noexcept
  {
    return named.owner == callers_own || used_.has(named.owner);
  }
  static void append(std::vector<named_state>& states, named_state fresh)
  {
    name_rules::expect_state(fresh.name);
    for (const named_state& known : states)
      if (known.name == fresh.name)
        throw usage_error{error_text{} << "chunkmem: two registered states have one name, " << fresh.name
                                       << (fresh.owner != callers_own && known.owner != callers_own
                                               ? " (use one object of each kind: its groups may have other options)"
                                               : " (give the one that state() registers another name)")};
    states.push_back(std::move(fresh));
  }
  [[nodiscard]] static std::string full_name(std::string_view type, std::string_view name)
  {
    return type.empty() ? std::string{name} : std::string{type} + '/' + std::string{name};
  }

  std::vector<named_state> states_;
  registrations used_;
};

}  // namespace chunkmem::inline v0
