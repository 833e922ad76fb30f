// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/slot_states.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// The scratch bytes of a rehearsal, for its pins and leases; see rehearse_on.
///
///     rehearsal_scratch scratch;
///     scratch.begin(size);
///     std::byte* const place = scratch.to_write(size);
///     scratch.end(false);  // no pin points to `place` any more
///
/// Two blocks: zeros for reads, and one for writes. Untouched pages use no memory. A larger block replaces a smaller
/// one, which stays until the end, since pins may point to it.
class rehearsal_scratch {
 public:
  /// @param largest   size of the largest tensor [bytes]   @throws std::bad_alloc   with nothing changed
  void begin(std::uint64_t largest)
  {
    block read{largest};
    block written{largest};
    blocks_.reserve(blocks_.size() + 2);
    first_ = blocks_.size();
    blocks_.push_back(std::move(read));
    blocks_.push_back(std::move(written));
    is_on_ = true;
  }
  /// @param in_use   a pin or lease still points to the bytes: they stay until this object ends
  void end(bool in_use) noexcept
  {
    is_on_ = false;
    outlived_ = outlived_ || in_use;
    if (!outlived_) blocks_.clear();
  }
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }

  /// Zeros, as many as the largest tensor has bytes; null where there is no scratch.
  [[nodiscard]] std::byte* to_read() const noexcept { return is_on_ ? blocks_[first_].begin() : nullptr; }
  /// For anything of this size; null where there is no scratch. @throws std::bad_alloc   with nothing changed
  [[nodiscard]] std::byte* to_write(std::uint64_t size)
  {
    if (!is_on_) return nullptr;
    if (blocks_.back().size() < size) blocks_.emplace_back(size > UINT64_MAX / 2 ? size : size + size / 2);
    return blocks_.back().begin();
  }

 private:
  /// Not a unique_ptr: `<memory>` alone is a fifth of what the umbrella header includes.
  class block {
   public:
    explicit block(std::uint64_t size) : size_{size}
    {
      if (size > SIZE_MAX - unit) throw std::bad_alloc{};
      memory_ = static_cast<std::byte*>(std::calloc(size + unit, 1));
      if (memory_ == nullptr) throw std::bad_alloc{};
    }
    block(block&& other) noexcept : memory_{std::exchange(other.memory_, nullptr)}, size_{other.size_} {}
    block& operator=(block&&) = delete;
    ~block() { std::free(memory_); }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] std::byte* begin() const noexcept
    {
      return memory_ + (unit - reinterpret_cast<std::uintptr_t>(memory_) % unit) % unit;
    }

   private:
    static constexpr std::uint64_t unit = tensor_alignment.count();
    std::byte* memory_ = nullptr;
    std::uint64_t size_ = 0;
  };

  std::vector<block> blocks_;  // for reads, then for writes: the largest is last
  std::size_t first_ = 0;      // the block for reads
  bool is_on_ = false;
  bool outlived_ = false;  // a mistake of the trainer: a pin outlived its rehearsal
};

/// One iteration of a step that has several.
///
///     for (const rehearsed_iteration& it : turn.iterations) trial.add(it.record, it.filled);
struct rehearsed_iteration {
  access_record record;           ///< begins with the pins and leases that were held before
  sequence<std::uint8_t> filled;  ///< by slot: it held bytes before the iteration
};

/// One rehearsed run of a step.
///
///     for (const rehearsed_turn& it : log.turns()) longest = std::max(longest, it.record.size());
struct rehearsed_turn {
  /// Where an iteration begins, after another one of the step.
  struct border {
    std::uint32_t entries = 0;   ///< entries of the record before it
    std::uint32_t releases = 0;  ///< releases before it
  };
  access_record record;
  std::vector<border> borders;
  std::vector<rehearsed_iteration> iterations;  ///< empty where the step has one iteration: the record
  sequence<std::uint8_t> filled;                ///< by slot: it held bytes before the step
  sequence<std::uint8_t> touched;               ///< by slot: the step uses it
  bool updates_wait = false;                    ///< the run began while updates of the step before waited
};

