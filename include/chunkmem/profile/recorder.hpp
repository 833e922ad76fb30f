// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// The result of comparing the last iteration with its record.
enum class iteration_outcome : std::uint8_t {
  recorded,   ///< the first of its name
  repeated,   ///< exactly the recorded one
  changed,    ///< not the recorded one; the record is now this one
  abandoned,  ///< ended by an exception; the record is as before
};

/// Records the first iteration of each name, and follows the record in later iterations.
///
/// Following costs one compare: a slot keeps the access of its next entry, which equals the cursor while the iteration
/// repeats. At the first difference, the log starts with a copy of the entries followed so far. It becomes the new
/// record when the iteration ends. Memory: two logs for each name.
///
/// Use:
///
///     recorder.begin("train");                               // records, or follows the record of this name
///     if (recorder.is_following() && entry_is_the_recorded_one) recorder.advance();
///     else recorder.log(entry, detail);                      // before it: diverge once, and make_room
///     recorder.end(true, chunk_of_slot, chunks, pins_of);    // says how the iteration compares with its record
class recorder {
 public:
  static constexpr std::uint32_t never = access_record::never;

  recorder() = default;
  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;
  ~recorder()
  {
    while (first_ != nullptr) delete std::exchange(first_, first_->next);
  }

  /// The access that comes next while a record is followed; otherwise a number that no slot's next access has.
  [[nodiscard]] std::uint32_t cursor() const noexcept { return cursor_; }
  [[nodiscard]] const access_entry& entry(std::uint32_t index) const noexcept { return entries_[index]; }
  void advance() noexcept { ++cursor_; }

  [[nodiscard]] bool is_following() const noexcept { return mode_ == mode::following; }
  [[nodiscard]] bool is_inside() const noexcept { return mode_ != mode::outside; }
  [[nodiscard]] bool is_logging() const noexcept { return mode_ >= mode::recording; }
  [[nodiscard]] bool has_diverged() const noexcept { return mode_ == mode::diverged; }
  /// The record of the current iteration, or of the last one; empty while it is being recorded.
  [[nodiscard]] access_record& record() noexcept { return current_ == nullptr ? nothing_ : current_->done; }

  /// The number of the current or last iteration's name, counted from 0.
  /// @pre one has begun, and since then no record was adopted and no `begin` has failed
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  /// The record of a name, or null where none was made yet. A name may have two: then the record of iterations that
  /// begin with updates.
  [[nodiscard]] const access_record* find(std::string_view name) const noexcept
  {
    const named* found = nullptr;
    for_each([&](const named& known) {
      if (known.is_found_as(name, found != nullptr)) found = &known;
    });
    return found == nullptr ? nullptr : &found->done;
  }
  /// The number of a name, as index(); none where the name has no record.
  static constexpr std::size_t none = SIZE_MAX;
  [[nodiscard]] std::size_t index_of(std::string_view name) const noexcept
  {
    std::size_t found = none;
    std::size_t index = 0;
    for_each([&](const named& known) {
      if (known.is_found_as(name, found != none)) found = index;
      ++index;
    });
    return found;
  }
  /// Gives a name a record of another run. The next iteration of the name follows it.
  /// @throws usage_error   there is one already, or an iteration is running; std::bad_alloc. All records are as before
  void adopt(std::string_view name, bool updates_first, access_record record,
             std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks)
  {
    expects(!is_inside(), "a profile was given to a manager in the middle of an iteration");
    expects(find(name) == nullptr, "a profile was given for iterations that have been recorded already");
    record.finish(chunk_of_slot, chunks);
    record.began(updates_first ? record_start::with_updates : record_start::without_updates);
    named& target = find_or_add(name, updates_first);
    target.done = std::move(record);
    target.recorded = true;
    stale_ = true;
  }

  /// Links every record again, after slots have moved to other chunks. O(all entries). @pre not inside
  void relink(std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks)
  {
    for (named* known = first_; known != nullptr; known = known->next)
      if (known->recorded) known->done.finish(chunk_of_slot, chunks);
  }

  /// The entries of the current iteration so far. Nothing outside of an iteration, or after a stop.
  [[nodiscard]] std::span<const access_entry> so_far() const noexcept
  {
    if (current_ == nullptr || is_following()) return {entries_, progress()};
    return std::as_const(current_->log).entries().first(progress());
  }
  /// The accesses, leases and drops so far in the current iteration. 0 outside of an iteration, or after a stop.
  [[nodiscard]] std::uint32_t progress() const noexcept
  {
    if (is_logging()) return current_->log.size();
    return is_following() ? cursor_ : 0;
  }

  /// The access index for decisions: the cursor, or the estimated position of a diverged iteration.
  [[nodiscard]] std::uint32_t now() const noexcept { return mode_ == mode::following ? cursor_ : hint_; }

