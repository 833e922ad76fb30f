// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/activation/checkpointed_block.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/random_stream.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/control_block.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A network as a chain of blocks, whose activations are kept, swapped or recomputed as a plan says.
///
/// Each block has a forward and a backward callback. The library calls them in the order of the plan: a block may run
/// forward again before its backward callback. The tensors that a block saves lie in the manager's chunks, so the one
/// budget, the eviction policy and the transfer policy hold for them as for weights. Losses and gradients have the same
/// bits under every plan.
///
/// The plan says which blocks run forward again. The manager's own plan says when the tensors of the other blocks leave
/// the device, if they have to: the manager knows the whole step, weights and states included. Without a given plan the
/// first iteration keeps only the input of each block, and measures the blocks on the clock of the backend. The planner
/// then makes a plan for the second iteration, and plans again where later iterations take other times. Blocks
/// with known times are planned before the first iteration. Where callbacks only launch kernels on a stream, give
/// times: the clock would measure the launches alone.
///
///     activation::checkpointed network{m, {.budget = budget, .seed = 42, .name = "encoder"}};
///     auto& layer = network.add("layer 0");  // then its tensors and callbacks, and the other blocks
///     for (std::uint64_t step = 0; step < 100; ++step) {
///       auto iteration = network.iteration();                   // instead of m.iteration()
///       network.run(iteration, {.step = step});
///       optimizer::step(m, adam, {.learning_rate = 1e-3F});
///     }
///
/// `run` is `forward`, then `backward`. The trainer may call both itself, with the loss in between, or `skip_backward`.
/// `evaluate` only runs forward. With `options::instances` several forwards come before one backward.
///
/// A callback that throws ends the step: all activations of the chain are dropped. Drop gradients
/// (`m.drop_gradients()`) and tensors of your own before the step is tried again. Under checks::full a block is refused
/// that overwrites its input, saves other bytes when it runs again, or then changes a buffer or registered bytes.
///
/// Random numbers depend on the network's name and seed, on the step, the micro-batch, the instance and the block: see
/// random_stream.
/// Source: checkpointing as in Chen et al. 2016 (arXiv 1604.06174); plans as their planners say. Cost: O(1) for each
/// run of a block, without allocation, in addition to the callbacks; O(tensors of the manager) where a batch has
/// another number of rows than the batch before. A plan costs what its planner costs, twice where blocks are measured:
/// the first plan shows before step 1 whether the budget is enough.
/// @tparam Planner   see activation_planner
/// @threads as the manager: one caller at a time
template <class Manager, activation_planner Planner = planned>
class checkpointed {
 public:
  using block_type = checkpointed_block<Manager>;
  struct options {
    activation_budget budget;  ///< for activations only
    std::uint64_t seed = 0;    ///< of block_run::random(). A load replaces it by the file's
    /// For messages. A network that draws random numbers needs a name of its own: networks with the same name and seed
    /// draw the same numbers. Checkpoints then have the state "<name>/random".
    std::string name{};
    std::uint32_t replica = 0;                ///< of data-parallel ranks: each draws numbers of its own
    random_rule rule = random_rule::by_name;  ///< by_seed: goes on with files of a network that had no name
    std::uint32_t instances = 1;              ///< forwards before one backward, at most
    std::uint64_t rows = 1;                   ///< of the largest batch, in the trainer's unit
  };
  /// Iterations of a name that have a plan of their own.
  struct kind {
    std::uint64_t rows = 0;       ///< of their largest batch; 0: as the network's
    std::uint32_t instances = 0;  ///< their forwards before one backward; 0: as the network's
  };

  /// @param owner   outlives the network
  /// @throws config_error   the budget's rates are invalid, or no rows or instances
  /// @throws usage_error    another network of this manager has the name
  explicit checkpointed(Manager& owner, const options& settings = {}, Planner planner = {})
      : manager_{owner},
        options_{settings},
        planner_{std::move(planner)},
        numbers_{settings.name, settings.seed, settings.rule, settings.replica}
  {
    options_.budget.check();
    if (settings.rows == 0 || settings.instances == 0)
      throw config_error{"a network was made with 0 rows or 0 instances (give at least 1 of each)"};
    makers_.rows = settings.rows;
    makers_.instances = settings.instances;
    sized_rows_ = settings.rows;
    now_ = &kinds_.emplace_back(std::string{}, settings.rows, settings.instances);
    if (!settings.name.empty() && settings.rule == random_rule::by_name) manager_.use(numbers_);
  }
  checkpointed(const checkpointed&) = delete;

