// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// A run of a divided backward pass, without its micro-batch: runs of one kind in one part come in the order of the
/// micro-batches. Gradients of weights come in the order of the gradients of inputs of their stage, over all parts.
///
///     const pass first{.kind = operation_kind::forward, .part = 0};
struct pass {
  operation_kind kind = operation_kind::forward;
  std::uint32_t part = 0;  ///< 0 for a gradient of weights

  [[nodiscard]] bool operator==(const pass&) const = default;
};

/// The input of a search for the orders of one batch. Times are those of one part.
///
///     const order_problem problem{.stages = 4, .micro_batches = 8, .owners = {0, 1, 2, 3}, .limit = 4};
struct order_problem {
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;
  std::vector<std::uint32_t> owners;  ///< by part: its stage
  double forward = 1;                 ///< [s]
  double backward_input = 1;          ///< [s]
  double backward_weight = 1;         ///< [s]
  double transfer = 0;                ///< between stages [s]
  double kept = 0.5;  ///< bytes that a gradient of weights reads, as a part of the bytes that a forward run saves
  double limit = 1;   ///< of the bytes that a stage saves at once, counted in forward runs of one part

  [[nodiscard]] std::uint32_t part_count() const noexcept { return static_cast<std::uint32_t>(owners.size()); }
  [[nodiscard]] double seconds_of(operation_kind kind) const noexcept
  {
    if (kind == operation_kind::forward) return forward;
    return kind == operation_kind::backward_input ? backward_input : backward_weight;
  }
  /// The change of the saved bytes of a stage by a run.
  [[nodiscard]] double change_of(operation_kind kind) const noexcept
  {
    if (kind == operation_kind::forward) return 1;
    return kind == operation_kind::backward_input ? kept - 1 : -kept;
  }
  /// @param saved   so far; rounding errors of many changes do not count
  [[nodiscard]] bool has_room(double saved) const noexcept { return saved + 1 <= limit + 1e-9; }
};

/// The runs of each stage for one batch.
using pass_orders = std::vector<std::vector<pass>>;

/// A stage saves no more than the limit, and every run comes after the runs of its stage that it needs. `counts` is
/// scratch memory, so that a search does not allocate.
[[nodiscard]] inline bool fits(const order_problem& problem, const std::vector<pass>& runs,
                               std::vector<std::int64_t>& counts)
{
  counts.assign(problem.part_count() + std::size_t{1}, 0);  // by part: to come back; the last: gradients of weights
  double saved = 0;
  for (const pass& run : runs) {
    std::int64_t& weights = counts.back();
    switch (run.kind) {
      case operation_kind::forward:
        if (!problem.has_room(saved)) return false;
        ++counts[run.part];
        break;
      case operation_kind::backward_input:
        if (--counts[run.part] < 0) return false;
        ++weights;
        break;
      default:
        if (--weights < 0) return false;
    }
    saved += problem.change_of(run.kind);
  }
  return true;
}

/// Appends one batch of these orders to a schedule, with an update of each part at the end.
inline void append_orders(schedule& plan, const pass_orders& orders, std::uint32_t batch)
{
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) {
    std::vector<std::uint32_t> forwards(plan.part_count(), 0);
    std::vector<std::uint32_t> backwards(plan.part_count(), 0);
    std::vector<operation> weights;  // in the order of their gradients of inputs
    std::size_t next_weight = 0;
    std::vector<operation>& steps = plan.stages[stage];
    const std::uint32_t first = batch * plan.micro_batches;
    for (const pass& run : orders[stage]) {
      if (run.kind == operation_kind::backward_weight) {
        steps.push_back(weights[next_weight++]);
        continue;
      }
      std::uint32_t& count = run.kind == operation_kind::forward ? forwards[run.part] : backwards[run.part];
      steps.push_back({run.kind, run.part, first + count, plan.version_of(first + count)});
      ++count;
      if (run.kind != operation_kind::backward_input) continue;
      weights.push_back(steps.back());
      weights.back().kind = operation_kind::backward_weight;
    }
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == stage)
        steps.push_back({operation_kind::update, part, first + plan.micro_batches - 1, batch + 1});
  }
}

