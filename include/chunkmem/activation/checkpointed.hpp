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
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/owner_link.hpp>

#include <algorithm>
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

/// A network as a chain of blocks, whose activations are kept, swapped or computed again as a plan says.
///
/// Each block has a forward and a backward callback. The library calls them in the order of the plan: a block may run
/// forward again before its backward callback. The tensors that a block saves lie in the manager's chunks, so the one
/// budget, the eviction policy and the transfer policy hold for them as for weights. Losses and gradients have the same
/// bits under every plan.
///
/// The plan says which blocks run forward again. The manager's own plan says when the tensors of the other blocks leave
/// the device, if they have to: it knows the whole step, weights and states included. Without a given plan the first
/// iteration keeps the input of each block alone, and measures the blocks on the clock of the backend. The planner then
/// makes a plan for the second iteration. Blocks with known times are planned before the first iteration. Where
/// callbacks only launch kernels on a stream, give times: the clock would see launches.
///
///     activation::checkpointed network{m, {.budget = budget, .seed = 42, .name = "encoder"}};
///     auto& layer = network.add("layer 0");  // then its tensors and callbacks, and the other blocks
///     for (std::uint64_t step = 0; step < 100; ++step) {
///       auto iteration = network.iteration();                   // instead of m.iteration()
///       network.run(iteration, {.step = step});
///       optimizer::step(m, adam, {.learning_rate = 1e-3F});
///     }
///
/// A callback that throws ends the step: all activations of the chain are dropped. Drop gradients
/// (`m.drop_gradients()`) and tensors of your own before the step is tried again. Under checks::full a block is found
/// that overwrites its input, saves other bytes when it runs again, or changes a buffer or registered bytes then.
///
/// Random numbers depend on the network's name and seed, on the step, the micro-batch and the block: see random_stream.
/// Source: checkpointing as in Chen et al. 2016 (arXiv 1604.06174); plans as their planners say. Cost: O(1) for each
/// run of a block, without allocation, beside the callbacks; plans cost what their planner costs, twice where blocks
/// are measured: the first plan tells before step 1 whether the budget is enough.
/// @tparam Planner   see activation_planner
/// @threads as the manager: one caller at a time
template <class Manager, activation_planner Planner = planned>
class checkpointed {
 public:
  using block_type = checkpointed_block<Manager>;
  struct options {
    activation_budget budget;  ///< for activations alone
    std::uint64_t seed = 0;    ///< of block_run::random(); after a load that of the file
    /// In messages. A network that draws random numbers has one of its own: networks with one name and one seed draw
    /// the same numbers. Checkpoints then have the state "<name>/random".
    std::string name{};
    std::uint32_t replica = 0;  ///< of ranks that train on other rows: each draws other numbers than the others
    random_rule rule = random_rule::by_name;  ///< by_seed: goes on with files of a network that had no name
  };

  /// @param owner   outlives the network
  /// @throws config_error   the budget's rates cannot be
  /// @throws usage_error    another network of this manager has the name
  explicit checkpointed(Manager& owner, const options& settings = {}, Planner planner = {})
      : manager_{owner},
        options_{settings},
        planner_{std::move(planner)},
        numbers_{settings.name, settings.seed, settings.rule, settings.replica}
  {
    options_.budget.check();
    if (!settings.name.empty() && settings.rule == random_rule::by_name) manager_.use(numbers_);
  }
  checkpointed(const checkpointed&) = delete;

  /// The next block of the chain. The reference stays good. @throws usage_error   a plan was made already
  block_type& add(std::string_view name)
  {
    if (!plan_.steps.empty())
      throw usage_error{error_text{} << "chunkmem: block " << std::uint64_t{size()} << " (\"" << name
                                     << "\") was added to a network that has a plan"};
    return blocks_.emplace_back(manager_, name);
  }