  /// Adds the next block of the chain. The reference stays valid. @throws usage_error   a plan was made already
  block_type& add(std::string_view name)
  {
    if (std::ranges::any_of(kinds_, [](const planned_kind& each) { return !each.plan.steps.empty(); }))
      throw usage_error{error_text{} << "chunkmem: block " << std::uint64_t{size()} << " (\"" << name
                                     << "\") was added to a network that has a plan"};
    return blocks_.emplace_back(manager_, makers_, size(), name);
  }
  /// Gives the iterations of this name sizes and a plan of their own, in addition to the record that their name has in
  /// the manager: for a class of short batches, or an update with fewer forwards. All other names have those of the
  /// options. In an iteration that the manager or another network began, the network uses those of its own last
  /// iteration.
  /// @throws usage_error   the name has them already
  /// @throws config_error  more rows or instances than the network has
  void add_kind(std::string_view iterations, const kind& wanted)
  {
    expects(!iterations.empty() && &kind_of(iterations) == &kinds_.front(),
            "a kind of iterations was added that a network has, or one without a name");
    if (wanted.rows > options_.rows || wanted.instances > options_.instances)
      throw config_error{error_text{} << "chunkmem: iterations \"" << iterations << "\" want " << wanted.rows
                                      << " rows and " << wanted.instances << " instances, and the network has "
                                      << options_.rows << " and " << options_.instances << " (raise its options)"};
    kinds_.emplace_back(std::string{iterations}, wanted.rows > 0 ? wanted.rows : options_.rows,
                        wanted.instances > 0 ? wanted.instances : options_.instances);
  }

  /// The chain as it is known: sizes from the declared tensors, times as given or measured. Instances follow each other
  /// as blocks of one chain. @param iterations   of this name; see add_kind
  [[nodiscard]] layer_chain chain(std::string_view iterations = {}) const { return chain_of(kind_of(iterations)); }
  /// Blocks, of one instance.
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  /// The plan that the next step follows. Empty before the first step. @param iterations   of this name; see add_kind
  [[nodiscard]] const activation_plan& plan(std::string_view iterations = {}) const noexcept
  {
    return kind_of(iterations).plan;
  }

  /// Follows this plan from the next step on.
  /// @param iterations   of this name; see add_kind
  /// @throws config_error   the plan does not fit this chain: names the step and the block, or the chain; the old plan
  ///   stays
  /// @throws usage_error    in a callback, or between a forward and its backward
  void use(activation_plan given, std::string_view iterations = {})
  {
    expect_between_steps("was given a plan");
    planned_kind& its = kind_of(iterations);
    expect_plan_fits(given, chain_of(its));
    adopt(its, std::move(given));
    its.is_planned = its.is_planned_by_caller = true;
    its.is_measuring = false;
  }
  /// Plans with this budget from the next iteration on, with the times that are known. Plans that the trainer gave
  /// stay.
  /// @throws config_error   the budget's rates are invalid
  /// @throws usage_error    in a callback, or between a forward and its backward
  void use(const activation_budget& allowed)
  {
    expect_between_steps("was given a budget");
    allowed.check();
    options_.budget = allowed;
    for (planned_kind& its : kinds_) {
      its.is_held = false;
      if (its.is_planned_by_caller) continue;
      its.is_planned = false;
      if (!its.is_measured && !all_have_times()) its.plan = {};  // the first plan is made again, for this budget
    }
  }
  /// The next iterations of each name follow their plans and measure the blocks, then the planner plans again. Blocks
  /// with given times are planned with their present times. A plan that the trainer gave is discarded.
  /// @throws usage_error   in a callback, or between a forward and its backward
  void measure_again()
  {
    expect_between_steps("cannot be measured");
    for (planned_kind& its : kinds_) {
      its.is_planned = its.is_planned_by_caller = its.is_measured = false;
      its.is_measuring = !its.plan.steps.empty() && !all_have_times();
      its.replans = 0;
    }
  }

  /// Begins an iteration of the manager, and first makes the plan where one is due. Where the last iteration had a
  /// forward without its backward, all tensors that the backward would have used are dropped.
  ///
  /// Before the first step the budget is compared with the device: its bytes must exist, and a plan must fit into it. A
  /// rehearsed step may have a larger budget than the device, since the manager proved that the step fits.
  /// @throws config_error   no plan fits into the budget: names the largest block; the budget, or the plan that `use`
  ///   was given, is larger than the device or the host; and as the manager's `iteration`
  [[nodiscard]] auto iteration(std::string_view name = "train", std::uint32_t micro_batches = 1)
  {
    begin_iteration();
    now_ = &kind_of(name);
    prepare();
    return manager_.iteration(name, micro_batches);
  }
  /// Begins an iteration for `evaluate`, with a record of its own, and makes no plan. A kind of this name gives its
  /// rows.
  /// @throws   as the manager's `iteration`
  [[nodiscard]] auto evaluation(std::string_view name = "evaluate", std::uint32_t micro_batches = 1)
  {
    begin_iteration();
    now_ = &kind_of(name);
    return manager_.iteration(name, micro_batches);
  }