/// The rules by which a stage chooses its next run.
///
///     const greedy_rules rules{.turn = greedy_rules::order::alternate, .slope = 2};
struct greedy_rules {
  enum class order : std::uint8_t { backward_first, forward_first, alternate };

  order turn = order::backward_first;  ///< the choice where both a forward and a backward run can begin
  double gap = 0;                      ///< a gradient of weights fills a gap that is at least this part of its time
  double slope = 0;  ///< forward runs without a backward run: at most slope (d - s) + offset; 0: no limit
  std::int32_t offset = 0;
  bool deep_forward = false;  ///< prefers the forward run of the later part
};

/// Orders of one batch, made along a simulated time: each stage takes the run that its rules prefer among those that
/// can begin.
///
/// After the heuristic of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241): gradients of weights fill gaps,
/// and make room where the limit is reached. The rules differ from the paper's.
///
///     const pass_orders orders = greedy_orders{problem}.make({.slope = 1});
///
/// Cost: O(runs times stages).
class greedy_orders {
 public:
  /// @param problem   outlives this object
  explicit greedy_orders(const order_problem& problem) : problem_{problem} {}

  /// Makes the orders. Without any run where these rules lead to a deadlock.
  [[nodiscard]] pass_orders make(const greedy_rules& rules)
  {
    begin();
    for (;;) {
      std::uint32_t stage = problem_.stages;
      for (std::uint32_t it = 0; it < problem_.stages; ++it)
        if (!is_done(it) && stages_[it].wakes < never &&
            (stage == problem_.stages || stages_[it].wakes < stages_[stage].wakes))
          stage = it;
      if (stage == problem_.stages) break;
      step(stage, rules);
    }
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage)
      if (!is_done(stage)) return pass_orders(problem_.stages);
    return orders_;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  using enum operation_kind;

  struct stage_state {
    std::vector<std::uint32_t> parts;
    double wakes = 0;
    double saved = 0;
    bool waits = false;
    bool came_back = false;      // its last run was a backward run
    std::uint32_t forwards = 0;  // of all its parts
    std::uint32_t backwards = 0;
    std::uint32_t weights = 0;
  };
  /// The next run of a kind, and the time of its input.
  struct candidate {
    std::uint32_t part = 0;
    double ready = never;
  };

  void begin()
  {
    const std::size_t cells = std::size_t{problem_.part_count()} * problem_.micro_batches;
    inputs_.assign(cells, never);
    std::fill_n(inputs_.begin(), problem_.micro_batches, 0.0);
    gradients_.assign(cells, never);
    forwards_.assign(problem_.part_count(), 0);
    backwards_.assign(problem_.part_count(), 0);
    stages_.assign(problem_.stages, {});
    for (std::uint32_t part = 0; part < problem_.part_count(); ++part)
      stages_[problem_.owners[part]].parts.push_back(part);
    orders_.assign(problem_.stages, {});
  }

  [[nodiscard]] bool is_done(std::uint32_t stage) const
  {
    return stages_[stage].weights == stages_[stage].parts.size() * problem_.micro_batches;
  }

  void step(std::uint32_t stage, const greedy_rules& rules)
  {
    stage_state& it = stages_[stage];
    const double now = it.wakes;
    const candidate back = next_backward(it, now);
    bool wants_room = false;
    const candidate go = may_run_ahead(stage, rules) ? next_forward(it, now, rules, wants_room) : candidate{};
    const bool has_weights = it.weights < it.backwards;
    const double soon = std::min(back.ready, go.ready);
    if (back.ready <= now) {
      if (go.ready <= now && forward_first(it, rules)) return take(stage, forward, go.part);
      return take(stage, backward_input, back.part);
    }
    if (go.ready <= now) return take(stage, forward, go.part);
    const bool is_wide = soon == never || soon - now >= std::min(rules.gap, 1.0) * problem_.backward_weight;
    if (has_weights && (wants_room || is_wide)) return take(stage, backward_weight, 0);
    wait_until(it, soon);
  }

