// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace support {

/// A chain of stages 0..L-1 and the loss, stage L. Sizes in slots, times in seconds.
/// @pre   saved[i] >= input[i] for i >= 1
struct slot_chain {
  std::vector<std::uint32_t> input;           ///< x_i, i = 0..L+1: input of stage i; x_{L+1} is the output of the loss
  std::vector<std::uint32_t> saved;           ///< xb_i, i = 1..L+1: all that a full forward of stage i-1 saves, x_i too
  std::vector<std::uint32_t> forward_extra;   ///< of_i, i = 0..L: transient slots of a forward
  std::vector<std::uint32_t> backward_extra;  ///< ob_i, i = 0..L: transient slots of a backward
  std::vector<double> forward;                ///< uf_i, i = 0..L
  std::vector<double> backward;               ///< ub_i, i = 0..L
  std::vector<std::uint8_t> reads_input;      ///< i = 0..L: 1 if the backward of stage i reads x_i
};

/// The recursion of rotor, from the top and with memoization. Opt(i, j, m, e) is the least time of the forwards and
/// backwards of stages i..j. The memory m counts the gradient of x_{j+1}, which exists from the start until stage j has
/// run backward; the gradient of the loss's output is an exception, since the loss makes it while it runs backward. The
/// memory m does not count x_i. With e = 0, x_i is kept until stage i has run backward. With e = 1, nothing outside of
/// i..j reads x_i: where the backward of stage i does not read it either, x_i ends when stage i has saved.
///
///   free(i, e)      = x_i if e = 1 and the backward of stage i does not read x_i, else 0
///   wait(j)         = x_{j+1} if stage j is not the loss, else 0
///   save(i, j, e)   = max( xb_{i+1} + wait(j) + of_i , xb_{i+1} + x_{i+1} + x_i + ob_i - free(i, e) )
///   Opt(i, i, m, e) = uf_i + ub_i    if m >= save(i, i, e), else infinity
///   pass(i, j, s)   = wait(j) + max( x_{i+1} + of_i , max_{i<k<s} ( x_k + x_{k+1} + of_k ) )
///   Opt(i, j, m, e) = the lesser of
///     min_{i<s<=j, m >= pass(i,j,s)} sum_{k=i}^{s-1} uf_k + Opt(s, j, m - x_s, 1) + Opt(i, s-1, m, e)
///     uf_i + Opt(i+1, j, m + free(i, e) - xb_{i+1}, 0) + ub_i    if m >= save(i, j, e)
///
/// In save(i, j, e) the gradient of x_{j+1} waits while stage i runs forward, not that of x_{i+1}.
class rotor_recursion {
 public:
  using slots = std::int64_t;  // signed, because limits subtract

  explicit rotor_recursion(const slot_chain& what) : chain_{what} {}

  double operator()(std::size_t first, std::size_t last, slots room, bool ends)
  {
    if (room < 0) return never;
    const state key{static_cast<slots>(first), static_cast<slots>(last), room, ends ? 1 : 0};
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const double best = first == last ? one(first, room, ends) : several(first, last, room, ends);
    known_.emplace(key, best);
    return best;
  }
  /// free(i, e)
  [[nodiscard]] slots freed(std::size_t stage, bool ends) const
  {
    return ends && chain_.reads_input[stage] == 0 ? input(stage) : 0;
  }

 private:
  using state = std::array<slots, 4>;
  struct hash {
    std::size_t operator()(const state& it) const
    {
      return std::hash<slots>{}((it[0] << 48) ^ (it[1] << 32) ^ (it[2] << 1) ^ it[3]);
    }
  };
  static constexpr double never = std::numeric_limits<double>::infinity();

  [[nodiscard]] slots input(std::size_t index) const { return chain_.input[index]; }
  [[nodiscard]] slots waiting(std::size_t last) const { return last + 1 < chain_.forward.size() ? input(last + 1) : 0; }

  [[nodiscard]] slots save_limit(std::size_t first, std::size_t last, bool ends) const
  {
    const slots saved = chain_.saved[first + 1];
    return std::max(saved + waiting(last) + chain_.forward_extra[first],
                    saved + input(first + 1) + input(first) + chain_.backward_extra[first] - freed(first, ends));
  }

  [[nodiscard]] double one(std::size_t stage, slots room, bool ends) const
  {
    return room >= save_limit(stage, stage, ends) ? chain_.forward[stage] + chain_.backward[stage] : never;
  }