  /// Runs all blocks forward and backward for one micro-batch: all instances, one after the other.
  /// @throws usage_error   a block has no callback, or breaks a rule of block_run or of the checks; names the block; an
  ///   iteration of another manager; no rows, or more than the iteration has; in a callback, or between a forward and
  ///   its backward
  /// @throws               exceptions of callbacks; all activations are then dropped
  template <class Iteration>
  void run(Iteration& iteration, const chain_moment& moment = {})
  {
    expects(moment.instance == 0, "a run was given an instance: it runs all of them (see forward)");
    expect_turn(iteration, moment);
    guarded([&] {
      for (chain_moment each = moment; each.instance < now_->instances; ++each.instance) forward_of(iteration, each);
      backward_to(iteration, 0);
    });
  }
  /// Runs all blocks of one instance forward. Instances run forward in the order of their numbers. Outputs of their
  /// last blocks have bytes until their backward.
  /// @throws   as run; usage_error   another instance is next
  template <class Iteration>
  void forward(Iteration& iteration, const chain_moment& moment = {})
  {
    expect_turn(iteration, moment);
    guarded([&] { forward_of(iteration, moment); });
  }
  /// Runs all blocks of all instances backward, the last instance first.
  /// @throws   as run; usage_error   an instance did not run forward
  template <class Iteration>
  void backward(Iteration& iteration)
  {
    backward(iteration, 0);
  }
  /// The same, down to this instance: the instances before it wait for another call.
  /// @throws   as run; usage_error   an instance did not run forward, or this one ran backward already
  template <class Iteration>
  void backward(Iteration& iteration, std::uint32_t instance)
  {
    expect_turn_backward(iteration, instance);
    guarded([&] { backward_to(iteration, instance); });
  }
  /// Ends this micro-batch without a backward: the tensors that the backward would have used are dropped. The record of
  /// the iteration stays as it was. Cost: O(tensors of the network).
  /// @throws usage_error   in a callback
  void skip_backward()
  {
    expects(!is_running_, "a backward was skipped inside of a run");
    if (!is_open_) return;
    drop_all();
    rank_manager(manager_).updates().keep_record();
  }
  /// Runs all blocks forward, without plan, gradients or saved tensors: a block's tensors are dropped when no later
  /// block reads them. Outputs of the last block have bytes until the next forward, evaluation or iteration.
  /// `block_run::is_training` is false.
  /// @throws   as run; usage_error   a block makes a gradient; an instance other than 0
  template <class Iteration>
  void evaluate(Iteration& iteration, const chain_moment& moment = {})
  {
    expects(moment.instance == 0, "an evaluation was given an instance: it has one forward");
    expect_turn(iteration, moment);
    guarded([&] { evaluate_blocks(iteration, moment); });
  }

 private:
  using tensors_type = block_tensors<Manager>;
  using list_type = typename tensors_type::list;
  static constexpr bool has_checks = Manager::engine_type::checks_type::is_on && Manager::engine_type::host_addressable;

  /// The record, the plan and the sizes of the iterations of one name.
  struct planned_kind {
    planned_kind(std::string of, std::uint64_t most_rows, std::uint32_t forwards)
        : name{std::move(of)}, rows{most_rows}, instances{forwards}
    {
    }

    std::string name;  // empty: all names that have no kind
    std::uint64_t rows;
    std::uint32_t instances;
    activation_plan plan;
    tensor_ends ends;
    std::vector<tensor_handle> skips;  // of the chain, in its order
    activation_plan without_times;     // the planner's, until blocks are measured
    chain_clock clock;                 // of the last complete run that was measured, or of one that runs
    chain_clock times;                 // on which the plan rests
    std::uint32_t replans = 0;         // because times were others
    bool is_planned = false;
    bool is_planned_by_caller = false;
    bool is_held = false;       // the plan was compared with the device
    bool is_measuring = false;  // the next run
    bool is_measured = false;
    bool has_clock = false;  // a complete run was measured since the plan was made
  };
  static constexpr std::uint32_t most_replans = 4;

  [[nodiscard]] const planned_kind& kind_of(std::string_view iterations) const noexcept
  {
    const auto found = std::ranges::find_if(kinds_, [&](const planned_kind& each) { return each.name == iterations; });
    return found == kinds_.end() ? kinds_.front() : *found;
  }
  [[nodiscard]] planned_kind& kind_of(std::string_view iterations) noexcept
  {
    return const_cast<planned_kind&>(std::as_const(*this).kind_of(iterations));
  }

