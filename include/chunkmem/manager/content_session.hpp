// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/change_watch.hpp>
#include <chunkmem/manager/gradient_ledger.hpp>
#include <chunkmem/manager/gradient_store.hpp>
#include <chunkmem/manager/registered_states.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <any>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

/// What a save or a load does with a manager, beside accesses: `m.content()`.
///
/// A save asks `expect_updated`, `expect_loaded` and `expect_states`, visits the states, and may take bytes from where
/// they lie while `changes()` tells it of writes. A load frames its writes by `begin_load` and `end_load`, or
/// `abandon_load`.
/// @tparam Builder   model_builder: seals where nobody did
template <class Engine, class Builder>
class content_session {
 public:
  /// All of them outlive this.
  content_session(Engine& engine, Builder& builder, gradient_ledger& ledger, gradient_store<Engine, Builder>& gradients,
                  const registered_states& states, change_watch& changes) noexcept
      : engine_{&engine},
        builder_{&builder},
        ledger_{&ledger},
        gradients_{&gradients},
        states_{&states},
        changes_{&changes}
  {
  }
  content_session(const content_session&) = delete;

  // States that were registered by `use` and `state`.

  /// @throws usage_error   the owner of a state was given to `use` and is gone, and the bytes with it
  void expect_states() const { states_->expect_whole(); }
  /// Calls `visit(name, content)` for each. Where the owner is gone, there is no content.
  template <class Visit>
  void for_each_state(Visit visit) const
  {
    states_->for_each(visit);
  }
  /// Throws config_error where loaded bytes cannot be right for the state of this name. Null: any bytes can.
  [[nodiscard]] auto check_of_state(std::string_view name) const noexcept -> void (*)(std::span<const std::byte>)
  {
    return states_->check_of(name);
  }

  // Checks.

  /// The bytes of a tensor where they lie now, on whatever tier; none where it was not written. Nothing moves and
  /// nothing is recorded. Work that wrote them is waited for.
  /// @pre the calling thread can address the device
  [[nodiscard]] std::span<const std::byte> bytes_of(tensor_handle wanted)
  {
    return engine_->bytes_now(builder_->slot_of(wanted));
  }

  // Saves.

  /// @throws usage_error   an optimizer step is half done
  void expect_updated(std::string_view what) const { ledger_->expect_no_update(what); }
  /// @throws usage_error   a load is half done
  void expect_loaded(std::string_view what) const { ledger_->expect_no_load(what); }
  /// Told before weights or states change on the host: by an update, a write there, or a load.
  [[nodiscard]] change_watch& changes() noexcept { return *changes_; }
  /// The place of the first change of each slot in the last iteration, by slot: the next one changes them in the same
  /// order. UINT32_MAX where it changed none.
  [[nodiscard]] sequence<std::uint32_t> places_of_changes() const
  {
    sequence<std::uint32_t> places;
    places.assign(engine_->tensors().slots().size(), UINT32_MAX);
    const auto entries = engine_->schedule().last_record().entries();
    for (std::uint32_t place = static_cast<std::uint32_t>(entries.size()); place-- > 0;)
      if (is_access(entries[place].kind) && writes(access_of(entries[place].kind)) &&
          entries[place].slot < places.size())
        places[entries[place].slot] = place;
    return places;
  }
  [[nodiscard]] slot_id slot_of(tensor_handle tensor, list_id list) const { return builder_->slot_in(tensor, list); }
  /// Whose checkpoints this makes: the number of a training, which its first save draws and a load takes over; 0
  /// before.
  [[nodiscard]] std::uint64_t run() const noexcept { return run_; }
  void belongs_to(std::uint64_t run) noexcept { run_ = run; }
  /// A saver keeps an object here from save to save. The object ends with the manager.
  [[nodiscard]] std::any& kept_by_saver() noexcept { return kept_by_saver_; }

  // Loads.

  /// @throws usage_error   a pin of the trainer holds a tensor
  void expect_unpinned()
  {
    changes_->tell(chunk_id::none);
    const registry& tensors = engine_->tensors();
    for (const slot_id it : tensors.slot_ids())
      tensors.expects_of(it, tensors[it].pins == 0,
                         "a checkpoint was to be loaded while a pin holds a tensor: release it before");
  }
  /// All is about to be overwritten: gradients are dropped, and a step that is half done is void. Until `end_load`, no
  /// step is taken and nothing is saved. @throws   as basic_manager::drop_gradients
  void begin_load()
  {
    if (!engine_->rehearsing().is_running()) changes_->tell(chunk_id::none);
    ledger_->begin_load();
    engine_->pending().discard();
    if (engine_->tensors().parameters() > 0) builder_->expect_ready();
    gradients_->consume_all();
  }
  void end_load() noexcept { ledger_->end_load(); }
  /// A load failed: all tensors lose their bytes, so that nobody reads any that were not proven. A read is a
  /// usage_error until the tensor is written, or a load gets through; lists that start at zero read as zeros.
  /// @pre   begin_load()
  void abandon_load() noexcept
  {
    for (const slot_id it : engine_->tensors().slot_ids()) {
      try {
        engine_->drop(it);
      } catch (...) {  // a device that is lost has nothing that could be read
      }
    }
  }

 private:
  Engine* engine_;
  Builder* builder_;
  gradient_ledger* ledger_;
  gradient_store<Engine, Builder>* gradients_;
  const registered_states* states_;
  change_watch* changes_;
  std::uint64_t run_ = 0;
  std::any kept_by_saver_;
};

}  // namespace chunkmem::inline v0
