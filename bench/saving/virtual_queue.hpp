// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace saving_bench {

namespace cm = chunkmem;

/// The threads of a save in virtual time.
struct save_rates {
  double bytes_per_second = 1e9;  ///< of the thread that writes: its checksums, then its share of the disk
  std::uint64_t buffer = 0;       ///< for copies [B]
  std::uint32_t copying_threads = 0;
  cm::backend::link_cost copying{};  ///< of one thread
};

/// checkpoint::detail::save_queue and its threads, without bytes and without waiting.
///
/// The queue itself blocks real threads, so its decisions are repeated here: the size of a piece, the order of writing,
/// the pieces that wait for a promise, or are copied ahead, the pieces that an update copies, and the room for both. A
/// test compares both. Threads that copy are one agent of their total speed here, and the caller does not help them. A
/// written byte is read once from the host's memory, since a piece is written while it is in the cache after its
/// checksum. A copied byte is read and written. A page cache would read and write each byte once more, which is not
/// counted.
///
/// Where the real queue pauses its disk between `begin_update` and `end_update`, so does this one. A clock never goes
/// back, and the reads of the disk have to be counted before those of an update: else the update would not be slower
/// for them. So `end_update` gets the time of the next update, and the disk takes pieces until then. If that update
/// comes earlier, pieces are written during it, and the pause is too short. If it comes later, the save takes longer.
class virtual_queue {
 public:
  static constexpr double most_paused = 0.9;  ///< of the time since the save began
  static constexpr std::uint64_t most_of_piece = std::uint64_t{4} << 20;
  static constexpr std::size_t written_soon = 2;  ///< pieces that are not copied ahead

  virtual_queue(cm::backend::simulated& clocks, cm::agent writer, cm::agent copier, const save_rates& rates)
      : clocks_{clocks}, writer_{writer}, copier_{copier}, rates_{rates}
  {
    const cm::event now = clocks_.record(cm::agent::host);
    clocks_.wait(writer_, now);  // a save begins at its call
    clocks_.wait(copier_, now);
    begun_ = clocks_.now();
  }

  /// Adds the bytes of an item, which are valid at `arrival`.
  void lend(std::uint64_t size, std::uint32_t item, cm::event arrival) { push(size, item, arrival, false); }
  /// The same for bytes that become valid later. Later items wait for them.
  void promise(std::uint64_t size, std::uint32_t item)
  {
    push(size, item, {}, false);
    for (std::size_t index = first_of_[item]; index < pieces_.size(); ++index, ++promises_)
      pieces_[index].is_promised = true;
  }
  /// The promised bytes are valid from now on. @pre close
  void keep_promise(std::uint32_t item, cm::event arrival)
  {
    for (std::size_t index = first_of_[item]; index < pieces_.size() && pieces_[index].item == item; ++index) {
      pieces_[index].is_promised = false;
      --promises_;
      pieces_[index].arrival = arrival;
    }
    go_on();
  }
  /// Bytes that are copied when they are passed: headers and registered states. They are few.
  void write(std::uint64_t size) { push(size, none, clocks_.record(cm::agent::host), true); }
  /// All items are passed. The times of the writes until the first update are known now, and those of copies ahead.
  /// Where the disk does not pause, all times up to the first promise are known.
  /// @param until   the first update, or earlier [ns]
  void close(std::uint64_t until = UINT64_MAX)
  {
    closed_ = true;
    until_ = until;
    go_on();
  }
  /// As save_queue::begin_update. @param end   of this update, where nothing slows it [ns]. next   the next one [ns]
  void begin_update(std::uint64_t end, std::uint64_t next)
  {
    const std::uint64_t now = clocks_.now();
    pauses_from_ = now;
    pauses_ = can_pause() && static_cast<double>(paused_) < most_paused * static_cast<double>(now - begun_);
    until_ = pauses_ ? end : next;
    go_on();
  }
  /// @param next   the next update [ns]
  void end_update(std::uint64_t next)
  {
    if (pauses_) {
      const std::uint64_t begin = std::max(clocks_.clock(writer_), pauses_from_);
      clocks_.wait(writer_, clocks_.record(cm::agent::host));
      paused_ += clocks_.clock(writer_) - begin;
    }
    pauses_ = false;
    until_ = next;
    go_on();
  }
  /// As save_queue::take_back for one item. The caller is the agent of the host.
  void take_back(std::uint32_t item)
  {
    while (item < first_of_.size() && goes_on(item)) {
    }
  }

