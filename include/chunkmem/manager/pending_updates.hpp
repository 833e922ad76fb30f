// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// Parameters whose update waits until their bytes are wanted, by the chunks that their values lie in, and who does it.
///
/// `prepare`, `add` for each parameter and `serve` begin; `catch_up(slot)` before a slot is used, or `finish()`, does
/// the updates. A chunk is updated as a whole: while one of its weights is pinned on the device, no other one can be
/// written on the host. See optimizer::late_updates, which uses it.
class pending_updates {
 public:
  /// Does one update. May throw, and is called again then.
  using update_type = void (*)(void* context, slot_id value_slot);

  /// @param tensors   of the manager; outlives this
  explicit pending_updates(registry& tensors) noexcept : tensors_{&tensors} {}
  pending_updates(const pending_updates&) = delete;

  /// From here on nothing asks for memory. @pre nothing waits, and everything is placed
  void prepare()
  {
    first_.assign(tensors_->frames_of_chunk().size(), slot_id::none);
    next_.assign(tensors_->parameters(), slot_id::none);
    waits_.assign(tensors_->parameters(), 0);
  }

  [[nodiscard]] bool any() const noexcept { return count_ != 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool has(slot_id value_slot) const noexcept { return count_ != 0 && waits_[index_of(value_slot)] != 0; }

  /// Updates are done by `update(who, value_slot)`. No resident access passes by what waits.
  void serve(update_type update, void* context) noexcept
  {
    update_ = update;
    who_ = context;
    mask();
  }
  /// `context` is gone, and with it what its updates need: what waits stays unusable until `discard`.
  void leave(const void* context) noexcept
  {
    if (who_ != context) return;
    update_ = nullptr;
    who_ = nullptr;
  }

  /// The update of this parameter waits, and comes before those of its chunk that wait already. @pre it does not wait
  void add(slot_id value_slot) noexcept { add(value_slot, chunk_of(value_slot)); }

  /// Before these bytes are used: does what waits in the chunk of their weight. During an update nothing happens.
  /// @param slot   of any list
  /// @throws usage_error   the object that had to do it is gone; and what an update throws: the rest waits still
  void catch_up(slot_id slot)
  {
    if (!any() || running_ || !tensors_->is_of_parameter(slot)) return;
    const slot_id value = tensors_->value_of(slot);
    if (!(slot == value ? has_in(chunk_of(value)) : has(value))) return;
    expect_served(slot);
    run(chunk_of(value));
  }
  /// Does all that waits, chunk by chunk. @throws as catch_up
  void finish()
  {
    if (!any() || running_) return;
    expect_served(first_that_waits());
    for (std::uint32_t index = 0; any(); ++index) run(chunk_id{index});
  }
  /// No slot of what waits is found by a resident access: its next access is none. O(slots)
  void mask() noexcept
  {
    if (!any()) return;
    for (const slot_id each : ids<slot_id>(tensors_->lists() * tensors_->parameters())) {
      const slot_id value = tensors_->value_of(each);
      if (has(value) || has_in(chunk_of(value))) (*tensors_)[each].next_access_index = access_record::never;
    }
  }
  /// Nothing waits any more.
  void discard() noexcept
  {
    for (slot_id& it : first_) it = slot_id::none;
    for (std::uint8_t& it : waits_) it = 0;
    count_ = 0;
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

  /// Does what waits in a chunk. Where one throws, it and those behind it wait still.
  void run(chunk_id chunk)
  {
    slot_id& first = first_[index_of(chunk)];
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
        throw;
      }
      running_ = false;
    }
  }

  registry* tensors_;
  sequence<slot_id> first_;       // by chunk: a value
  sequence<slot_id> next_;        // by parameter, in its chunk
  sequence<std::uint8_t> waits_;  // by parameter
  std::size_t count_ = 0;
  update_type update_ = nullptr;
  void* who_ = nullptr;
  bool running_ = false;
};

}  // namespace chunkmem::inline v0