  void expect_between_steps(std::string_view what) const
  {
    if (is_running_ || (is_open_ && !manager_.rehearsing()))
      throw usage_error{error_text{} << "chunkmem: a network " << what
                                     << " inside of its step (call this between two steps)"};
  }
  /// Otherwise another manager would be told of the passes, and this one would record no step.
  template <class Iteration>
  void expect_own(const Iteration& iteration) const
  {
    for (const block_type& block : blocks_)
      for (const list_type* const all : {&block.tensors().inner, &block.tensors().outputs})
        for (const auto& each : *all)
          return expects(iteration.is_of(each.handle),
                         "a network was run in an iteration of another manager (take the network's own: "
                         "network.iteration())");
  }
  template <class Iteration>
  void expect_idle(const Iteration& iteration) const
  {
    expects(!is_running_, "a network was run inside of its run (a block calls no other block)");
    expects(!blocks_.empty(), "a network without a block was run");
    expect_own(iteration);
  }
  /// A forward of this moment is due.
  template <class Iteration>
  void expect_turn(const Iteration& iteration, const chain_moment& moment) const
  {
    expect_idle(iteration);
    if (moment.rows == 0)
      throw usage_error{error_text{} << "chunkmem: " << label() << "was run with 0 rows (leave the batch out)"};
    if (moment.rows > now_->rows && moment.rows != chain_moment::all_rows)
      throw usage_error{error_text{} << "chunkmem: " << label() << "was run with " << moment.rows
                                     << " rows, and its largest batch has " << now_->rows
                                     << " in these iterations (raise options::rows, or the rows of their kind)"};
    const std::uint32_t due = is_in_step() ? forwards_ : 0;
    if (moment.instance == due && due < now_->instances) {
      if (due > 0 && (moment.step != moment_.step || moment.micro_batch != moment_.micro_batch ||
                      with_rows(moment).rows != moment_.rows))
        throw usage_error{error_text{} << "chunkmem: " << label() << "cannot run instance " << due
                                       << " forward in another step, micro-batch or number of rows than instance 0 "
                                          "(they share one backward)"};
      return;
    }
    if (due > 0 && moment.instance < due)
      throw usage_error{
          error_text{} << "chunkmem: " << label() << "cannot run forward again before its backward: " << due << " of "
                       << now_->instances
                       << " forwards are done (call backward or skip_backward; of several forwards before "
                          "one backward each has an instance: see options::instances)"};
    throw usage_error{error_text{} << "chunkmem: " << label() << "cannot run instance " << moment.instance
                                   << " forward, and of its " << now_->instances << " instances number " << due
                                   << " is next (instances run forward in order, and backward in reverse)"};
  }
  template <class Iteration>
  void expect_turn_backward(const Iteration& iteration, std::uint32_t instance) const
  {
    expect_idle(iteration);
    const std::uint32_t done = is_in_step() ? forwards_ : 0;
    if (done < now_->instances)
      throw usage_error{error_text{} << "chunkmem: " << label() << "cannot run backward after " << done << " of "
                                     << now_->instances
                                     << " forwards (run each instance forward before; iterations with fewer are a kind "
                                        "of their own: see add_kind)"};
    if (instance >= left_)
      throw usage_error{error_text{} << "chunkmem: " << label() << "cannot run instance " << instance
                                     << " backward out of its turn: " << left_
                                     << " are left, and they run in reverse order"};
  }
  /// Whether forwards of this iteration wait for their backward. Forwards of an iteration that has ended do not.
  [[nodiscard]] bool is_in_step() const { return is_open_ && manager_.access_index() >= opened_at_; }
  [[nodiscard]] std::string label() const
  {
    return options_.name.empty() ? std::string{"a network "} : "network \"" + options_.name + "\" ";
  }
  template <class Run>
  void guarded(Run run)
  {
    is_running_ = true;
    const struct end {
      bool& is_running;
      ~end() { is_running = false; }
    } ends{is_running_};
    try {
      run();
    } catch (...) {
      drop_all();
      throw;
    }
  }