  /// A lease or drop is the recorded one. @param slot   never for a lease
  [[nodiscard]] bool expects_entry(std::uint32_t slot, entry_kind kind, std::uint64_t size) const noexcept
  {
    if (!is_following() || cursor_ >= current_->done.size()) return false;
    const access_entry& next = entries_[cursor_];
    return next.slot == slot && next.kind == kind && current_->done.details()[cursor_].bytes == size;
  }

  /// @param updates_first   updates of the last step wait. The iteration then does more, and has a record of its own
  /// @return   true where the slots' next accesses must be loaded from the record
  /// @throws usage_error   an iteration is running, which goes on; std::bad_alloc: none has begun. All records are as
  ///   before
  bool begin(std::string_view name, bool updates_first = false)
  {
    expects(!is_inside(), "an iteration began inside another one: end the first one before, by its end()");
    named& wanted = find_or_add(name, updates_first);
    if (wanted.recorded) ended_leases_.reserve(wanted.done.size());
    // From here on nothing throws: the policy was told of the current record, the old or the new one.
    const bool reload = current_ != &wanted || stale_;
    current_ = &wanted;
    stale_ = true;  // until the caller has loaded them
    hint_ = 0;
    ended_leases_.clear();
    followed_ = 0;
    if (!wanted.recorded) {
      wanted.log.clear();
      mode_ = mode::recording;
      return false;
    }
    mode_ = mode::following;
    entries_ = wanted.done.entries().data();
    cursor_ = 0;
    stale_ = false;
    return reload;
  }

  /// Room for one more entry, where one may have to be logged: call before anything changes.
  void make_room()
  {
    if (is_logging()) current_->log.make_room();
  }

  /// Logs an entry. @pre is_logging() and make_room()   @return   its access
  std::uint32_t log(const access_entry& entry, const entry_detail& detail) noexcept
  {
    return current_->log.append(entry, detail);
  }
  /// A divergence may have taken an earlier pin for released: see `close_released`.
  void log_release(std::uint32_t access_index) noexcept
  {
    if (!is_logging()) return;
    if (current_->log.is_released(access_index))
      current_->log.correct_release(access_index, held_instead_of(access_index), followed_);
    current_->log.release(access_index);
  }
  /// A lease of this iteration ended; also kept while following, for the case that it diverges later.
  void lease_ended(std::uint32_t access_index) noexcept
  {
    log_release(access_index);
    if (is_following() && ended_leases_.size() < ended_leases_.capacity()) ended_leases_.push_back(access_index);
  }

  /// Stops following: from here on the iteration is logged. Entries that were released by now are closed, although the
  /// record may release them later.
  /// @param pins_of   `pins_of(slot, place)`: how many pins hold it now in that tier
  /// @throws std::bad_alloc with nothing changed
  template <class PinsOf>
  void diverge(PinsOf pins_of)
  {
    current_->log.copy_prefix(current_->done, cursor_);
    close_released(pins_of);
    followed_ = cursor_;
    hint_ = cursor_;
    cursor_ = nowhere;
    mode_ = mode::diverged;
  }

  /// An entry of the record, for an access of an iteration that has diverged.
  struct found_entry {
    std::uint32_t now = 0;                ///< access index for decisions
    std::uint32_t next_of_slot = 0;       ///< the slot's entry after it
    std::uint32_t next_of_chunk = never;  ///< the next use of its chunk; never: this access is an extra one
  };
  /// After a divergence: the slot's next entry that the iteration has not passed yet. Changes nothing, so that an
  /// access that fails is found at the same place again. @param next_of_slot   where the slot was expected next
  [[nodiscard]] found_entry found_again(std::uint32_t next_of_slot) const noexcept
  {
    std::uint32_t index = next_of_slot;
    while (index != never && index < hint_) {
      const std::uint32_t next = entries_[index].next_of_slot;
      index = next > index ? next : never;
    }
    if (index == never) return {hint_, next_of_slot, never};
    return {index + 1, entries_[index].next_of_slot, entries_[index].next_of_chunk};
  }
  /// The access succeeded: the iteration continues from the entry that was found.
  void resync(std::uint32_t& next_of_slot) noexcept
  {
    const found_entry found = found_again(next_of_slot);
    hint_ = found.now;
    next_of_slot = found.next_of_slot;
  }

  /// The position of the current iteration.
  struct position {
    std::uint32_t entries = 0;  ///< entries so far
    std::uint32_t now = 0;      ///< access index for decisions
  };
  [[nodiscard]] position here() const noexcept { return {progress(), now()}; }
  /// The entries since then will be repeated. @param expect   `expect(slot, access)`: the next entry of the slot is
  /// this one, or a later one
  template <class Expect>
  void go_back(const position& to, Expect expect) noexcept
  {
    const std::span<const access_entry> again = so_far();
    for (std::uint32_t index = progress(); index-- > to.entries;)
      if (const std::uint32_t slot = again[index].slot; slot != never) {
        if (is_following()) expect(slot, index);
        if (has_diverged()) expect(slot, current_->done.first_of_slot()[slot]);
      }
    if (is_following()) cursor_ = to.entries;
    if (!is_logging()) return;
    current_->log.take_back(to.entries);
    hint_ = to.now;
    followed_ = std::min(followed_, to.entries);
  }