/// Records a step that runs without bytes, and restores all slots afterwards.
///
/// `begin(tensors)`, the calls of the step, `end()`. A step with several variants is run once for each, with
/// `begin_next()` in between, while `wants_next()`: the first run leaves updates to the second; or a call in the step
/// used `want_turns()`. A tensor that is read before it was written counts as filled, and so do weights, masters and
/// buffers that the step does not touch. Violations of the tensor rules are reported as in a real step. Cost: O(slots)
/// for begin, begin_next and end, O(1) for a call.
template <tensor_rules Rules>
class rehearsal_log {
 public:
  void begin(registry& tensors)
  {
    for (const slot& slot_state : tensors.slots())
      expects(slot_state.pins == 0, "a rehearsal while a pin is held: release it first");
    before_ = tensors.slots();
    wanted_ = 1;
    begin_turn(0, tensors, false);
    began_at_ = serial_;
    held_ = 0;
    tensors_ = &tensors;  // runs from here on: all memory for the restore is allocated
  }
  static constexpr std::size_t most_turns = 3;
  /// The step has `count` variants and is run `count` times. @pre at most most_turns
  void want_turns(std::size_t count) noexcept { wanted_ = std::max(wanted_, count); }
  /// The step is to be run once more. @param updates_wait   updates of the last run wait
  [[nodiscard]] bool wants_next(bool updates_wait) const noexcept
  {
    return last_ + 1 < std::max(wanted_, updates_wait ? std::size_t{2} : std::size_t{1});
  }
  /// The step is about to run once more. Pins of the run before have no effect any more. @pre wants_next()
  void begin_next(bool updates_wait)
  {
    assume_filled(*tensors_);
    const std::size_t before = last_;
    begin_turn(before + 1, *tensors_, updates_wait);
    for (std::size_t index = 0; index < before_.size(); ++index)
      if (turns_[before].touched[index] == 0) turns_[last_].filled[index] |= turns_[before].filled[index];
  }
  /// The number of this run of the step, from 0.
  [[nodiscard]] std::size_t turn() const noexcept { return last_; }

  void end() noexcept
  {
    assume_filled(*tensors_);
    tensors_->slots().swap(before_);
    tensors_ = nullptr;
  }

  [[nodiscard]] bool is_running() const noexcept { return tensors_ != nullptr; }
  /// The variants of the step, in the order of their runs; one empty variant before any rehearsal.
  [[nodiscard]] std::span<rehearsed_turn> turns() noexcept { return std::span{turns_}.first(last_ + 1); }
  [[nodiscard]] std::span<const rehearsed_turn> turns() const noexcept { return std::span{turns_}.first(last_ + 1); }
  /// The variants that begin with waiting updates, or those that begin without. The last variant where there are none.
  [[nodiscard]] std::span<const rehearsed_turn> turns(bool updates_wait) const noexcept
  {
    const auto all = turns();
    const auto first = std::find_if(all.begin(), all.end(), [](const rehearsed_turn& it) { return it.updates_wait; });
    const auto without = static_cast<std::size_t>(first - all.begin());
    if (!updates_wait) return all.first(without);
    return all.subspan(without < all.size() ? without : all.size() - 1);
  }
  /// The record of the first run.
  [[nodiscard]] const access_record& record() const noexcept { return turns_[0].record; }
  /// The record of the last run. Most steps are like the last run.
  [[nodiscard]] const access_record& last_record() const noexcept { return turns_[last_].record; }

  /// Distinguishes the pins of one rehearsal from those of another, and from those of iterations, whose numbers are
  /// small.
  [[nodiscard]] std::uint32_t serial() const noexcept { return serial_; }
  /// A pin or lease with this number was made in a rehearsal.
  [[nodiscard]] static constexpr bool made(std::uint32_t serial) noexcept { return serial >= first_serial; }

  /// Pins and leases of the last rehearsal that have not ended.
  [[nodiscard]] std::uint64_t held() const noexcept { return held_; }

  /// The trainer begins an iteration. A manager plans each iteration separately, so each has a record of its own.
  void begin_iteration()
  {
    rehearsed_turn& now = turns_[last_];
    if (has_iteration_)
      now.borders.push_back({now.record.size(), static_cast<std::uint32_t>(now.record.releases().size())});
    has_iteration_ = true;
  }
  /// The step is over: its records are linked, and divided at the borders of iterations. @pre not running
  void finish(const registry& tensors)
  {
    const auto chunks = static_cast<std::uint32_t>(tensors.frames_of_chunk().size());
    for (rehearsed_turn& it : turns()) {
      it.record.finish(tensors.chunk_of_slot(), chunks);
      it.iterations.resize(it.borders.empty() ? 0 : it.borders.size() + 1);
      divide(it);
      for (rehearsed_iteration& each : it.iterations) each.record.finish(tensors.chunk_of_slot(), chunks);
    }
  }

  std::uint32_t acquire(slot_id slot, entry_kind kind)
  {
    rehearsed_turn& now = turns_[last_];
    now.touched[index_of(slot)] = 1;
    chunkmem::slot& slot_state = (*tensors_)[slot];
    if (slot_state.state == tensor_state::free) {
      if (slot_state.starts_at_zero) kind = first_use(kind);
      if (access_of(kind) != access::write && !slot_state.starts_at_zero) now.filled[index_of(slot)] = 1;
      states::expect(*tensors_, slot, tensor_event::materialize);
    } else {
      states::expect(*tensors_, slot, tensor_event::acquire);
    }
    now.record.make_room();
    states::begin(slot_state, memory_location::device);
    ++held_;
    return now.record.append({index_of(slot), 0, 0, kind, false, 0}, {});
  }

