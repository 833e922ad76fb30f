// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/record_uses.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace step_bound {

namespace cm = chunkmem;
using cm::transfer::is_on_device;
using cm::transfer::retention_use;
using cm::transfer::use_kind;

/// An update on the host. All uses of the host that begin in [`begin`, `end`) are parts of it.
///
/// The host may take updates in any order, and later than their accesses. The uses of a chunk on the device keep their
/// place before or after the updates of this chunk.
struct host_task {
  static constexpr std::uint32_t none = UINT32_MAX;

  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint64_t nanoseconds = 0;  ///< work of the host
  std::uint32_t after = none;  ///< it begins behind this access, the last one before `begin`: for a global norm the one
                               ///< that makes the last gradient
};

/// An iteration after all decisions, as durations and rates. Its least time depends only on these members.
struct step_input {
  std::span<const std::uint64_t> access_nanoseconds;  ///< time of compute at each access
  std::span<const std::uint64_t> chunk_bytes;         ///< size of each chunk [bytes], above 0
  std::span<const retention_use> uses;                ///< by `begin`; those of one chunk in the order they happen
  /// by use: its chunk stays until its next use; see retention_solution
  std::span<const std::uint8_t> retained;
  std::span<const std::uint64_t> device_bytes;  ///< room for chunks on the device, at each access [bytes]
  std::span<const host_task> host_tasks;        ///< by `begin`, disjoint; other uses of the host take no time
  cm::backend::link_cost to_device;
  cm::backend::link_cost to_host;
  std::uint64_t collective_nanoseconds = 0;  ///< busy time of collectives in one iteration
};

/// A copy, or an update on the host: its duration, and the accesses between which it must be.
///
/// The same piece of the iteration before lies one iteration earlier, in accesses and in compute.
struct work_piece {
  static constexpr std::int64_t never = INT64_MAX;

  double nanoseconds = 0;
  std::int64_t from = never;    ///< after the end of this access; or never: it waits only for data of the host
  double ready = 0;             ///< time at which the piece can begin if that access ended in time
  std::int64_t to = never;      ///< before the start of this access, or never
  double due = 0;               ///< time by which the piece must have ended so that this access begins in time
  std::int64_t leaves = never;  ///< of a write-back: from this access on its chunk may leave the device
};

/// Time in units of compute: the start of each access if compute never waited.
///
/// Accesses below 0 belong to iterations before. Accesses from `access_count()` on belong to iterations after.
class compute_clock {
 public:
  explicit compute_clock(std::span<const std::uint64_t> access_nanoseconds)
      : before_(access_nanoseconds.size() + 1, 0), access_count_{static_cast<std::int64_t>(access_nanoseconds.size())}
  {
    for (std::size_t index = 0; index < access_nanoseconds.size(); ++index)
      before_[index + 1] = before_[index] + static_cast<double>(access_nanoseconds[index]);
  }

  [[nodiscard]] std::int64_t access_count() const noexcept { return access_count_; }
  /// Compute of one iteration [ns].
  [[nodiscard]] double whole() const noexcept { return before_.back(); }
  /// @return   [ns], from access 0
  [[nodiscard]] double at(std::int64_t access_index) const noexcept
  {
    const std::int64_t round =
        access_index < 0 ? -((-access_index + access_count_ - 1) / access_count_) : access_index / access_count_;
    return static_cast<double>(round) * whole() +
           before_[static_cast<std::size_t>(access_index - round * access_count_)];
  }

  /// The piece begins `later` after the end of that access. Of several accesses the latest counts, then the latest
  /// time.
  void follow(work_piece& it, std::int64_t access_index, double later) const noexcept
  {
    const double ready = at(access_index + 1) + later;
    if (it.from != work_piece::never && (it.from > access_index || (it.from == access_index && it.ready >= ready)))
      return;
    it.from = access_index;
    it.ready = ready;
  }

  /// The piece ends `earlier` before that access begins. Of several times the earliest counts.
  void precede(work_piece& it, std::int64_t access_index, double earlier) const noexcept
  {
    const double due = at(access_index) - earlier;
    if (it.to != work_piece::never && it.due <= due) return;
    it.to = access_index;
    it.due = due;
  }

 private:
  std::vector<double> before_;
  std::int64_t access_count_;
};