  template <class Iteration>
  void forward_of(Iteration& iteration, const chain_moment& moment)
  {
    if (moment.instance == 0) {
      begin_step(moment);
      iteration.pass(pass::forward, moment.micro_batch);
    }
    moment_ = with_rows(moment);
    const std::uint32_t end = (moment.instance + 1) * size();
    const bool is_last = moment.instance + 1 == now_->instances;
    const std::vector<chain_step>& steps = now_->plan.steps;
    while (steps[next_].run != chain_run::backward && (is_last || steps[next_].block < end)) run_next();
    ++forwards_;
    opened_at_ = manager_.access_index();
  }
  template <class Iteration>
  void backward_to(Iteration& iteration, std::uint32_t instance)
  {
    if (left_ == now_->instances) iteration.pass(pass::backward, moment_.micro_batch);
    const chain_step last{chain_run::backward, instance * size()};
    for (bool is_done = false; !is_done; run_next()) is_done = now_->plan.steps[next_] == last;
    left_ = instance;
    opened_at_ = manager_.access_index();
    if (left_ == 0) end_step();
  }
  void begin_step(const chain_moment& moment)
  {
    begin_forward(moment);
    if (now_->plan.steps.empty()) prepare();
    is_repeated_ = !manager_.rehearsing() && last_run_ && last_run_->moment.step == moment.step &&
                   last_run_->moment.micro_batch == moment.micro_batch &&
                   manager_.access_index() >= last_run_->accesses;  // else another iteration has begun
    const std::uint32_t all = size() * now_->instances;
    runs_.assign(all, 0);
    if (measures()) now_->clock.begin(all);
    if constexpr (has_checks) check_.begin(all);
    next_ = forwards_ = 0;
    left_ = now_->instances;
    is_open_ = true;
  }
  void end_step()
  {
    is_open_ = false;
    if (measures()) {
      now_->clock.scale(static_cast<double>(now_->rows) / static_cast<double>(moment_.rows));
      now_->has_clock = true;
      if (!std::exchange(now_->is_measured, true)) now_->times = now_->clock;
    }
    if (!manager_.rehearsing()) last_run_ = {moment_, manager_.access_index()};
  }
  [[nodiscard]] bool measures() const { return now_->is_measuring && !manager_.rehearsing(); }
  /// In a rehearsal each batch is as large as tensors were declared.
  [[nodiscard]] chain_moment with_rows(chain_moment moment) const noexcept
  {
    if (moment.rows == chain_moment::all_rows) moment.rows = now_->rows;
    if (manager_.rehearsing()) moment.rows = options_.rows;
    return moment;
  }

  /// Nothing of an earlier run is left, and tensors have the sizes of this batch.
  void begin_forward(const chain_moment& moment)
  {
    makers_.has_run = true;
    if (is_open_) drop_all();
    drop_evaluated();
    const std::uint64_t rows = with_rows(moment).rows;
    if (rows == sized_rows_) return;
    manager_.resize_activations([&](auto set) {
      for (const block_type& block : blocks_)
        for (std::uint32_t instance = 0; instance < options_.instances; ++instance)
          for (const list_type* const all : {&block.tensors(instance).inner, &block.tensors(instance).outputs})
            for (const auto& each : *all)
              if (each.by == sized::by_rows) set(each.handle, each.size_of(rows, options_.rows));
    });
    sized_rows_ = rows;
  }
  void begin_iteration()
  {
    expects(!is_running_, "an iteration was begun inside of a network's run");
    if (is_open_) drop_all();
    drop_evaluated();
    last_run_.reset();
  }
  void drop_evaluated()
  {
    if (!is_evaluated_) return;
    for (const auto& each : blocks_.back().tensors().outputs) manager_.drop(each.handle);
    is_evaluated_ = false;
  }

  template <class Iteration>
  void evaluate_blocks(Iteration& iteration, const chain_moment& moment)
  {
    begin_forward(moment);
    moment_ = with_rows(moment);
    is_repeated_ = false;
    iteration.pass(pass::forward, moment.micro_batch);
    if constexpr (has_checks) check_.begin(size());
    for (std::uint32_t index = 0; index < size(); ++index) {
      run_block({chain_run::passing, index}, false);
      is_evaluated_ = true;
      drop_own(blocks_[index].tensors().inner);
      if (index > 0) drop_own(blocks_[index - 1].tensors().outputs);
      for (const auto& each : blocks_[index].tensors().skips)
        if (!is_read_after(index, each.handle)) manager_.drop(each.handle);
    }
  }
  [[nodiscard]] bool is_read_after(std::uint32_t block, tensor_handle skip) const noexcept
  {
    return std::any_of(blocks_.begin() + block + 1, blocks_.end(),
                       [&](const block_type& later) { return tensors_type::has(later.tensors().skips, skip); });
  }