  [[nodiscard]] std::uint64_t all() const noexcept { return all_; }
  /// Bytes copied in total, and at most at once [B].
  [[nodiscard]] std::uint64_t copied() const noexcept { return copied_; }
  [[nodiscard]] std::uint64_t most_held() const noexcept { return most_held_; }
  /// Whether a piece was written from a copy. @param index   of the pieces in their order
  [[nodiscard]] bool is_copy(std::size_t index) const noexcept { return pieces_[index].is_copied; }
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }
  /// The time when the last piece is written; UINT64_MAX where some are promised.
  [[nodiscard]] std::uint64_t end() const { return known_ < pieces_.size() ? UINT64_MAX : clocks_.clock(writer_); }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  struct piece {
    std::uint64_t size;
    std::uint32_t item;
    cm::event arrival;
    bool is_copied;  // or will be
    bool is_promised = false;
    std::uint64_t taken = 0;  // by the thread that writes [ns]
    cm::event written{};
    cm::event copied{};  // end of the copy, if the piece is copied
  };

  void push(std::uint64_t size, std::uint32_t item, cm::event arrival, bool is_copied)
  {
    const std::uint64_t most = std::clamp<std::uint64_t>(rates_.buffer / 4, is_copied ? 1 : 4096, most_of_piece);
    if (item != none && item >= first_of_.size()) first_of_.resize(item + std::size_t{1}, pieces_.size());
    for (std::uint64_t left = size; left > 0; left -= std::min(left, most))
      pieces_.push_back({std::min(left, most), item, arrival, is_copied});
    all_ += size;
    left_ += size;
  }

  /// Both agents work as far as they can. Copies ahead begin when no promise is open.
  void go_on()
  {
    for (; known_ < pieces_.size() && !pieces_[known_].is_promised; ++known_) {
      piece& it = pieces_[known_];
      const std::uint64_t ready = std::max({clocks_.clock(writer_), clocks_.now(), it.arrival.value});
      if (can_pause() && (ready >= until_ || (pauses_ && it.is_copied))) break;
      clocks_.wait(writer_, it.arrival);
      it.taken = std::max(clocks_.clock(writer_), clocks_.now());
      const auto lasts = static_cast<std::uint64_t>(static_cast<double>(it.size) / rates_.bytes_per_second * 1e9);
      clocks_.advance(writer_, lasts, cm::bytes{it.size});
      it.written = clocks_.record(writer_);
      left_ -= it.size;
    }
    if (rates_.copying_threads > 0 && closed_ && promises_ == 0) copy_ahead();
  }
  /// The buffer has room for all bytes that are not written.
  [[nodiscard]] bool can_pause() const noexcept { return closed_ && left_ <= rates_.buffer; }
  [[nodiscard]] bool is_written_by(std::size_t index, std::uint64_t time) const noexcept
  {
    return index < known_ && pieces_[index].written.value <= time;
  }
  /// The agent that copies takes lent pieces in the order of writing, while there is room.
  void copy_ahead()
  {
    cm::backend::link_cost together = rates_.copying;
    together.bytes_per_second *= rates_.copying_threads;
    for (;;) {
      const std::uint64_t now = std::max(clocks_.clock(copier_), clocks_.now());
      while (taken_ < known_ && pieces_[taken_].taken <= now) ++taken_;
      ahead_ = std::max(ahead_, taken_ + written_soon);
      while (ahead_ < pieces_.size() && pieces_[ahead_].is_copied) ++ahead_;
      if (ahead_ >= pieces_.size()) return;
      for (; release_ < ahead_ &&
             (pieces_[release_].item == none || !pieces_[release_].is_copied || is_written_by(release_, now));
           ++release_)
        if (pieces_[release_].is_copied && pieces_[release_].item != none) held_ahead_ -= pieces_[release_].size;
      piece& it = pieces_[ahead_];
      if (it.arrival.value > now)
        clocks_.wait(copier_, it.arrival);
      else if (held_ahead_ + it.size > rates_.buffer)
        clocks_.wait(copier_, pieces_[release_].written);
      else {
        clocks_.advance(copier_, together.nanoseconds_for(cm::bytes{it.size}), 2 * cm::bytes{it.size});
        it.copied = clocks_.record(copier_);
        hold(it, held_ahead_);
      }
    }
  }
  void hold(piece& it, std::uint64_t& held)
  {
    it.is_copied = true;
    copied_ += it.size;
    held += it.size;
    most_held_ = std::max(most_held_, held);
  }

  /// Copies a piece on the calling thread, or waits for one. @return   false: no byte of the item is in place
  bool goes_on(std::uint32_t item)
  {
    const std::uint64_t now = clocks_.now();
    piece* next = nullptr;    // the last piece that the caller may copy
    cm::event end{};          // of the last piece in place
    bool has_paused = false;  // the disk takes no piece meanwhile
    for (std::size_t index = first_of_[item]; index < pieces_.size() && pieces_[index].item == item; ++index) {
      piece& it = pieces_[index];
      if (index >= known_ && !it.is_copied) {
        next = &it;
        has_paused = true;
        continue;
      }
      const cm::event gone =
          it.is_copied && (index >= known_ || it.copied.value < it.written.value) ? it.copied : it.written;
      if (gone.value <= now) continue;
      if (gone.value > end.value) end = gone;
      if (!has_paused && !it.is_copied && it.taken > now) next = &it;
    }
    if (end.value <= now && !has_paused) return false;
    if (next == nullptr || (rates_.copying_threads > 0 && !has_paused)) {
      clocks_.wait(cm::agent::host, end);
      return true;
    }
    std::uint64_t held = 0;
    for (std::size_t index = pieces_.size(); index-- > 0;)
      if (const piece& it = pieces_[index]; it.item != none && it.is_copied && !is_written_by(index, now)) {
        held += it.size;
        if (held + next->size > rates_.buffer && index < known_ && (has_paused || it.written.value < end.value))
          end = it.written;  // then there is room again
      }
    if (held + next->size > rates_.buffer) {
      clocks_.wait(cm::agent::host, end);
      return true;
    }
    clocks_.advance(cm::agent::host, rates_.copying.nanoseconds_for(cm::bytes{next->size}), 2 * cm::bytes{next->size});
    next->copied = clocks_.record(cm::agent::host);
    hold(*next, held);
    return true;
  }

  cm::backend::simulated& clocks_;
  cm::agent writer_;
  cm::agent copier_;
  save_rates rates_;
  std::vector<piece> pieces_;
  std::vector<std::size_t> first_of_;  // piece, by item
  std::uint64_t all_ = 0;
  std::uint64_t copied_ = 0;
  std::uint64_t most_held_ = 0;
  std::uint64_t left_ = 0;    // of pieces whose times are not known [B]
  std::size_t promises_ = 0;  // pieces
  bool closed_ = false;
  bool pauses_ = false;
  std::uint64_t pauses_from_ = 0;  // [ns], as the next
  std::uint64_t begun_ = 0;
  std::uint64_t paused_ = 0;
  std::uint64_t until_ = UINT64_MAX;  // the disk takes pieces
  std::size_t known_ = 0;             // pieces whose times are
  std::size_t taken_ = 0;             // pieces, at the time of the copier
  std::size_t release_ = 0;           // the first copy that is not written at that time
  std::size_t ahead_ = 0;             // the piece that the copier looks at
  std::uint64_t held_ahead_ = 0;
};

}  // namespace saving_bench