  /// The chain as it is known: sizes from the declared tensors, times as given or measured.
  [[nodiscard]] layer_chain chain() const
  {
    layer_chain found;
    for (std::uint32_t index = 0; index < size(); ++index) found.blocks.push_back(chain_block_of(index));
    return found;
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  /// The plan that the next step follows. Empty before the first step.
  [[nodiscard]] const activation_plan& plan() const noexcept { return plan_; }

  /// Follow this plan from the next step on.
  /// @throws config_error   it is not a plan of this chain: names the step and the block, or the chain; the old plan
  ///   stays
  /// @throws usage_error    in a callback
  void use(activation_plan given)
  {
    expects(!is_running_, "a network was given a plan inside of its run (give it between two runs)");
    expect_plan_fits(given, chain());
    adopt(std::move(given));
    is_planned_ = is_planned_by_caller_ = true;
  }

  /// An iteration of the manager, after the plan was made where that is due.
  ///
  /// A budget is held against the device that is there before the first step: its bytes, and whether a plan fits into
  /// it. A step that was rehearsed may have a larger budget than the device, since the manager proved what it needs.
  /// @throws config_error   no plan fits into the budget: names the largest block; the budget, or the plan that `use`
  ///   was given, is larger than the device or the host; and as the manager's `iteration`
  [[nodiscard]] auto iteration(std::string_view name = "train", std::uint32_t micro_batches = 1)
  {
    prepare();
    last_run_.reset();
    return manager_.iteration(name, micro_batches);
  }

  /// All blocks forward and backward, for one micro-batch.
  /// @throws usage_error   a block has no callback, or breaks a rule of block_run or of the checks; names the block; an
  ///   iteration of another manager; in a callback
  /// @throws               what a callback throws; all activations were dropped then
  template <class Iteration>
  void run(Iteration& iteration, const chain_moment& moment = {})
  {
    expects(!is_running_, "a network was run inside of its run (a block calls no other block)");
    expect_own(iteration);
    is_running_ = true;
    const struct end {
      bool& is_running;
      ~end() { is_running = false; }
    } ends{is_running_};
    run_steps(iteration, moment);
  }

 private:
  using tensors_type = block_tensors<Manager>;
  using list_type = typename tensors_type::list;
  static constexpr bool has_checks = Manager::engine_type::checks_type::is_on && Manager::engine_type::host_addressable;

  /// Another manager would hear of the passes, and this one would record no step.
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
  void run_steps(Iteration& iteration, const chain_moment& moment)
  try {
    if (plan_.steps.empty()) prepare();
    begin_run(moment);
    iteration.pass(pass::forward, moment.micro_batch);
    bool is_backward = false;
    for (std::uint32_t step = 0; step < plan_.steps.size(); ++step) {
      const chain_step& now = plan_.steps[step];
      if (now.run == chain_run::backward && !std::exchange(is_backward, true))
        iteration.pass(pass::backward, moment.micro_batch);
      run_block(now, moment);
      drop_dead(step);
    }
    if (is_measuring_ && !manager_.rehearsing()) is_measured_ = true;
    if (!manager_.rehearsing()) last_run_ = {moment, manager_.access_index()};
  } catch (...) {
    drop_all();
    throw;
  }

  [[nodiscard]] chain_block chain_block_of(std::uint32_t index) const
  {
    const block_type& block = blocks_[index];
    chain_block found;
    found.name = block.name();
    found.boundary = tensors_type::size_of(block.tensors().outputs);
    found.saved = tensors_type::size_of(block.tensors().inner) + found.boundary;
    found.gradient = block.gradient;
    found.forward_working = found.backward_working = block.working;
    found.passing_working = found.inner() + block.working;
    found.reads_input = block.reads_input;
    const bool is_measured = is_measured_ && !has_times(block);
    found.forward_seconds = is_measured ? clock_.forward(index) : block.forward_seconds;
    found.backward_seconds = is_measured ? clock_.backward(index) : block.backward_seconds;
    return found;
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
    if (!is_planned_ && (is_measured_ || all_have_times())) {
      activation_plan made = planner_.plan(chain(), room());
      if (!made.costs.fits && !without_times_.steps.empty()) {
        made = std::move(without_times_);  // it fits whatever times blocks have
        cost_plan(made, chain(), room());
      }
      if (!made.costs.fits) refuse_budget(made.costs.missing);
      expect_plan_fits(made, chain());
      adopt(std::move(made));
      is_planned_ = true;
      without_times_ = {};
    }
    if (plan_.steps.empty()) {
      without_times_ = planner_.plan(with_any_times(chain()), room());
      if (!without_times_.costs.fits) refuse_budget(without_times_.costs.missing);
      adopt(recompute_all{}.plan(chain(), room()));
      is_measuring_ = true;
    }
    hold_against_device();
  }
  void adopt(activation_plan given)
  {
    const bytes device = manager_.report().capacity[tier::device];
    plan_ = std::move(given);
    if (plan_.costs.fits && plan_.costs.device_peak > device) {
      plan_.costs.missing = plan_.costs.device_peak - device;
      plan_.costs.fits = false;  // on the device that is there, for reports
    }
    is_measuring_ = false;
    is_held_ = false;
    ends_.read(plan_, chain());
  }
  /// The budget, with no more of the host than there is.
  [[nodiscard]] activation_budget room() const
  {
    activation_budget allowed = options_.budget;
    allowed.host = std::min(allowed.host, manager_.report().capacity[tier::host]);
    return allowed;
  }
  /// Whether a plan fits does not depend on times.
  [[nodiscard]] static layer_chain with_any_times(layer_chain chain)
  {
    for (chain_block& block : chain.blocks) {
      if (!(block.forward_seconds > 0)) block.forward_seconds = 1;
      if (!(block.backward_seconds > 0)) block.backward_seconds = 2;
    }
    return chain;
  }
  /// Before a plan is followed: it was made for a device that is there, or a rehearsal proved the step.
  void hold_against_device()
  {
    if (is_held_) return;
    expect_plan_fits(plan_, chain());  // blocks may have changed since they were planned
    if (manager_.rehearsing()) return;
    if (manager_.rehearsed().size() == 0) {
      const per_tier<bytes> there = manager_.report().capacity;
      const bytes device = is_planned_by_caller_ ? plan_.costs.device_peak : options_.budget.device;
      const bytes unlimited{std::numeric_limits<std::uint64_t>::max()};
      if (device > there[tier::device]) refuse_tier("device", device, there[tier::device]);
      if (!is_planned_by_caller_ && options_.budget.host != unlimited && options_.budget.host > there[tier::host])
        refuse_tier("host", options_.budget.host, there[tier::host]);
    }
    is_held_ = true;
  }
  [[noreturn]] void refuse_tier(std::string_view where, bytes wanted, bytes there) const
  {
    error_text text;
    text << "chunkmem: " << (is_planned_by_caller_ ? "the plan of activations needs " : "the budget of activations is ")
         << wanted.count() << " B of the " << where << ", and the " << where << " has " << there.count() << " B ";
    throw config_error{text << (is_planned_by_caller_
                                    ? "(plan with a budget of at most that, or rehearse the step before: m.rehearse)"
                                    : "(give at most that, less what weights and gradients take at once; or rehearse "
                                      "the step before: m.rehearse)")};
  }
  [[noreturn]] void refuse_budget(bytes missing) const
  {
    const layer_chain known = chain();
    std::uint32_t largest = 0;
    for (std::uint32_t index = 0; index < known.size(); ++index)
      if (known.blocks[index].saved > known.blocks[largest].saved) largest = index;
    const activation_budget allowed = room();
    throw config_error{error_text{} << "chunkmem: no plan of activations fits into " << allowed.device.count()
                                    << " B of the device and " << allowed.host.count()
                                    << " B of the host: " << missing.count() << " B are missing; the largest block is "
                                    << std::uint64_t{largest} << " (\"" << known.blocks[largest].name
                                    << "\"), which saves " << known.blocks[largest].saved.count()
                                    << " B (give a larger budget, or divide the block)"};
  }

  void begin_run(const chain_moment& moment)
  {
    is_repeated_ = !manager_.rehearsing() && last_run_ && last_run_->moment == moment &&
                   manager_.access_index() >= last_run_->accesses;  // else another iteration has begun
    runs_.assign(size(), 0);
    if (is_measuring_ && !manager_.rehearsing()) clock_.begin(size());
    if constexpr (has_checks) check_.begin(size());
  }

  void run_block(const chain_step& step, const chain_moment& moment)
  {
    block_type& block = blocks_[step.block];
    tensors_type* const before = step.block > 0 ? &blocks_[step.block - 1].tensors() : nullptr;
    const auto& callback = step.run == chain_run::backward ? block.backward : block.forward;
    if (!callback)
      throw usage_error{error_text{} << "chunkmem: block " << std::uint64_t{step.block} << " (\"" << block.name()
                                     << "\") has no callback for its "
                                     << (step.run == chain_run::backward ? "backward run" : "forward run")};
    const bool is_forward = step.run != chain_run::backward;
    const bool is_again = is_forward && runs_[step.block]++ > 0;
    block_run<Manager> run{{&manager_, &block.name(), &block.tensors(), before, step.run, is_again, block.reads_input,
                            step.block, &numbers_, moment, is_repeated_}};
    if constexpr (has_checks)
      if (is_forward && !manager_.rehearsing()) check_.input_before(manager_, before, is_again);
    const bool measures = is_measuring_ && !manager_.rehearsing();
    const double start = measures ? chain_clock::read(manager_) : 0;
    const std::uint64_t gradients = gradients_opened();
    callback(run);
    if (is_again && gradients_opened() != gradients)
      throw usage_error{error_text{} << "chunkmem: block " << std::uint64_t{step.block} << " (\"" << block.name()
                                     << "\") makes a gradient when it runs forward again in one step: it is added "
                                        "twice, or once, as the plan of activations says (make gradients in the "
                                        "backward callback, or where run.is_again() is false)"};
    if (measures) clock_.note(step.run, step.block, chain_clock::read(manager_) - start);
    if constexpr (has_checks)
      if (is_forward && !manager_.rehearsing())
        check_.ran(manager_, {options_.name, block.name(), step.block}, block.tensors(), before);
  }

  /// How often a gradient was asked for.
  [[nodiscard]] std::uint64_t gradients_opened() const
  {
    if constexpr (requires { manager_.updates(); })
      return manager_.updates().gradients().opened();
    else
      return manager_.gradients_opened();
  }

  void drop_dead(std::uint32_t step)
  {
    for (const auto& [when, block, part] : ends_.after(step))
      drop(part == tensor_part::inner ? blocks_[block].tensors().inner : blocks_[block].tensors().outputs);
  }
  void drop(const list_type& all)
  {
    for (const auto& each : all) manager_.drop(each.handle);
  }
  void drop_all() noexcept
  {
    for (const block_type& block : blocks_) {
      for (const list_type* const all : {&block.tensors().inner, &block.tensors().outputs})
        for (const auto& each : *all) {
          try {
            manager_.drop(each.handle);
          } catch (...) {  // pinned by the caller, or the device is lost: the next write takes its place
          }
        }
    }
  }

  Manager& manager_;
  options options_;
  Planner planner_;
  random_stream numbers_;
  std::deque<block_type> blocks_;
  activation_plan plan_;
  tensor_ends ends_;
  std::vector<std::uint32_t> runs_;  // by block: forward runs in this step
  struct complete_run {
    chain_moment moment;
    std::uint32_t accesses = 0;  // of the iteration, until its end
  };
  std::optional<complete_run> last_run_;  // of this iteration
  bool is_repeated_ = false;
  chain_clock clock_;
  struct no_check {};
  [[no_unique_address]] std::conditional_t<has_checks, recompute_check<Manager>, no_check> check_;
  activation_plan without_times_;  // the planner's, until blocks are measured
  bool is_planned_ = false;
  bool is_planned_by_caller_ = false;
  bool is_running_ = false;
  bool is_held_ = false;  // the plan was held against the device
  bool is_measuring_ = false;
  bool is_measured_ = false;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