/// The work of the links and of the host in an iteration, with the earliest start and the latest end of each piece.
///
///     const step_work work{input};
///     work.loads(), work.write_backs(), work.updates();
///
/// The copies follow from the uses and from the chunks that stay, as if the iteration repeats. Pieces belong to the
/// iteration that begins at access 0. Cost: O(uses + chunks + accesses).
class step_work {
 public:
  /// @throws usage_error   spans of other lengths, tasks that overlap, uses that do not fit the accesses, or uses and
  ///   retained chunks that do not fit the device
  explicit step_work(const step_input& input) : input_{&input}, clock_{input.access_nanoseconds}
  {
    check();
    taken_.assign(input.device_bytes.size() + 1, 0);
    number_tasks();
    std::vector<std::vector<std::uint32_t>> of_chunk(input.chunk_bytes.size());
    for (std::uint32_t index = 0; index < input.uses.size(); ++index)
      of_chunk[input.uses[index].chunk].push_back(index);
    for (const std::vector<std::uint32_t>& mine : of_chunk) walk(mine);
    close_tasks();
    find_room();
  }

  [[nodiscard]] const compute_clock& clock() const noexcept { return clock_; }
  [[nodiscard]] std::span<const work_piece> loads() const noexcept { return loads_; }
  [[nodiscard]] std::span<const work_piece> write_backs() const noexcept { return write_backs_; }
  [[nodiscard]] std::span<const work_piece> updates() const noexcept { return updates_; }
  /// Bytes that neither uses nor retained chunks take, at each access.
  [[nodiscard]] std::span<const std::uint64_t> room() const noexcept { return room_; }

 private:
  /// A task of an iteration: `round` is 0 in the current iteration.
  struct task_of_round {
    std::uint32_t task;
    std::int64_t round;
  };
  /// The state of a chunk's copies after its uses.
  struct copies {
    bool on_device = false;
    bool is_dirty = false;  // the host's copy is older
    bool is_empty = false;
    std::int64_t end = work_piece::never;      // of its last use on the device
    std::uint32_t last = 0;                    // that use
    std::int64_t written = work_piece::never;  // end of the last use that wrote there
    double saving = 0;                         // of the write-back since then, 0: none
    std::vector<task_of_round> writers;        // since its last use on the device
    std::vector<task_of_round> readers;        // since its last write there
  };
  /// A load that waits for tasks whose own waits are known later.
  struct waiting_load {
    std::size_t load;
    task_of_round task;
  };
  struct waiting_save {
    std::size_t write_back;
    std::uint32_t task;
  };

  void check() const
  {
    const std::size_t access_count = input_->device_bytes.size();
    cm::expects(access_count > 0, "an iteration without accesses takes no time");
    cm::expects(input_->access_nanoseconds.size() == access_count, "not every access has a duration and a room");
    cm::expects(input_->retained.size() == input_->uses.size(), "it is not said of every use whether its chunk stays");
    std::uint32_t now = 0;
    for (const retention_use& it : input_->uses) {
      cm::expects(it.chunk < input_->chunk_bytes.size(), "a use names a chunk that has no size");
      cm::expects(it.begin >= now && it.begin < it.end && it.end <= access_count,
                  "a use is out of order or behind the last access");
      now = it.begin;
    }
    std::uint32_t end = 0;
    for (const host_task& it : input_->host_tasks) {
      cm::expects(it.begin >= end && it.begin < it.end && it.end <= access_count,
                  "tasks of the host overlap or are out of order");
      cm::expects(it.after == host_task::none || it.after < access_count,
                  "a task of the host waits for an access that is not there");
      end = it.end;
    }
  }

  /// Uses of the host that are in no task are tasks of their own.
  void number_tasks()
  {
    task_of_use_.assign(input_->uses.size(), 0);
    std::size_t next = 0;
    for (const host_task& it : input_->host_tasks) add_task(it);
    for (std::size_t index = 0; index < input_->uses.size(); ++index) {
      const retention_use& use = input_->uses[index];
      if (is_on_device(use.kind) || use.kind == use_kind::drop) continue;
      while (next < input_->host_tasks.size() && input_->host_tasks[next].end <= use.begin) ++next;
      task_of_use_[index] = static_cast<std::uint32_t>(next);
      if (next < input_->host_tasks.size() && input_->host_tasks[next].begin <= use.begin) continue;
      task_of_use_[index] = static_cast<std::uint32_t>(updates_.size());
      add_task({use.begin, use.begin + 1, 0, host_task::none});
    }
  }