  double several(std::size_t first, std::size_t last, slots room, bool ends)
  {
    double best = never;
    double pass = 0;
    for (std::size_t split = first + 1; split <= last; ++split) {
      const std::size_t stage = split - 1;
      if (room < (stage > first ? input(stage) : 0) + input(split) + chain_.forward_extra[stage] + waiting(last)) break;
      pass += chain_.forward[stage];
      best = std::min(best,
                      pass + (*this)(split, last, room - input(split), true) + (*this)(first, split - 1, room, ends));
    }
    if (room < save_limit(first, last, ends)) return best;
    const double rest = (*this)(first + 1, last, room + freed(first, ends) - chain_.saved[first + 1], false);
    return std::min(best, chain_.forward[first] + rest + chain_.backward[first]);
  }

  const slot_chain& chain_;
  std::unordered_map<state, double, hash> known_;
};

/// The least time of rotor's model.
/// @param slots   without x_0, which exists from the start and is not counted
/// @return   [s], infinity where nothing fits
inline double oracle_rotor(const slot_chain& chain, std::uint32_t slots)
{
  return rotor_recursion{chain}(0, chain.forward.size() - 1, slots, true);
}

/// The recursion of POFO, from the top and with memoization, with a rate rh to the host and a rate rd to the device. A
/// state comes before the first forward of a group of stages that begins at i:
///
///   full   whether the input of stage i is there as xb_i, or as x_i; in = xb_i or x_i. The slots of `in` are taken
///          throughout the forward and the backward of the group, even where they go to the host and come back.
///          Where x_i is there alone, stage i saves all and its backward does not read x_i, x_i is dead after its
///          forward: the slots of `in` are free from then on, and `in` neither stays nor leaves.
///   A      slots saved before i that stay on the device
///   df     slots that go to the host and have not left when the forward of the group may begin
///   db     slots of inputs of earlier groups that must have come back when the backward of the group has ended. The
///          latest prefetch that meets all these deadlines is the one meant, so db is known in the order of forwards.
///
/// R = slots - A - in. A stall of n slots lasts n / rate, and 0 where n = 0. Stages are summed in ascending order.
/// Whole slots move: floor() of a rate times seconds. A limit that fails forbids the choice.
///
/// Choice 1 saves all of stage i and goes on at i+1, full:
///   pf = xb_{i+1} + of_i <= R            pb = xb_{i+1} + x_{i+1} + x_i + ob_i <= R', with R' = R + in if x_i is dead
///   ef = max(0, pf - (R - df))           eb = max(0, pb - (R' - db))          which must move while nothing computes
///   out = floor(rh uf_i) + ef            back = floor(rd ub_i) + eb           cost = uf_i + ub_i + ef/rh + eb/rd
/// Choice 2 saves nothing of stages i..j, i <= j < L, and goes on at j+1, not full:
///   pf(k) = x_{k+1} + of_k (+ x_k if k > i) <= R for each k of i..j           Tb = Opt(i, j, R - db, not full)
///   ef = max(0, max_k( pf(k) - floor(rh sum_{t=i}^{k-1} uf_t) ) - (R - df))   the stall is before the first forward
///   out = floor(rh sum uf) + ef          back = floor(rd Tb)                  cost = sum uf + ef/rh + Tb
/// After either choice
///   in stays:     A' = A + in            df' = max(0, df - out)               db' = max(0, db - back)
///   in leaves:    A' = A                 df' = max(0, df + in - out)          db' = max(0, db - back) + in
///   in is dead:   A' = A                 df' = max(0, df - out)               db' = max(0, db - back)
/// The loss is a choice 1 where in stays; after its forward df' leave, and then db' return, while nothing computes:
///   value = cost + df'/rh + db'/rd
class pofo_recursion {
 public:
  using slots = rotor_recursion::slots;

  pofo_recursion(const slot_chain& what, slots all, double to_host, double to_device)
      : chain_{what}, rotor_{what}, all_{all}, to_host_{to_host}, to_device_{to_device}
  {
  }

  double operator()() { return from({}); }

 private:
  struct state {
    std::size_t stage = 0;
    bool full = false;
    slots kept = 0;     // A
    slots leaving = 0;  // df
    slots due = 0;      // db
    bool operator==(const state&) const = default;
  };
  struct hash {
    std::size_t operator()(const state& it) const
    {
      std::size_t mixed = 2 * it.stage + (it.full ? 1 : 0);
      for (const slots part : {it.kept, it.leaving, it.due})
        mixed = mixed * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(part);
      return mixed ^ mixed >> 29;
    }
  };
  struct group {
    std::size_t next;  // stage
    bool full;
    double seconds;  // of its forwards and backwards, stalls included
    slots out, back;
    bool is_input_dead = false;
  };
  static constexpr double never = std::numeric_limits<double>::infinity();

  double from(const state& now)
  {
    if (const auto found = known_.find(now); found != known_.end()) return found->second;
    double best = never;
    if (const std::optional<group> saved = save(now)) best = is_loss(now.stage) ? end(now, *saved) : after(now, *saved);
    for (std::size_t last = now.stage; !is_loss(last); ++last)
      if (const std::optional<group> redone = redo(now, last)) best = std::min(best, after(now, *redone));
    known_.emplace(now, best);
    return best;
  }