  /// The parts of a stage that a micro-batch passes later: room for one run of each must be kept, or the pipeline would
  /// deadlock.
  [[nodiscard]] static double deeper_parts(const stage_state& it, std::uint32_t part)
  {
    return static_cast<double>(it.parts.end() - std::ranges::upper_bound(it.parts, part));
  }
  [[nodiscard]] static bool forward_first(const stage_state& it, const greedy_rules& rules)
  {
    return rules.turn == greedy_rules::order::forward_first ||
           (rules.turn == greedy_rules::order::alternate && it.came_back);
  }
  [[nodiscard]] bool may_run_ahead(std::uint32_t stage, const greedy_rules& rules) const
  {
    const double most = std::floor(rules.slope * (problem_.stages - stage)) + rules.offset;
    return rules.slope == 0 || stages_[stage].forwards - stages_[stage].backwards < std::max(1.0, most);
  }
  /// @param wants_room   becomes true where a forward run waits only for room
  [[nodiscard]] candidate next_forward(const stage_state& it, double now, const greedy_rules& rules,
                                       bool& wants_room) const
  {
    candidate best;
    for (const std::uint32_t part : it.parts) {
      if (forwards_[part] == problem_.micro_batches) continue;
      const double ready = std::max(now, inputs_[cell(part, forwards_[part])]);
      if (!problem_.has_room(it.saved + deeper_parts(it, part))) {
        wants_room = wants_room || ready <= now;
        continue;
      }
      if (ready < best.ready || (ready < never && ready == best.ready && rules.deep_forward)) best = {part, ready};
    }
    return best;
  }
  [[nodiscard]] candidate next_backward(const stage_state& it, double now) const
  {
    candidate best;
    for (const std::uint32_t part : it.parts) {
      if (backwards_[part] == forwards_[part]) continue;
      const double ready = std::max(now, gradients_[cell(part, backwards_[part])]);
      if (ready < best.ready) best = {part, ready};
    }
    return best;
  }

  /// Waits until a time; without a time, until another stage sends.
  static void wait_until(stage_state& it, double seconds)
  {
    it.waits = true;
    it.wakes = seconds;
  }

  void take(std::uint32_t stage, operation_kind kind, std::uint32_t part)
  {
    stage_state& it = stages_[stage];
    const double now = it.wakes;
    const double end = now + problem_.seconds_of(kind);
    orders_[stage].push_back({kind, part});
    it.waits = false;
    it.wakes = end;
    it.saved += problem_.change_of(kind);
    it.came_back = kind == backward_input;
    if (kind == backward_weight) {
      ++it.weights;
    } else if (kind == forward) {
      ++it.forwards;
      const std::uint32_t micro_batch = forwards_[part]++;
      if (part + 1 == problem_.part_count()) gradients_[cell(part, micro_batch)] = end;
      if (part + 1 < problem_.part_count()) pass_on(stage, inputs_, part + 1, micro_batch, now, end);
    } else {
      ++it.backwards;
      const std::uint32_t micro_batch = backwards_[part]++;
      if (part > 0) pass_on(stage, gradients_, part - 1, micro_batch, now, end);
    }
  }
  void pass_on(std::uint32_t stage, std::vector<double>& there, std::uint32_t part, std::uint32_t micro_batch,
               double now, double end)
  {
    const std::uint32_t other = problem_.owners[part];
    there[cell(part, micro_batch)] = end + (other == stage ? 0 : problem_.transfer);
    if (other != stage && stages_[other].waits) stages_[other].wakes = std::min(stages_[other].wakes, now);
  }
  [[nodiscard]] std::size_t cell(std::uint32_t part, std::uint32_t micro_batch) const
  {
    return std::size_t{part} * problem_.micro_batches + micro_batch;
  }