  void add_task(const host_task& it)
  {
    work_piece made;
    made.nanoseconds = static_cast<double>(it.nanoseconds);
    if (it.after != host_task::none)
      clock_.follow(made, it.after < it.begin ? it.after : it.after - clock_.access_count(), 0);
    updates_.push_back(made);
  }

  /// Two rounds: the first finds the place of the copies when an iteration begins, the second one counts.
  void walk(std::span<const std::uint32_t> mine)
  {
    copies now;
    for (std::int64_t round = -1; round < 1; ++round)
      for (const std::uint32_t index : mine)
        is_on_device(input_->uses[index].kind) ? use_on_device(now, index, round) : use_elsewhere(now, index, round);
    std::int64_t counted = 0;
    for (const std::uint32_t index : mine) {
      const retention_use& it = input_->uses[index];
      if (!is_on_device(it.kind) || it.end <= counted) continue;
      take(std::max<std::int64_t>(counted, it.begin), it.end, input_->chunk_bytes[it.chunk]);
      counted = it.end;
    }
  }

  void use_on_device(copies& now, std::uint32_t index, std::int64_t round)
  {
    const retention_use& it = input_->uses[index];
    const std::int64_t begin = it.begin + round * clock_.access_count();
    const bool needs = it.kind != use_kind::overwrite && !now.is_empty;
    const double loading = needs ? nanoseconds_for(input_->to_device, it.chunk) : 0;
    if (now.on_device && begin > now.end) {
      if (input_->retained[now.last] != 0)
        keep(now, it.chunk, begin, round);
      else
        leave(now, it.chunk, begin, loading, round);
    }
    const bool loads = needs && !now.on_device;
    const bool writes = it.kind != use_kind::read || now.is_empty;
    close(now.writers, begin, loads ? loading : 0, round);
    if (writes) close(now.readers, begin, 0, round);
    if (loads && round == 0) load(now, begin, loading);
    now.is_dirty = writes || (now.on_device && now.is_dirty);
    now.on_device = true;
    now.is_empty = false;
    now.writers.clear();
    const std::int64_t end = it.end + round * clock_.access_count();
    if (writes) {
      now.written = now.written == work_piece::never ? end : std::max(now.written, end);
      now.saving = 0;
      now.readers.clear();
    }
    if (now.end != work_piece::never && end < now.end) return;
    now.end = end;
    now.last = index;
  }

  /// A use on the host, or a drop.
  void use_elsewhere(copies& now, std::uint32_t index, std::int64_t round)
  {
    const retention_use& it = input_->uses[index];
    const bool writes = it.kind != use_kind::host_read;
    const std::uint32_t task = task_of_use_[index];
    const bool retained = now.on_device && input_->retained[now.last] != 0;
    if (now.on_device && now.is_dirty) {
      if (it.kind == use_kind::host_read || it.kind == use_kind::host_update)
        save(now, it.chunk, task, !writes && retained, round);
      else if (!retained)
        leave(now, it.chunk, work_piece::never, 0, round);
    }
    if (it.kind == use_kind::drop) {
      now.on_device = now.is_dirty = false;
      now.is_empty = true;
      return;
    }
    if (round == 0 && it.kind != use_kind::host_overwrite && now.saving > 0)
      clock_.follow(updates_[task], now.written - 1, now.saving);
    if (round == 0 && writes && now.end != work_piece::never) clock_.follow(updates_[task], now.end - 1, 0);
    now.readers.push_back({task, round});
    if (!writes) return;
    now.writers.push_back({task, round});
    now.on_device = now.is_dirty = now.is_empty = false;
    now.saving = 0;
  }

  void close(std::span<const task_of_round> tasks, std::int64_t begin, double loading, std::int64_t round)
  {
    if (round < 0) return;
    for (const task_of_round& it : tasks)
      clock_.precede(updates_[it.task], begin - it.round * clock_.access_count(), loading);
  }