  [[nodiscard]] layer_chain chain_of(const planned_kind& its) const
  {
    layer_chain found;
    for (std::uint32_t place = 0; place < size() * its.instances; ++place)
      found.blocks.push_back(chain_block_of(its, place));
    for_each_skip(its, [&](const auto&, const chain_skip& skip) { found.skips.push_back(skip); });
    return found;
  }
  /// @param place   of the block among those of all instances
  [[nodiscard]] chain_block chain_block_of(const planned_kind& its, std::uint32_t place) const
  {
    const block_type& block = blocks_[place % size()];
    const std::uint32_t instance = place / size();
    const double part = static_cast<double>(its.rows) / static_cast<double>(options_.rows);
    chain_block found;
    found.name = block.name();
    if (instance > 0) found.name += '#' + std::to_string(instance);
    const tensors_type& tensors = block.tensors(instance);
    if (!ends_forward(its, place)) found.boundary = size_of_own(tensors.outputs);
    found.saved = size_of_own(tensors.inner) + found.boundary;
    found.gradient = block.gradient;
    found.forward_working = found.backward_working = block.working;
    found.passing_working = found.inner() + block.working;
    found.reads_input = block.reads_input;
    const bool is_measured = its.is_measured && !has_times(block);
    found.forward_seconds = is_measured ? its.times.forward(place) : part * block.forward_seconds;
    found.backward_seconds = is_measured ? its.times.backward(place) : part * block.backward_seconds;
    return found;
  }
  [[nodiscard]] static bytes size_of_own(const list_type& all)
  {
    bytes sum;
    for (const auto& each : all)
      if (!each.is_skip) sum += align_up(each.size, tensor_alignment);
    return sum;
  }
  /// The last block of an instance before others: its outputs wait for the loss, as skips to the last block of all.
  [[nodiscard]] bool ends_forward(const planned_kind& its, std::uint32_t place) const noexcept
  {
    return (place + 1) % size() == 0 && place + 1 < size() * its.instances;
  }
  /// Calls `visit(tensor, skip)` for each tensor that blocks after the next one read.
  template <class Visit>
  void for_each_skip(const planned_kind& its, Visit visit) const
  {
    const std::uint32_t all = size() * its.instances;
    for (std::uint32_t place = 0; place < all; ++place) {
      const std::uint32_t instance = place / size();
      const tensors_type& tensors = blocks_[place % size()].tensors(instance);
      for (const list_type* const list : {&tensors.inner, &tensors.outputs})
        for (const auto& each : *list) {
          const bool is_output = list == &tensors.outputs;
          const bool is_result = is_output && ends_forward(its, place);
          if (!each.is_skip && !is_result) continue;
          chain_skip skip{.from = place, .size = align_up(each.size, tensor_alignment)};
          for (std::uint32_t later = place + 1; later < (instance + 1) * size(); ++later)
            if ((is_output && later == place + 1) ||
                tensors_type::has(blocks_[later % size()].tensors(instance).skips, each.handle))
              skip.readers.push_back(later);
          if (is_result) skip.readers.push_back(all - 1);
          visit(each, skip);
        }
    }
  }
  [[nodiscard]] static bool has_times(const block_type& block) noexcept
  {
    return block.forward_seconds > 0 && block.backward_seconds > 0;
  }
  [[nodiscard]] bool all_have_times() const noexcept { return std::ranges::all_of(blocks_, has_times); }