  const order_problem& problem_;
  std::vector<double> inputs_;  // by part and micro-batch: when they are there
  std::vector<double> gradients_;
  std::vector<std::uint32_t> forwards_;  // by part: runs so far
  std::vector<std::uint32_t> backwards_;
  std::vector<stage_state> stages_;
  pass_orders orders_;
};

/// The times of one batch in some orders, for searches: no steps, no transfers that wait.
///
///     pass_clock clock{problem};
///     const double seconds = clock.run(orders).longest;
///
/// Cost: O(runs). Room is kept, so runs of one problem soon allocate nothing.
class pass_clock {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct spans {
    double longest = never;  ///< from the first begin to the last end of a stage [s]; `never`: the stages deadlock
    double sum = 0;          ///< over stages [s]
    double ends = 0;         ///< of all runs but gradients of weights, added up [s]
  };

  /// @param problem   outlives the clock
  explicit pass_clock(const order_problem& problem) : problem_{problem} {}

  [[nodiscard]] spans run(const pass_orders& orders)
  {
    begin();
    ends_ = 0;
    while (!ready_.empty()) {
      const std::uint32_t stage = ready_.back();
      ready_.pop_back();
      std::size_t& next = next_[stage];
      while (next < orders[stage].size() && take(stage, orders[stage][next])) ++next;
    }
    spans all{.longest = 0, .sum = 0, .ends = ends_};
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage) {
      if (next_[stage] < orders[stage].size()) return {};
      const double span = free_[stage] - std::max(0.0, first_[stage]);
      all.longest = std::max(all.longest, span);
      all.sum += span;
    }
    return all;
  }

 private:
  static constexpr double unknown = -1;

  void begin()
  {
    const std::size_t cells = std::size_t{problem_.part_count()} * problem_.micro_batches;
    inputs_.assign(cells, unknown);
    std::fill_n(inputs_.begin(), problem_.micro_batches, 0.0);
    gradients_.assign(cells, unknown);
    forwards_.assign(problem_.part_count(), 0);
    backwards_.assign(problem_.part_count(), 0);
    next_.assign(problem_.stages, 0);
    free_.assign(problem_.stages, 0);
    first_.assign(problem_.stages, unknown);
    ready_.clear();
    for (std::uint32_t stage = problem_.stages; stage-- > 0;) ready_.push_back(stage);
  }

  /// @return   the run's input has arrived
  bool take(std::uint32_t stage, const pass& run)
  {
    double start = free_[stage];
    if (run.kind != operation_kind::backward_weight) {
      const bool is_forward = run.kind == operation_kind::forward;
      const std::uint32_t micro_batch = is_forward ? forwards_[run.part] : backwards_[run.part];
      const double there = (is_forward ? inputs_ : gradients_)[cell(run.part, micro_batch)];
      if (there == unknown) return false;
      start = std::max(start, there);
      const double end = start + problem_.seconds_of(run.kind);
      ends_ += end;
      pass_on(stage, run.part, micro_batch, is_forward, end);
      ++(is_forward ? forwards_ : backwards_)[run.part];
    }
    if (first_[stage] == unknown) first_[stage] = start;
    free_[stage] = start + problem_.seconds_of(run.kind);
    return true;
  }

  void pass_on(std::uint32_t stage, std::uint32_t part, std::uint32_t micro_batch, bool is_forward, double end)
  {
    if (is_forward && part + 1 == problem_.part_count()) {
      gradients_[cell(part, micro_batch)] = end;
      return;
    }
    if (!is_forward && part == 0) return;
    const std::uint32_t next = is_forward ? part + 1 : part - 1;
    const bool crosses = problem_.owners[next] != stage;
    (is_forward ? inputs_ : gradients_)[cell(next, micro_batch)] = end + (crosses ? problem_.transfer : 0);
    if (crosses) ready_.push_back(problem_.owners[next]);
  }
  [[nodiscard]] std::size_t cell(std::uint32_t part, std::uint32_t micro_batch) const
  {
    return std::size_t{part} * problem_.micro_batches + micro_batch;
  }

  const order_problem& problem_;
  std::vector<double> inputs_;  // by part and micro-batch: when they are there
  std::vector<double> gradients_;
  std::vector<std::uint32_t> forwards_;  // by part: runs so far
  std::vector<std::uint32_t> backwards_;
  std::vector<std::size_t> next_;  // by stage
  std::vector<double> free_;
  std::vector<double> first_;
  std::vector<std::uint32_t> ready_;  // stages to look at, some of them twice
  double ends_ = 0;
};