  /// Choice 1.
  [[nodiscard]] std::optional<group> save(const state& now) const
  {
    const std::size_t stage = now.stage;
    const slots room = all_ - now.kept - input(now);
    const slots saved = chain_.saved[stage + 1];
    const slots forward = saved + chain_.forward_extra[stage];
    const slots backward = saved + chain_.input[stage + 1] + chain_.input[stage] + chain_.backward_extra[stage];
    const slots way_back = room + rotor_.freed(stage, !now.full);
    if (forward > room || backward > way_back) return std::nullopt;
    const slots excess_out = std::max<slots>(0, forward - (room - now.leaving));
    const slots excess_back = std::max<slots>(0, backward - (way_back - now.due));
    return group{.next = stage + 1,
                 .full = true,
                 .seconds = chain_.forward[stage] + chain_.backward[stage] + stall(excess_out, to_host_) +
                            stall(excess_back, to_device_),
                 .out = moved(to_host_, chain_.forward[stage]) + excess_out,
                 .back = moved(to_device_, chain_.backward[stage]) + excess_back,
                 .is_input_dead = !now.full && chain_.reads_input[stage] == 0};
  }

  /// Choice 2 of stages up to `last`.
  [[nodiscard]] std::optional<group> redo(const state& now, std::size_t last)
  {
    const slots room = all_ - now.kept - input(now);
    double pass = 0;
    slots excess = 0;
    for (std::size_t stage = now.stage; stage <= last; ++stage) {
      const slots needed =
          chain_.input[stage + 1] + chain_.forward_extra[stage] + (stage > now.stage ? slots{chain_.input[stage]} : 0);
      if (needed > room) return std::nullopt;
      excess = std::max(excess, needed - moved(to_host_, pass) - (room - now.leaving));
      pass += chain_.forward[stage];
    }
    const double backward = rotor_(now.stage, last, room - now.due, !now.full);
    if (backward == never) return std::nullopt;
    return group{.next = last + 1,
                 .full = false,
                 .seconds = pass + stall(excess, to_host_) + backward,
                 .out = moved(to_host_, pass) + excess,
                 .back = moved(to_device_, backward)};
  }

  double after(const state& now, const group& done)
  {
    const slots mine = input(now);
    const slots due = std::max<slots>(0, now.due - done.back);
    if (done.is_input_dead)
      return done.seconds + from({done.next, done.full, now.kept, std::max<slots>(0, now.leaving - done.out), due});
    const state stays{done.next, done.full, now.kept + mine, std::max<slots>(0, now.leaving - done.out), due};
    const state leaves{done.next, done.full, now.kept, std::max<slots>(0, now.leaving + mine - done.out), due + mine};
    return done.seconds + std::min(from(stays), from(leaves));
  }

  [[nodiscard]] double end(const state& now, const group& loss) const
  {
    return loss.seconds + stall(std::max<slots>(0, now.leaving - loss.out), to_host_) +
           stall(std::max<slots>(0, now.due - loss.back), to_device_);
  }

  [[nodiscard]] bool is_loss(std::size_t stage) const { return stage + 1 == chain_.forward.size(); }
  [[nodiscard]] slots input(const state& now) const
  {
    return now.full ? chain_.saved[now.stage] : chain_.input[now.stage];
  }
  static double stall(slots count, double rate) { return count == 0 ? 0 : static_cast<double>(count) / rate; }
  static slots moved(double rate, double seconds)
  {
    return static_cast<slots>(std::floor(std::min(rate * seconds, 1e15)));  // more than any chain has
  }

  const slot_chain& chain_;
  rotor_recursion rotor_;
  slots all_;
  double to_host_, to_device_;
  std::unordered_map<state, double, hash> known_;
};

/// The least time of POFO's model with a rate for each direction; `pofo_recursion` says the model.
/// @param slots   with x_0, which is on the device when the first forward begins
/// @param slots_per_second_to_host, slots_per_second_to_device   finite; at 0 nothing moves
/// @return   [s], infinity where nothing fits
inline double oracle_pofo(const slot_chain& chain, std::uint32_t slots, double slots_per_second_to_host,
                          double slots_per_second_to_device)
{
  return pofo_recursion{chain, slots, slots_per_second_to_host, slots_per_second_to_device}();
}

