// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <step_bound/step_work.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace step_bound_test {

/// Tries every order of copies and of updates on the host of a tiny iteration, and every wait, over several iterations.
///
/// A machine of events: compute takes the accesses in order, each link one copy at a time, the host one update at a
/// time. It has the rules, and no chains or bounds. Durations are whole numbers of nanoseconds; no drops.
class fastest_step {
 public:
  explicit fastest_step(const step_bound::step_input& input) : input_{input}
  {
    access_count_ = static_cast<int>(input.device_bytes.size());
    for (const std::uint64_t size : input.chunk_bytes) {
      up_.push_back(static_cast<int>(input.to_device.nanoseconds_for(chunkmem::bytes{size})));
      down_.push_back(static_cast<int>(input.to_host.nanoseconds_for(chunkmem::bytes{size})));
    }
  }

  /// The least time of an iteration, among runs of `iterations` that come back to where they were [ns]; 0: none did.
  /// @param most_states   the search gives up behind them, and says 0
  double operator()(int iterations, std::size_t most_states)
  {
    machine first;
    first.chunks.resize(input_.chunk_bytes.size());
    first.tasks.assign(input_.host_tasks.size(), 0);
    push(0, 0, first, -1);
    while (!open_.empty()) {
      const auto [when, at] = open_.top();
      open_.pop();
      if (nodes_[at].is_done) continue;
      nodes_[at].is_done = true;
      if (nodes_[at].level == iterations) return least_loop(static_cast<int>(at));
      if (nodes_.size() > most_states) return 0;
      expand(static_cast<int>(at), when);
    }
    return 0;
  }

 private:
  using use_kind = chunkmem::transfer::use_kind;
  struct chunk_state {
    char place = 0;  // 0: absent, 1: comes, 2: on the device
    char is_dirty = 0;
    char leaves = 0;
    auto operator<=>(const chunk_state&) const = default;
  };
  struct machine {
    int access_index = 0;  // that runs, or is the next one
    int computing = -1;    // time left, -1: it has not begun
    int loading = -1, loading_left = 0;
    int saving = -1, saving_left = 0;
    int updating = -1, updating_left = 0;
    std::vector<chunk_state> chunks;
    std::vector<int> tasks;  // how many of each are done, minus the iterations that are done
    auto operator<=>(const machine&) const = default;
  };
  struct node {
    int level;
    machine state;
    int when;
    int parent;
    bool is_done = false;
  };

  void push(int when, int level, const machine& state, int parent)
  {
    const auto [found, fresh] = known_.try_emplace({level, state}, static_cast<int>(nodes_.size()));
    const auto at = static_cast<std::size_t>(found->second);
    if (fresh)
      nodes_.push_back({level, state, when, parent});
    else if (nodes_[at].is_done || nodes_[at].when <= when)
      return;
    nodes_[at].when = when;
    nodes_[at].parent = parent;
    open_.push({when, at});
  }

  void expand(int index, int when)
  {
    const machine now = nodes_[static_cast<std::size_t>(index)].state;
    const int level = nodes_[static_cast<std::size_t>(index)].level;
    if (now.computing < 0 && may_compute(now)) {
      machine next = now;
      begin_access(next);
      push(when, level, next, index);
    }
    for (int chunk = 0; chunk < static_cast<int>(up_.size()); ++chunk) {
      const auto c = static_cast<std::size_t>(chunk);
      if (now.loading < 0 && may_load(now, chunk)) {
        machine next = now;
        next.loading = chunk;
        next.loading_left = up_[c];
        next.chunks[c].place = 1;
        push(when, level, next, index);
      }
      if (now.saving < 0 && now.chunks[c].is_dirty && !is_written(now, chunk)) {
        machine next = now;
        next.saving = chunk;
        next.saving_left = down_[c];
        push(when, level, next, index);
      }
    }
    for (int task = 0; task < static_cast<int>(now.tasks.size()) && now.updating < 0; ++task) {
      if (!may_update(now, task)) continue;
      machine next = now;
      next.updating = task;
      next.updating_left = static_cast<int>(input_.host_tasks[static_cast<std::size_t>(task)].nanoseconds);
      push(when, level, next, index);
    }
    pass_time(now, level, when, index);
  }

  /// Until the next thing ends.
  void pass_time(const machine& now, int level, int when, int index)
  {
    int step = INT32_MAX;
    if (now.computing >= 0) step = std::min(step, now.computing);
    if (now.loading >= 0) step = std::min(step, now.loading_left);
    if (now.saving >= 0) step = std::min(step, now.saving_left);
    if (now.updating >= 0) step = std::min(step, now.updating_left);
    if (step == INT32_MAX) return;
    machine next = now;
    if (next.computing >= 0) next.computing -= step;
    if (next.loading >= 0 && (next.loading_left -= step) == 0)
      next.chunks[static_cast<std::size_t>(std::exchange(next.loading, -1))].place = 2;
    if (next.saving >= 0 && (next.saving_left -= step) == 0) end_saving(next);
    if (next.updating >= 0 && (next.updating_left -= step) == 0) end_updating(next);
    if (next.computing == 0) level += end_access(next);
    push(when + step, level, next, index);
  }