/// Called with the progress of a search: `done` of `trials` changes. @pre it does not throw
using search_listener = void (*)(std::uint32_t done, std::uint32_t trials);

/// Searches orders of one batch with the shortest span of a stage, under a limit of saved bytes.
///
/// First the best of known orders and of the greedy orders of all rules. Then simulated annealing: a run moves some
/// places within its stage, and a worse result stays with a probability that falls to 0. The same problem gives the
/// same orders on every machine with the same `exp`.
///
///     const pass_orders orders = order_search{problem}.best(greedy, 50'000);
///
/// Cost: O((rules times stages + trials) runs).
class order_search {
 public:
  /// @param problem   outlives the search   @param tell   called every 1,024 changes; may be null
  explicit order_search(const order_problem& problem, search_listener tell = nullptr)
      : problem_{problem}, clock_{problem}, tell_{tell}
  {
  }

  /// The best of these rules and orders, and of `trials` changes. @param known   orders of other sources: those over
  /// the limit are left out   @throws config_error   every rule and order deadlocks
  [[nodiscard]] pass_orders best(const std::vector<greedy_rules>& rules, std::uint32_t trials,
                                 const std::vector<pass_orders>& known = {})
  {
    greedy_orders greedy{problem_};
    best_.assign(problem_.stages, {});
    best_span_ = pass_clock::never;
    for (const pass_orders& orders : known)
      if (std::ranges::all_of(orders, [&](const auto& runs) { return fits(problem_, runs, counts_); }))
        consider(orders);
    for (const greedy_rules& it : rules)
      if (pass_orders orders = greedy.make(it); !orders[0].empty()) consider(std::move(orders));
    if (best_span_ == pass_clock::never)
      throw config_error{"no order of a pipeline's runs keeps to the limit of saved bytes (raise the limit)"};
    if (best_span_ > shortest()) anneal(trials);
    return best_;
  }

 private:
  void consider(pass_orders orders)
  {
    const pass_clock::spans found = clock_.run(orders);
    if (!(found.longest < best_span_)) return;
    best_span_ = found.longest;
    best_ = std::move(orders);
  }

  static constexpr std::uint64_t farthest = 6;  // most places that a run moves

  /// A lower bound: the runs of a stage without gaps.
  [[nodiscard]] double shortest() const
  {
    const double each = problem_.forward + problem_.backward_input + problem_.backward_weight;
    return each * problem_.micro_batches * problem_.part_count() / problem_.stages * (1 + 1e-12);
  }

  /// The longest span counts; other spans and early ends break ties.
  [[nodiscard]] double cost_of(const pass_clock::spans& found) const
  {
    const double runs = static_cast<double>(problem_.part_count()) * problem_.micro_batches;
    return found.longest + 0.02 * found.sum / problem_.stages + 1e-4 * found.ends / runs;
  }