  /// Makes the first plan, or the planner's plan.
  void prepare()
  {
    expects(!blocks_.empty(), "a network without a block was run");
    planned_kind& its = *now_;
    compare_times(its);
    if (!its.is_planned && (its.is_measured || all_have_times())) {
      activation_plan made = planner_.plan(chain_of(its), room(its));
      if (!made.costs.fits && !its.without_times.steps.empty()) {
        made = std::move(its.without_times);  // fits with any times
        cost_plan(made, chain_of(its), room(its));
      }
      if (!made.costs.fits) refuse_budget(its, made.costs.missing);
      expect_plan_fits(made, chain_of(its));
      adopt(its, std::move(made));
      its.is_planned = true;
      its.is_measuring = !all_have_times() && its.replans < most_replans;
      its.without_times = {};
    }
    if (its.plan.steps.empty()) {
      its.without_times = planner_.plan(with_any_times(chain_of(its)), room(its));
      if (!its.without_times.costs.fits) refuse_budget(its, its.without_times.costs.missing);
      adopt(its, recompute_all{}.plan(chain_of(its), room(its)));
      its.is_measuring = true;
    }
    hold_against_device(its);
  }
  /// Makes the plan again where its step took other times than those that the plan was made from.
  void compare_times(planned_kind& its)
  {
    if (!its.is_planned || !std::exchange(its.has_clock, false)) return;
    its.is_measuring = false;
    if (its.clock.is_like(its.times)) return;
    its.times = its.clock;
    its.is_planned = false;
    ++its.replans;
  }
  void adopt(planned_kind& its, activation_plan given)
  {
    const bytes device = manager_.report().capacity[tier::device];
    its.plan = std::move(given);
    if (its.plan.costs.fits && its.plan.costs.device_peak > device) {
      its.plan.costs.missing = its.plan.costs.device_peak - device;
      its.plan.costs.fits = false;  // on the device that is there, for reports
    }
    its.is_measuring = its.is_held = its.has_clock = false;
    its.ends.read(its.plan, chain_of(its));
    its.skips.clear();
    for_each_skip(its, [&](const auto& tensor, const chain_skip&) { its.skips.push_back(tensor.handle); });
  }
  /// The budget, with at most as much of the host as exists. Tensors take the frames of all rows, and copies move the
  /// rows of the kind.
  [[nodiscard]] activation_budget room(const planned_kind& its) const
  {
    activation_budget allowed = options_.budget;
    allowed.host = std::min(allowed.host, manager_.report().capacity[tier::host]);
    const double part = static_cast<double>(its.rows) / static_cast<double>(options_.rows);
    allowed.to_host_bytes_per_second /= part;
    allowed.to_device_bytes_per_second /= part;
    return allowed;
  }
  /// The chain with any times, since they do not decide whether a plan fits.
  [[nodiscard]] static layer_chain with_any_times(layer_chain chain)
  {
    for (chain_block& block : chain.blocks) {
      if (!(block.forward_seconds > 0)) block.forward_seconds = 1;
      if (!(block.backward_seconds > 0)) block.backward_seconds = 2;
    }
    return chain;
  }
  /// Checks, before a plan is followed, that the device has its bytes, or that a rehearsal proved the step.
  void hold_against_device(planned_kind& its)
  {
    if (its.is_held) return;
    expect_plan_fits(its.plan, chain_of(its));  // blocks may have changed since they were planned
    if (manager_.rehearsing()) return;
    if (manager_.rehearsed().size() == 0) {
      const per_tier<bytes> there = manager_.report().capacity;
      const bool is_given = its.is_planned_by_caller;
      const bytes device = is_given ? its.plan.costs.device_peak : options_.budget.device;
      const bytes unlimited{std::numeric_limits<std::uint64_t>::max()};
      if (device > there[tier::device]) refuse_tier(is_given, "device", device, there[tier::device]);
      if (!is_given && options_.budget.host != unlimited && options_.budget.host > there[tier::host])
        refuse_tier(is_given, "host", options_.budget.host, there[tier::host]);
    }
    its.is_held = true;
  }
  [[noreturn]] static void refuse_tier(bool is_given, std::string_view where, bytes wanted, bytes there)
  {
    error_text text;
    text << "chunkmem: " << (is_given ? "the plan of activations needs " : "the budget of activations is ")
         << wanted.count() << " B of the " << where << ", and the " << where << " has " << there.count() << " B ";
    throw config_error{text << (is_given
                                    ? "(plan with a budget of at most that, or rehearse the step before: m.rehearse)"
                                    : "(give at most that, less what weights and gradients take at once; or "
                                      "rehearse the step before: m.rehearse)")};
  }
  [[noreturn]] void refuse_budget(const planned_kind& its, bytes missing) const
  {
    const layer_chain known = chain_of(its);
    std::uint32_t largest = 0;
    for (std::uint32_t index = 0; index < known.size(); ++index)
      if (known.blocks[index].saved > known.blocks[largest].saved) largest = index;
    const activation_budget allowed = room(its);
    throw config_error{error_text{} << "chunkmem: no plan of activations fits into " << allowed.device.count()
                                    << " B of the device and " << allowed.host.count()
                                    << " B of the host: " << missing.count() << " B are missing; the largest block is "
                                    << std::uint64_t{largest} << " (\"" << known.blocks[largest].name
                                    << "\"), which saves " << known.blocks[largest].saved.count()
                                    << " B (give a larger budget, or divide the block)"};
  }

