// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/missed_updates.hpp>
#include <chunkmem/tensor/registration.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// The bytes that checkpoints save and load, by name: those of objects that were given to `use`, and the caller's own.
///
/// `add(owner, ...)` registers all states of an object, `add(name, content)` one state of the caller. A checkpoint
/// visits them by `for_each`. An object that has ended leaves its names, without content: `expect_whole` then refuses a
/// save.
class registered_states {
 public:
  /// Ties the object to this manager and registers its states. Guarantee: strong.
  /// @param add_lists   called after all checks and allocations: nothing after it can throw
  /// @throws usage_error   the object is tied already, or a name twice; config_error   no checkpoint could hold a name;
  ///   and the errors of add_lists
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
      append(states, {full_name(detail::name_of_type<Owner>(), it.name), it.content, it.check, used_.next(),
                      it.by_tensor, it.is_constant});
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

  /// @param what   the object, such as "an optimizer kernel"   @throws usage_error   it was not given to this manager
  ///   by `use`
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
  /// @throws usage_error   the owner of a state was given to `use` and has ended, and the bytes with it
  void expect_whole() const
  {
    for (const named_state& named : states_)
      if (!has_owner(named))
        throw usage_error{
            error_text{} << "chunkmem: the owner of the state " << named.name
                         << " was given to use() and is gone (keep it where it is for as "
                         << "long as its manager is saved or loaded; a copy or a moved object is not registered)"};
  }

  /// Calls `visit(name, content)` for each state that is a run of bytes. Where the owner has ended, `content` is empty.
  template <class Visit>
  void for_each(Visit visit) const
  {
    for (const named_state& named : states_)
      if (named.by_tensor == nullptr)
        visit(std::string_view{named.name}, has_owner(named) ? named.content : std::span<std::byte>{});
  }
  /// Calls `visit(name, numbers, content)` for each state with a number for each parameter, where its owner lives.
  template <class Visit>
  void for_each_by_tensor(Visit visit) const
  {
    for (const named_state& named : states_)
      if (named.by_tensor != nullptr && has_owner(named))
        visit(std::string_view{named.name}, *named.by_tensor, named.content);
  }
  /// Throws config_error where loaded bytes cannot be right for the state of this name. Null: any bytes can.
  [[nodiscard]] auto check_of(std::string_view name) const noexcept -> void (*)(std::span<const std::byte>)
  {
    for (const named_state& named : states_)
      if (named.by_tensor == nullptr ? name == named.name : is_in(name, named.name)) return named.check;
    return nullptr;
  }
  /// A load leaves the state of this name as it is.
  [[nodiscard]] bool is_constant(std::string_view name) const noexcept
  {
    for (const named_state& named : states_)
      if (name == named.name) return named.is_constant;
    return false;
  }

 private:
  static constexpr std::size_t callers_own = SIZE_MAX;
  struct named_state {
    std::string name;
    std::span<std::byte> content;
    void (*check)(std::span<const std::byte> loaded) = nullptr;
    std::size_t owner = callers_own;  // index among the objects that were given to use()
    missed_updates* by_tensor = nullptr;
    bool is_constant = false;
  };

  /// Such as "adam/missed/wte" in "adam/missed".
  [[nodiscard]] static bool is_in(std::string_view name, std::string_view all) noexcept
  {
    return name.size() > all.size() && name.starts_with(all) && name[all.size()] == '/';
  }

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

/// Parameters whose updates wait until their bytes are used, by the chunks of their values, and the object that runs
/// the updates.
///
/// `prepare`, `add` for each parameter and `serve` begin; `catch_up(slot)` before a use of a slot, or `finish()`, runs
/// the updates. A chunk is updated as a whole: while one of its weights is pinned on the device, no other one can be
/// written on the host. See optimizer::late_updates, which uses it.
class pending_updates {
 public:
  /// Runs one update. May throw, and is then called again.
  using update_type = void (*)(void* context, slot_id value_slot);
  /// Called when no update waits in a chunk of weights any more. @param is_lost   no update waits in any chunk, since
  /// the waiting updates were discarded
  using done_type = void (*)(void* context, bool is_lost) noexcept;

  /// @param tensors   of the manager; outlives this
  explicit pending_updates(registry& tensors) noexcept : tensors_{&tensors} {}
  pending_updates(const pending_updates&) = delete;

  /// No later call allocates. @pre no update waits, and all tensors are placed
  void prepare()
  {
    first_.assign(tensors_->frames_of_chunk().size(), slot_id::none);
    next_.assign(tensors_->parameters(), slot_id::none);
    waits_.assign(tensors_->parameters(), 0);
  }