  void anneal(std::uint32_t trials)
  {
    splitmix64 dice;
    pass_orders orders = best_;
    double cost = cost_of(clock_.run(orders));
    const double hottest = 0.003 * (problem_.forward + problem_.backward_input + problem_.backward_weight);
    for (std::uint32_t trial = 0; trial < trials; ++trial) {
      if (tell_ && trial % 1024 == 0) tell_(trial, trials);
      const double heat = hottest * (1 - static_cast<double>(trial) / trials);
      std::vector<pass>& runs = orders[dice.next() % problem_.stages];
      const std::uint64_t from = dice.next() % runs.size();
      const std::uint64_t distance = 1 + dice.next() % farthest;
      const bool is_later = dice.next() % 2 == 0;
      const double chance = static_cast<double>(dice.next() >> 11U) * 0x1p-53;
      if (is_later ? from + distance >= runs.size() : from < distance) continue;
      const std::uint64_t to = is_later ? from + distance : from - distance;
      if (runs[from] == runs[to]) continue;
      move(runs, from, to);
      const pass_clock::spans found = fits(problem_, runs, counts_) ? clock_.run(orders) : pass_clock::spans{};
      const double next = cost_of(found);
      if (next <= cost || (next < pass_clock::never && chance < std::exp((cost - next) / heat))) {
        cost = next;
        if (found.longest >= best_span_) continue;
        best_span_ = found.longest;
        best_ = orders;
      } else {
        move(runs, to, from);
      }
    }
  }

  static void move(std::vector<pass>& runs, std::uint64_t from, std::uint64_t to)
  {
    const auto begin = runs.begin();
    const auto at = [&](std::uint64_t index) { return begin + static_cast<std::ptrdiff_t>(index); };
    if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
    if (from > to) std::rotate(at(to), at(from), at(from + 1));
  }

  const order_problem& problem_;
  pass_clock clock_;
  search_listener tell_;
  pass_orders best_;
  double best_span_ = pass_clock::never;
  std::vector<std::int64_t> counts_;
};

/// The options of a search: the limit of a schedule, and the length of the search.
///
///     const search_effort effort{.limit = 1, .kept = 0.5, .trials = 20'000};
struct search_effort {
  double limit = 1;          ///< of the bytes that a stage saves, in units of the bytes for d micro-batches
  double kept = 0.5;         ///< as order_problem's
  std::uint32_t trials = 0;  ///< changes of the best order
  search_listener tell = nullptr;
};

/// The problem of a schedule's order.
/// @param plan    without steps: its owners count
/// @throws config_error   a limit below one micro-batch, or no part from 0 to 1
[[nodiscard]] inline order_problem problem_of(const schedule& plan, const pipeline_shape& shape,
                                              const search_effort& effort)
{
  if (!(effort.kept >= 0 && effort.kept <= 1))
    throw config_error{"kept, the part of saved bytes that gradients of weights read, is not from 0 to 1"};
  if (!(effort.limit * shape.stages >= 1))
    throw config_error{"a stage cannot save a single micro-batch (give a limit of at least 1 over the stages)"};
  const double rounds = plan.part_count() / shape.stages;  // parts of a stage
  return {.stages = shape.stages,
          .micro_batches = shape.micro_batches,
          .owners = plan.owners,
          .forward = shape.seconds.forward / rounds,
          .backward_input = shape.seconds.backward_input / rounds,
          .backward_weight = shape.seconds.backward_weight / rounds,
          .transfer = shape.seconds.transfer,
          .kept = effort.kept,
          .limit = rounds * effort.limit * shape.stages};
}

/// A schedule of searched orders, the same for each batch.
/// @param plan    without steps   @param known   orders to begin with, in addition to those of the rules
/// @throws config_error   no order keeps to the limit
[[nodiscard]] inline schedule searched_schedule(schedule plan, const pipeline_shape& shape,
                                                const order_problem& problem, const search_effort& effort,
                                                const std::vector<greedy_rules>& rules,
                                                const std::vector<pass_orders>& known)
{
  const pass_orders found = order_search{problem, effort.tell}.best(rules, effort.trials, known);
  for (std::uint32_t batch = 0; batch < shape.batches; ++batch) append_orders(plan, found, batch);
  return plan;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