  void run_next()
  {
    run_block(now_->plan.steps[next_], true);
    drop_dead(next_);
    ++next_;
  }
  /// @param step   its block is a place among those of all instances
  void run_block(const chain_step& step, bool is_training)
  {
    const std::uint32_t index = step.block % size();
    chain_moment moment = moment_;
    moment.instance = step.block / size();
    block_type& block = blocks_[index];
    const tensors_type& own = block.tensors(moment.instance);
    const block_type* const previous = index > 0 ? &blocks_[index - 1] : nullptr;
    const tensors_type* const before = previous == nullptr ? nullptr : &previous->tensors(moment.instance);
    const auto& callback = step.run == chain_run::backward ? block.backward : block.forward;
    if (!callback)
      throw usage_error{error_text{} << "chunkmem: " << label_of(index) << "has no callback for its "
                                     << (step.run == chain_run::backward ? "backward run" : "forward run")};
    const bool is_forward = step.run != chain_run::backward;
    const bool is_again = is_training && is_forward && runs_[step.block]++ > 0;
    block_run<Manager> run{{.manager = &manager_,
                            .name = &block.name(),
                            .declared = &block.tensors(),
                            .own = &own,
                            .declared_before = previous == nullptr ? nullptr : &previous->tensors(),
                            .before = before,
                            .run = step.run,
                            .is_again = is_again,
                            .is_training = is_training,
                            .reads_input = block.reads_input,
                            .block = index,
                            .stream_block = step.block,
                            .numbers = &numbers_,
                            .moment = moment,
                            .is_repeated = is_repeated_}};
    if constexpr (has_checks)
      if (is_forward && !manager_.rehearsing()) check_.input_before(manager_, own, before, is_again);
    const bool is_timed = is_training && measures();
    const double start = is_timed ? chain_clock::read(manager_) : 0;
    const std::uint64_t gradients = gradients_opened();
    callback(run);
    if ((is_again || !is_training) && gradients_opened() != gradients) refuse_gradient(index, is_training);
    if (is_timed) now_->clock.note(step.run, step.block, chain_clock::read(manager_) - start);
    if constexpr (has_checks)
      if (is_forward && !manager_.rehearsing())
        check_.ran(manager_, {options_.name, block.name(), step.block}, own, before);
  }
  [[nodiscard]] std::string label_of(std::uint32_t index) const
  {
    return "block " + std::to_string(index) + " (\"" + blocks_[index].name() + "\") ";
  }
  [[noreturn]] void refuse_gradient(std::uint32_t index, bool is_training) const
  {
    throw usage_error{error_text{} << "chunkmem: " << label_of(index)
                                   << (is_training
                                           ? "makes a gradient when it runs forward again in one step: it is added "
                                             "twice, or once, as the plan of activations says (make gradients in the "
                                             "backward callback, or where run.is_again() is false)"
                                           : "makes a gradient in an evaluation (make gradients in the backward "
                                             "callback, or where run.is_training() is true)")};
  }

  /// How often gradients were acquired.
  [[nodiscard]] std::uint64_t gradients_opened() const
  {
    if constexpr (requires { manager_.updates(); })
      return manager_.updates().gradients().opened();
    else
      return manager_.gradients_opened();
  }

  void drop_dead(std::uint32_t step)
  {
    for (const auto& [when, block, part] : now_->ends.after(step)) {
      if (part == tensor_part::skip) {
        manager_.drop(now_->skips[block]);
        continue;
      }
      const tensors_type& tensors = blocks_[block % size()].tensors(block / size());
      if (part == tensor_part::inner)
        drop_own(tensors.inner);
      else if (!ends_forward(*now_, block))
        drop_own(tensors.outputs);
    }
  }
  void drop_own(const list_type& all)
  {
    for (const auto& each : all)
      if (!each.is_skip) manager_.drop(each.handle);
  }
  void drop_all() noexcept
  {
    is_open_ = is_evaluated_ = false;
    for (const block_type& block : blocks_)
      for (std::uint32_t instance = 0; instance < options_.instances; ++instance)
        for (const list_type* const all : {&block.tensors(instance).inner, &block.tensors(instance).outputs})
          for (const auto& each : *all) {
            try {
              manager_.drop(each.handle);
            } catch (...) {  // pinned by the caller, or the device is lost: the next write takes its place
            }
          }
  }

  Manager& manager_;
  options options_;
  Planner planner_;
  random_stream numbers_;
  tensor_makers<Manager> makers_;
  std::deque<block_type> blocks_;
  std::deque<planned_kind> kinds_;  // the first one: of all names that have no other
  planned_kind* now_ = nullptr;     // of the last iteration that this network began

  // The step that runs, or that waits for its backward.
  std::vector<std::uint32_t> runs_;  // by block of all instances: forward runs
  chain_moment moment_;
  std::uint32_t next_ = 0;       // step of the plan
  std::uint32_t forwards_ = 0;   // instances that ran forward
  std::uint32_t left_ = 0;       // instances that have not run backward
  std::uint32_t opened_at_ = 0;  // accesses of the iteration then
  bool is_open_ = false;         // a backward is due
  bool is_running_ = false;
  bool is_evaluated_ = false;  // outputs of the last block have bytes
  std::uint64_t sized_rows_ = 0;

  struct complete_run {
    chain_moment moment;
    std::uint32_t accesses = 0;  // of the iteration, until its end
  };
  std::optional<complete_run> last_run_;  // of this iteration
  bool is_repeated_ = false;
  struct no_check {};
  [[no_unique_address]] std::conditional_t<has_checks, recompute_check<Manager>, no_check> check_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