  /// Stops following and logging this iteration. Its end is that of an abandoned one.
  void stop() noexcept
  {
    cursor_ = nowhere;
    if (is_inside()) mode_ = mode::stopped;
  }

  /// @param complete   false where an exception ended the iteration
  /// @param pins_of    as diverge
  template <class PinsOf>
  iteration_outcome end(bool complete, std::span<const std::uint32_t> chunk_of_slot, std::uint32_t chunks,
                        PinsOf pins_of)
  {
    const mode was = std::exchange(mode_, mode::outside);
    const std::uint32_t reached = std::exchange(cursor_, nowhere);
    if (!complete || was == mode::stopped) {
      stale_ = true;
      return iteration_outcome::abandoned;
    }
    if (was == mode::following && reached == current_->done.size()) return iteration_outcome::repeated;
    stale_ = true;
    if (was == mode::following) current_->log.copy_prefix(current_->done, reached);
    close_released(pins_of);
    current_->log.began(current_->updates_first ? record_start::with_updates : record_start::without_updates);
    current_->log.finish(chunk_of_slot, chunks);
    std::swap(current_->log, current_->done);
    current_->recorded = true;
    return was == mode::recording ? iteration_outcome::recorded : iteration_outcome::changed;
  }

 private:
  // from recording on, entries are logged
  enum class mode : std::uint8_t { outside, stopped, following, recording, diverged };
  static constexpr std::uint32_t nowhere = never - 1;

  struct named {
    std::string name;
    bool updates_first = false;
    access_record done;
    access_record log;
    bool recorded = false;
    named* next = nullptr;

    [[nodiscard]] bool is_found_as(std::string_view wanted, bool has_other) const noexcept
    {
      return recorded && name == wanted && (updates_first || !has_other);
    }
  };
  template <class Visit>
  void for_each(Visit visit) const
  {
    for (const named* known = first_; known != nullptr; known = known->next) visit(*known);
  }

  /// Closes entries that the log has open although no pin or lease holds them any more. Of several pins of a slot in
  /// one tier, the latest are taken for the ones that still hold it. If that turns out wrong at a release, the log is
  /// corrected then. O(entries + open ones squared).
  template <class PinsOf>
  void close_released(PinsOf pins_of)
  {
    access_record& log = current_->log;
    sequence<std::uint32_t> still_open;  // entries of pinned slots, latest first
    for (std::uint32_t index = log.size(); index-- > 0;) {
      if (log.details()[index].until != entry_detail::never || log.is_drop(index)) continue;
      const std::uint32_t slot = log.entries()[index].slot;
      const auto same = [&](std::uint32_t other) { return is_like(other, index); };
      const bool held = slot == never
                            ? std::find(ended_leases_.begin(), ended_leases_.end(), index) == ended_leases_.end()
                            : std::count_if(still_open.begin(), still_open.end(), same) <
                                  pins_of(slot, place_of(log.entries()[index].kind));
      if (held)
        still_open.push_back(index);
      else
        log.release(index);
    }
  }

  /// An access of the same slot in the same tier.
  [[nodiscard]] bool is_like(std::uint32_t left, std::uint32_t right) const noexcept
  {
    const access_entry& a = current_->log.entries()[left];
    const access_entry& b = current_->log.entries()[right];
    return a.slot == b.slot && a.slot != never && is_access(a.kind) && is_access(b.kind) &&
           place_of(a.kind) == place_of(b.kind);
  }
  /// The entry that was taken for the holder of a slot in place of this one, before the divergence. never: none was,
  /// this entry only held the slot for longer.
  [[nodiscard]] std::uint32_t held_instead_of(std::uint32_t access_index) const noexcept
  {
    for (std::uint32_t index = 0; index < followed_; ++index)
      if (index != access_index && !current_->log.is_released(index) && is_like(index, access_index)) return index;
    return never;
  }

  named& find_or_add(std::string_view name, bool updates_first)
  {
    index_ = 0;
    named** place = &first_;
    for (; *place != nullptr; place = &(*place)->next) {
      if ((*place)->name == name && (*place)->updates_first == updates_first) return **place;
      ++index_;
    }
    *place = new named{std::string{name}, updates_first, {}, {}};
    return **place;
  }

  std::uint32_t cursor_ = nowhere;
  mode mode_ = mode::outside;
  bool stale_ = false;  // slots' next accesses do not belong to the record's beginning
  const access_entry* entries_ = nullptr;
  named* current_ = nullptr;
  std::size_t index_ = 0;
  std::uint32_t hint_ = 0;
  // entries of the log that are those of the record: pins of them may have been released unseen
  std::uint32_t followed_ = 0;
  access_record nothing_;
  sequence<std::uint32_t> ended_leases_;  // accesses, of the iteration that is followed
  named* first_ = nullptr;                // a list, for its stable addresses; a handful of names
};

}  // namespace chunkmem::inline v0