  static void end_saving(machine& next)
  {
    chunk_state& it = next.chunks[static_cast<std::size_t>(std::exchange(next.saving, -1))];
    it.is_dirty = 0;
    if (it.leaves) it = {};
  }

  void end_updating(machine& next) const
  {
    const auto task = static_cast<std::size_t>(std::exchange(next.updating, -1));
    ++next.tasks[task];
    for (const auto& use : input_.uses)
      if (is_part(use, task) && use.kind != use_kind::host_read) next.chunks[use.chunk] = {};
  }

  /// @return   an iteration ended
  int end_access(machine& next) const
  {
    const int ended = next.access_index;
    next.computing = -1;
    next.access_index = (ended + 1) % access_count_;
    if (next.access_index == 0)
      for (int& it : next.tasks) --it;
    for (std::size_t chunk = 0; chunk < next.chunks.size(); ++chunk) let_go(next, chunk, ended + 1);
    return next.access_index == 0 ? 1 : 0;
  }

  /// The last use of a stretch on the device is over: does the chunk stay?
  void let_go(machine& next, std::size_t chunk, int end) const
  {
    chunk_state& it = next.chunks[chunk];
    std::size_t last = SIZE_MAX;
    for (std::size_t index = 0; index < input_.uses.size(); ++index) {
      const auto& use = input_.uses[index];
      if (use.chunk != chunk || !is_on_device(use.kind)) continue;
      if (static_cast<int>(use.begin) < end && static_cast<int>(use.end) > end) return;  // still in use
      if (static_cast<int>(use.end) == end) last = index;
    }
    if (last == SIZE_MAX) return;
    const auto [following, wait] = next_use(chunk, end, true);
    if (is_on_device(input_.uses[following].kind) && wait == 0) return;
    bool leaves = input_.retained[last] == 0;
    if (input_.uses[following].kind == use_kind::host_update) leaves = true;
    if (input_.uses[following].kind == use_kind::host_overwrite && !leaves) {
      it = {};
      return;
    }
    if (!leaves) return;
    it.leaves = 1;
    if (!it.is_dirty) it = {};
  }

  /// The chunk's next use from an access on, around the end, and how many accesses it is away.
  std::pair<std::size_t, int> next_use(std::size_t chunk, int from, bool skips_host_reads) const
  {
    std::pair<std::size_t, int> best{SIZE_MAX, INT32_MAX};
    for (std::size_t index = 0; index < input_.uses.size(); ++index) {
      const auto& use = input_.uses[index];
      if (use.chunk != chunk || (skips_host_reads && use.kind == use_kind::host_read)) continue;
      const int wait = (static_cast<int>(use.begin) - from + 2 * access_count_) % access_count_;
      if (wait < best.second) best = {index, wait};
    }
    return best;
  }

  [[nodiscard]] bool is_part(const chunkmem::transfer::retention_use& use, std::size_t task) const
  {
    const auto& it = input_.host_tasks[task];
    return !is_on_device(use.kind) && use.begin >= it.begin && use.begin < it.end;
  }

  /// All updates that touch the chunk and come before an access, `ahead` iterations on, are done.
  [[nodiscard]] bool updates_are_done(const machine& now, std::size_t chunk, int access_index, int ahead,
                                      bool readers_too) const
  {
    for (const auto& use : input_.uses)
      for (std::size_t task = 0; task < now.tasks.size(); ++task) {
        if (use.chunk != chunk || !is_part(use, task) || (use.kind == use_kind::host_read && !readers_too)) continue;
        if (now.tasks[task] < ahead + (static_cast<int>(use.begin) < access_index ? 1 : 0)) return false;
      }
    return true;
  }

  [[nodiscard]] std::uint64_t occupied(const machine& now) const
  {
    std::uint64_t all = 0;
    for (std::size_t chunk = 0; chunk < now.chunks.size(); ++chunk)
      if (now.chunks[chunk].place != 0) all += input_.chunk_bytes[chunk];
    return all;
  }

  [[nodiscard]] bool may_compute(const machine& now) const
  {
    if (now.access_index == 0)
      for (const int it : now.tasks)
        if (it < -1) return false;  // else what nobody waits for would come later and later
    std::uint64_t all = occupied(now);
    for (const auto& use : input_.uses) {
      if (static_cast<int>(use.begin) != now.access_index || !is_on_device(use.kind)) continue;
      const bool writes = use.kind != use_kind::read;
      const chunk_state& it = now.chunks[use.chunk];
      if (!updates_are_done(now, use.chunk, now.access_index, 0, writes)) return false;
      if (it.place == 1 || it.leaves || (writes && now.saving == static_cast<int>(use.chunk))) return false;
      if (it.place == 0 && use.kind != use_kind::overwrite) return false;
      if (it.place == 0) all += input_.chunk_bytes[use.chunk];
    }
    return all <= input_.device_bytes[static_cast<std::size_t>(now.access_index)];
  }