/// The least time of all schedules of forwards and backwards that keep a stored value until its backward, by a search
/// for the shortest path over the contents of the memory. Each operation is checked against the memory it takes.
/// Independent of segments.
///
/// A forward of stage k reads x_k, be it alone or within xb_k. F_ck keeps x_k, F_none drops x_k, F_all keeps x_k and
/// stores xb_{k+1}; where x_k is there alone and the backward of stage k does not read x_k, F_all may drop x_k. F_none
/// may drop only what the operation before it has made: all other values are stored. A backward of stage k reads
/// xb_{k+1}, the gradient of x_{k+1} and, if so told, x_k; it makes the gradient of x_k and frees the others. The
/// gradient of the loss's output is there while the loss goes backward.
class schedule_search {
 public:
  schedule_search(const slot_chain& what, std::uint32_t room) : chain_{what}, room_{std::uint64_t{room} + what.input[0]}
  {
  }

  double operator()()
  {
    reach({.inputs = 1, .saved = 0, .stages_left = static_cast<std::uint32_t>(chain_.forward.size()), .made = 0}, 0);
    while (!open_.empty()) {
      const auto [seconds, now] = open_.top();
      open_.pop();
      if (seconds > least_.at(now)) continue;
      if (now.stages_left == 0) return seconds;
      for (std::uint32_t stage = 0; stage < now.stages_left; ++stage) run_forward(now, seconds, stage);
      run_backward(now, seconds);
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  struct memory {
    std::uint32_t inputs;       // bit k: x_k is there alone
    std::uint32_t saved;        // bit k: xb_k is there
    std::uint32_t stages_left;  // stages to go backward; the gradient of the last one's output is there
    std::uint32_t made;         // k where the operation before it has made x_k alone, else 0
    auto operator<=>(const memory&) const = default;
  };

  static bool has(std::uint32_t set, std::uint32_t index) { return (set >> index & 1U) != 0; }
  static std::uint32_t bit(std::uint32_t index) { return 1U << index; }

  [[nodiscard]] bool is_forward_only(const memory& now) const { return now.stages_left == chain_.forward.size(); }
  /// Slots of all values in the memory.
  [[nodiscard]] std::uint64_t taken(const memory& now) const
  {
    std::uint64_t sum = is_forward_only(now) ? 0 : chain_.input[now.stages_left];  // gradient
    for (std::uint32_t index = 0; index < chain_.input.size(); ++index)
      sum += (has(now.inputs, index) ? chain_.input[index] : 0) + (has(now.saved, index) ? chain_.saved[index] : 0);
    return sum;
  }

  void reach(const memory& next, double seconds)
  {
    const auto [found, is_new] = least_.emplace(next, seconds);
    if (!is_new && found->second <= seconds) return;
    found->second = seconds;
    open_.emplace(seconds, next);
  }

  void run_forward(const memory& now, double seconds, std::uint32_t stage)
  {
    if (!has(now.inputs | now.saved, stage)) return;
    const std::uint64_t during = taken(now) + chain_.forward_extra[stage];
    const double then = seconds + chain_.forward[stage];
    const std::uint32_t output = stage + 1;
    if (during + chain_.input[output] <= room_ && output < now.stages_left && !has(now.inputs | now.saved, output)) {
      reach({now.inputs | bit(output), now.saved, now.stages_left, output}, then);  // F_ck
      const bool may_drop = stage > 0 && now.made == stage;
      if (may_drop) reach({(now.inputs & ~bit(stage)) | bit(output), now.saved, now.stages_left, output}, then);
    }
    if (during + chain_.saved[output] > room_ || has(now.saved, output)) return;
    const std::uint32_t inputs = now.inputs & ~bit(output);  // F_all, in which x_k+1 is
    reach({inputs, now.saved | bit(output), now.stages_left, 0}, then);
    if (chain_.reads_input[stage] == 0)
      reach({inputs & ~bit(stage), now.saved | bit(output), now.stages_left, 0}, then);
  }

  void run_backward(const memory& now, double seconds)
  {
    const std::uint32_t stage = now.stages_left - 1;
    if (!has(now.saved, stage + 1)) return;
    if (chain_.reads_input[stage] != 0 && !has(now.inputs | now.saved, stage)) return;
    const std::uint64_t own = is_forward_only(now) ? chain_.input[now.stages_left] : 0;  // gradient of its output
    if (taken(now) + own + chain_.input[stage] + chain_.backward_extra[stage] > room_) return;
    const std::uint32_t earlier = bit(stage) - 1;  // what has an index below the stage's
    reach({now.inputs & earlier, now.saved & (earlier | bit(stage)), stage, 0}, seconds + chain_.backward[stage]);
  }

  using step = std::pair<double, memory>;
  const slot_chain& chain_;
  std::uint64_t room_;
  std::map<memory, double> least_;
  std::priority_queue<step, std::vector<step>, std::greater<>> open_;
};

/// The result of `oracle_rotor`, by a trial of every schedule. For five stages with the loss.
inline double brute_force_rotor(const slot_chain& chain, std::uint32_t slots)
{
  return schedule_search{chain, slots}();
}

}  // namespace support