  /// A retained chunk takes room until its next use on the device. If the host overwrites it before, its end is
  /// unknown, since the order of the host is free.
  void keep(const copies& now, std::uint32_t chunk, std::int64_t begin, std::int64_t round)
  {
    if (round < 0) return;
    const std::uint64_t size = input_->chunk_bytes[chunk];
    if (now.end < 0) take(now.end + clock_.access_count(), clock_.access_count(), size);
    take(std::max<std::int64_t>(now.end, 0), begin, size);
  }

  /// The chunk leaves the device before its next use there, which may load it. @param to   access of that use, or
  /// work_piece::never
  void leave(copies& now, std::uint32_t chunk, std::int64_t to, double loading, std::int64_t round)
  {
    if (now.is_dirty) {
      now.saving = nanoseconds_for(input_->to_host, chunk);
      work_piece made = write_back(now);
      made.leaves = now.end;
      if (to != work_piece::never) clock_.precede(made, to, loading);
      if (round == 0) write_backs_.push_back(made);
    }
    now.on_device = now.is_dirty = false;
  }

  /// The host reads the bytes. @param retained   the device's copy is still valid, and kept
  void save(copies& now, std::uint32_t chunk, std::uint32_t task, bool retained, std::int64_t round)
  {
    now.saving = nanoseconds_for(input_->to_host, chunk);
    now.is_dirty = false;
    if (round < 0) return;
    waiting_saves_.push_back({write_backs_.size(), task});
    write_backs_.push_back(write_back(now));
    if (!retained) write_backs_.back().leaves = now.end;
  }

  [[nodiscard]] work_piece write_back(const copies& now) const
  {
    work_piece made;
    made.nanoseconds = now.saving;
    clock_.follow(made, now.written - 1, 0);
    return made;
  }

  void load(const copies& now, std::int64_t begin, double loading)
  {
    work_piece made;
    made.nanoseconds = loading;
    clock_.precede(made, begin, 0);
    clock_.follow(made, now.end - 1, 0);
    if (now.saving > 0) clock_.follow(made, now.written - 1, now.saving);
    for (const task_of_round& it : now.writers) waiting_loads_.push_back({loads_.size(), it});
    loads_.push_back(made);
  }

  void close_tasks()
  {
    for (const waiting_load& it : waiting_loads_) {
      const work_piece& task = updates_[it.task.task];
      if (task.from == work_piece::never) continue;
      const std::int64_t from = task.from + it.task.round * clock_.access_count();
      clock_.follow(loads_[it.load], from, task.ready + task.nanoseconds - clock_.at(task.from + 1));
    }
    for (const waiting_save& it : waiting_saves_)
      if (const work_piece& task = updates_[it.task]; task.to != work_piece::never)
        clock_.precede(write_backs_[it.write_back], task.to, clock_.at(task.to) - task.due + task.nanoseconds);
  }

  void take(std::int64_t begin, std::int64_t end, std::uint64_t size)
  {
    if (end <= begin) return;
    taken_[static_cast<std::size_t>(begin)] += size;
    taken_[static_cast<std::size_t>(end)] -= size;  // may wrap below zero; the sums do not
  }

  void find_room()
  {
    std::uint64_t taken = 0;
    for (std::size_t index = 0; index < input_->device_bytes.size(); ++index) {
      taken += taken_[index];
      cm::expects(taken <= input_->device_bytes[index],
                  "chunks that are used and chunks that stay do not fit the device");
      room_.push_back(input_->device_bytes[index] - taken);
    }
  }

  [[nodiscard]] double nanoseconds_for(const cm::backend::link_cost& link, std::uint32_t chunk) const
  {
    return static_cast<double>(link.nanoseconds_for(cm::bytes{input_->chunk_bytes[chunk]}));
  }

  const step_input* input_;
  compute_clock clock_;
  std::vector<std::uint64_t> taken_;  // differences
  std::vector<std::uint64_t> room_;
  std::vector<std::uint32_t> task_of_use_;
  std::vector<work_piece> loads_;
  std::vector<work_piece> write_backs_;
  std::vector<work_piece> updates_;
  std::vector<waiting_load> waiting_loads_;
  std::vector<waiting_save> waiting_saves_;
};

}  // namespace step_bound