  void begin_access(machine& next) const
  {
    next.computing = static_cast<int>(input_.access_nanoseconds[static_cast<std::size_t>(next.access_index)]);
    for (const auto& use : input_.uses)
      if (static_cast<int>(use.begin) == next.access_index && is_on_device(use.kind)) {
        chunk_state& it = next.chunks[use.chunk];
        it.place = 2;
        if (use.kind != use_kind::read) it.is_dirty = 1;
      }
  }

  [[nodiscard]] bool may_load(const machine& now, int chunk) const
  {
    const auto c = static_cast<std::size_t>(chunk);
    if (now.chunks[c].place != 0) return false;
    const int from = now.computing >= 0 ? now.access_index + 1 : now.access_index;
    std::pair<std::size_t, int> next{SIZE_MAX, INT32_MAX};  // on the device
    for (std::size_t index = 0; index < input_.uses.size(); ++index) {
      const auto& use = input_.uses[index];
      if (use.chunk != c || !is_on_device(use.kind)) continue;
      const int wait = (static_cast<int>(use.begin) - from + 2 * access_count_) % access_count_;
      if (wait < next.second) next = {index, wait};
    }
    if (next.first == SIZE_MAX || input_.uses[next.first].kind == use_kind::overwrite) return false;
    const int access_index = from + next.second;
    if (!updates_are_done(now, c, access_index % access_count_, access_index / access_count_, false)) return false;
    const auto here = static_cast<std::size_t>(now.access_index);
    std::uint64_t room = input_.device_bytes[here];
    if (now.computing < 0)
      room = std::max(room, input_.device_bytes[(here + static_cast<std::size_t>(access_count_) - 1) %
                                                static_cast<std::size_t>(access_count_)]);
    return occupied(now) + input_.chunk_bytes[c] <= room;
  }

  [[nodiscard]] bool is_used(const machine& now, std::size_t chunk, bool writing) const
  {
    for (const auto& use : input_.uses) {
      if (use.chunk != chunk || !is_on_device(use.kind) || (writing && use.kind == use_kind::read)) continue;
      const bool has_begun = static_cast<int>(use.begin) < now.access_index ||
                             (static_cast<int>(use.begin) == now.access_index && now.computing >= 0);
      if (has_begun && static_cast<int>(use.end) > now.access_index) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_written(const machine& now, int chunk) const
  {
    return is_used(now, static_cast<std::size_t>(chunk), true);
  }

  /// The next one of this task may begin: everything before it that it must follow is over.
  [[nodiscard]] bool may_update(const machine& now, int task) const
  {
    const auto t = static_cast<std::size_t>(task);
    const auto& it = input_.host_tasks[t];
    const int round = now.tasks[t];       // of the iteration that runs, 0, or before it
    const int passed = now.access_index;  // accesses of iteration 0 that are over
    if (it.after != step_bound::host_task::none) {
      const int access_index = static_cast<int>(it.after) + (round - (it.after < it.begin ? 0 : 1)) * access_count_;
      if (access_index >= passed) return false;
    }
    for (const auto& use : input_.uses) {
      if (!is_part(use, t)) continue;
      const bool writes = use.kind != use_kind::host_read;
      for (const auto& other : input_.uses) {
        if (other.chunk != use.chunk || !is_on_device(other.kind) || (!writes && other.kind == use_kind::read))
          continue;
        const int before = static_cast<int>(other.begin) < static_cast<int>(use.begin) ? round : round - 1;
        if (static_cast<int>(other.end) + before * access_count_ > passed) return false;
      }
      const chunk_state& chunk = now.chunks[use.chunk];
      if (now.saving == static_cast<int>(use.chunk)) return false;
      if (use.kind != use_kind::host_overwrite ? chunk.is_dirty != 0 : chunk.leaves != 0) return false;
    }
    return true;
  }

  /// Two visits of the same state at the start of an iteration, along the fastest run.
  [[nodiscard]] double least_loop(int index) const
  {
    std::vector<int> starts;
    for (; index >= 0; index = nodes_[static_cast<std::size_t>(index)].parent) {
      const int parent = nodes_[static_cast<std::size_t>(index)].parent;
      if (parent >= 0 &&
          nodes_[static_cast<std::size_t>(index)].level != nodes_[static_cast<std::size_t>(parent)].level)
        starts.push_back(index);
    }
    double least = 0;
    for (std::size_t later = 0; later < starts.size(); ++later)
      for (std::size_t before = later + 1; before < starts.size(); ++before) {
        const node& end = nodes_[static_cast<std::size_t>(starts[later])];
        const node& begin = nodes_[static_cast<std::size_t>(starts[before])];
        if (end.state != begin.state) continue;
        const double one = static_cast<double>(end.when - begin.when) / (end.level - begin.level);
        if (least == 0 || one < least) least = one;
      }
    return least;
  }

  step_bound::step_input input_;
  int access_count_ = 0;
  std::vector<int> up_;
  std::vector<int> down_;
  std::vector<node> nodes_;
  std::map<std::pair<int, machine>, int> known_;
  std::priority_queue<std::pair<int, std::size_t>, std::vector<std::pair<int, std::size_t>>, std::greater<>> open_;
};

}  // namespace step_bound_test