  /// Pins that outlived their rehearsal have no effect.
  void release(slot_id slot, std::uint32_t access_index, std::uint32_t serial) noexcept
  {
    note_end(serial);
    if (!is_running() || serial != serial_) return;
    states::end((*tensors_)[slot], memory_location::device);
    turns_[last_].record.release(access_index);
  }

  std::uint32_t lease(entry_kind kind, std::uint64_t size)
  {
    access_record& record = turns_[last_].record;
    record.make_room();
    ++held_;
    return record.append({access_record::never, 0, 0, kind, false, 0}, {size, entry_detail::never, pass::none});
  }
  void end_lease(std::uint32_t access_index, std::uint32_t serial) noexcept
  {
    note_end(serial);
    if (is_running() && serial == serial_) turns_[last_].record.release(access_index);
  }

  void drop(slot_id slot)
  {
    access_record& record = turns_[last_].record;
    record.make_room();
    states::expect(*tensors_, slot, tensor_event::drop);
    states::drop((*tensors_)[slot]);
    record.append({index_of(slot), 0, 0, entry_kind::drop, false, 0}, {});
  }

 private:
  using states = slot_states<Rules>;

  void note_end(std::uint32_t serial) noexcept
  {
    if (serial >= began_at_) --held_;
  }

  void begin_turn(std::size_t which, const registry& tensors, bool updates_wait)
  {
    rehearsed_turn& it = turns_[which];
    it.updates_wait = updates_wait;
    it.filled.assign(before_.size(), 0);
    it.touched.assign(before_.size(), 0);
    for (std::size_t index = 0; index < before_.size(); ++index)
      it.filled[index] = tensors.slots()[index].state != tensor_state::free;
    it.record.clear();
    it.borders.clear();
    has_iteration_ = false;
    last_ = which;
    ++serial_;
  }

  /// Pins and leases that are held across the end of an iteration are the first entries of the next one, in their
  /// order.
  static void divide(rehearsed_turn& step)
  {
    const access_record& whole = step.record;
    sequence<std::uint8_t> live = step.filled;
    std::vector<std::uint32_t> held;                    // entries that are not released yet
    std::vector<std::uint32_t> place(whole.size(), 0);  // of entries, in the record of the iteration
    std::uint32_t now = 0;
    std::uint32_t ended = 0;
    for (std::size_t which = 0; which < step.iterations.size(); ++which) {
      rehearsed_iteration& it = step.iterations[which];
      const bool is_last = which == step.borders.size();
      const std::uint32_t entries = is_last ? whole.size() : step.borders[which].entries;
      const auto releases =
          static_cast<std::uint32_t>(is_last ? whole.releases().size() : step.borders[which].releases);
      it.filled = live;
      it.record.clear();
      const auto take = [&](std::uint32_t index, entry_kind kind) {
        access_entry entry = whole.entries()[index];
        entry.kind = kind;
        it.record.make_room();
        place[index] = it.record.append(entry, {whole.details()[index].bytes, entry_detail::never, pass::none});
      };
      for (const std::uint32_t index : held) {
        const entry_kind kind = whole.entries()[index].kind;
        const bool overwrites = is_access(kind) && access_of(kind) == access::write;  // its bytes exist now
        take(index, overwrites ? kind_of(access::read_write, place_of(kind)) : kind);
      }
      const auto release_until = [&](std::uint32_t until) {
        for (; ended < releases && whole.releases()[ended].until <= until; ++ended) {
          const std::uint32_t index = whole.releases()[ended].access_index;
          it.record.release(place[index]);
          std::erase(held, index);
        }
      };
      for (; now < entries; ++now) {
        release_until(now);
        const access_entry& entry = whole.entries()[now];
        take(now, entry.kind);
        if (entry.kind != entry_kind::drop) held.push_back(now);
        if (entry.slot != access_record::never) live[entry.slot] = entry.kind != entry_kind::drop;
      }
      release_until(entries);
    }
  }

  void assume_filled(const registry& tensors) noexcept
  {
    for (std::uint32_t id = 0; id < tensors.tensors(); ++id) {
      const role part = tensors.info(tensor_id{id}).part;
      if (part == role::activation) continue;
      const slot_id value = tensors.value_slot(tensor_id{id});
      for (const slot_id each : {value, tensors.master_of(value)})
        if (each != slot_id::none && turns_[last_].touched[index_of(each)] == 0)
          turns_[last_].filled[index_of(each)] = 1;
    }
  }

  static constexpr std::uint32_t first_serial = std::uint32_t{1} << 31;
  registry* tensors_ = nullptr;
  std::uint32_t serial_ = first_serial;
  std::uint32_t began_at_ = first_serial;  // serial of the first step of the last rehearsal
  std::uint64_t held_ = 0;
  sequence<slot> before_;
  std::array<rehearsed_turn, most_turns> turns_;
  std::size_t last_ = 0;
  std::size_t wanted_ = 1;
  bool has_iteration_ = false;  // in this run of the step
};

}  // namespace chunkmem::inline v0