  [[nodiscard]] bool any() const noexcept { return count_ != 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool has(slot_id value_slot) const noexcept { return count_ != 0 && waits_[index_of(value_slot)] != 0; }

  /// Updates are run by `update(context, value_slot)`. No resident access can use a weight whose update waits.
  void serve(update_type update, void* context) noexcept
  {
    update_ = update;
    who_ = context;
    mask();
  }
  /// `context` has ended, and its updates cannot run: weights that wait stay unusable until `discard`.
  void leave(const void* context) noexcept
  {
    if (who_ != context) return;
    update_ = nullptr;
    who_ = nullptr;
  }

  /// `done` is called after the updates of each chunk. One watcher at a time.
  void watch(done_type done, void* context) noexcept
  {
    done_ = done;
    watcher_ = context;
  }
  /// Does nothing where the watcher is another one.
  void end_watch(const void* context) noexcept
  {
    if (watcher_ != context) return;
    watch(nullptr, nullptr);
    is_read_behind_ = false;
  }
  /// @param reads   from now on the watcher reads bytes after their updates; false: no longer
  void read_behind(bool reads) noexcept { is_read_behind_ = reads; }
  [[nodiscard]] bool is_read_behind() const noexcept { return is_read_behind_; }

  /// Updates wait, and their object lives.
  [[nodiscard]] bool is_served() const noexcept { return any() && update_ != nullptr; }
  /// @throws usage_error   updates wait, and the object that runs them has ended
  void expect_served() const
  {
    if (any()) expect_served(first_that_waits());
  }
  /// The update of this parameter waits, before the waiting updates of its chunk. @pre it does not wait
  void add(slot_id value_slot) noexcept { add(value_slot, chunk_of(value_slot)); }

  /// Before these bytes are used: runs the waiting updates in the chunk of their weight. During an update nothing
  /// happens.
  /// @param slot   of any list
  /// @throws usage_error   the object that runs them has ended; and the errors of an update: the rest still waits
  void catch_up(slot_id slot)
  {
    if (!any() || running_ || !tensors_->is_of_parameter(slot)) return;
    const slot_id value = tensors_->value_of(slot);
    if (!(slot == value ? has_in(chunk_of(value)) : has(value))) return;
    expect_served(slot);
    run(chunk_of(value));
  }
  /// Before a trainer writes these bytes. Where a watcher reads the other bytes of this chunk after their updates, all
  /// waiting updates run.
  /// @throws as catch_up
  void catch_up_to_write(slot_id slot)
  {
    is_read_behind_ && tensors_->is_of_parameter(slot) ? finish() : catch_up(slot);
  }
  /// Runs all waiting updates, chunk by chunk. @throws as catch_up
  void finish()
  {
    if (!any() || running_) return;
    expect_served(first_that_waits());
    for (std::uint32_t index = 0; any(); ++index) run(chunk_id{index});
  }
  /// Hides waiting slots from resident accesses: their next access is none. O(slots)
  void mask() noexcept
  {
    if (!any()) return;
    for (const slot_id each : ids<slot_id>(tensors_->lists() * tensors_->parameters())) {
      const slot_id value = tensors_->value_of(each);
      if (has(value) || has_in(chunk_of(value))) (*tensors_)[each].next_access_index = access_record::never;
    }
  }
  /// Discards all waiting updates, and notifies the watcher.
  void discard() noexcept
  {
    const bool some_waited = any();
    for (slot_id& it : first_) it = slot_id::none;
    for (std::uint8_t& it : waits_) it = 0;
    count_ = 0;
    if (some_waited && done_ != nullptr) done_(watcher_, true);
  }

 private:
  [[nodiscard]] chunk_id chunk_of(slot_id value_slot) const noexcept { return tensors_->chunk_of(value_slot); }
  [[nodiscard]] bool has_in(chunk_id chunk) const noexcept
  {
    return count_ != 0 && first_[index_of(chunk)] != slot_id::none;
  }

  void add(slot_id value_slot, chunk_id chunk) noexcept
  {
    next_[index_of(value_slot)] = std::exchange(first_[index_of(chunk)], value_slot);
    waits_[index_of(value_slot)] = 1;
    ++count_;
  }

  /// @pre any()
  [[nodiscard]] slot_id first_that_waits() const noexcept
  {
    std::uint32_t value = 0;
    while (waits_[value] == 0) ++value;
    return slot_id{value};
  }
  void expect_served(slot_id slot) const
  {
    if (update_ != nullptr) return;
    throw usage_error{error_text{} << "chunkmem: " << tensors_->label(slot)
                                   << " was used although its late_updates ended before "
                                   << "its update was done (call finish() before it ends, or load a checkpoint)"};
  }

  /// Runs the waiting updates of a chunk. Where one throws, it and the later ones still wait.
  void run(chunk_id chunk)
  {
    slot_id& first = first_[index_of(chunk)];
    if (first == slot_id::none) return;
    while (first != slot_id::none) {
      const slot_id value = std::exchange(first, next_[index_of(first)]);
      waits_[index_of(value)] = 0;
      --count_;
      running_ = true;
      try {
        update_(who_, value);
      } catch (...) {
        running_ = false;
        add(value, chunk);
        mask();
        throw;
      }
      running_ = false;
    }
    if (done_ != nullptr) [[unlikely]]
      done_(watcher_, false);
  }

  registry* tensors_;
  sequence<slot_id> first_;       // by chunk: a value
  sequence<slot_id> next_;        // by parameter, in its chunk
  sequence<std::uint8_t> waits_;  // by parameter
  std::size_t count_ = 0;
  update_type update_ = nullptr;
  void* who_ = nullptr;
  bool running_ = false;
  done_type done_ = nullptr;
  void* watcher_ = nullptr;
  bool is_read_behind_ = false;
};

}  // namespace chunkmem::inline v0
