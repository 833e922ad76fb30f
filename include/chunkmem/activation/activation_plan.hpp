// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/splitmix64.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The memory that activations may have, and the links through which they may leave it.
///
///     const activation_budget budget{.device = 14_GiB, .to_host_bytes_per_second = 12e9,
///                                    .to_device_bytes_per_second = 12e9};
struct activation_budget {
  bytes device{};
  double to_host_bytes_per_second = 0;
  double to_device_bytes_per_second = 0;
  double seconds_per_copy = 0;                            ///< before the first byte of a copy arrives
  bytes host{std::numeric_limits<std::uint64_t>::max()};  ///< for activations that left the device
  bytes frame{1};  ///< each tensor takes whole frames; 1: as many bytes as it has
  /// The most bytes that one copy moves: a larger tensor leaves and returns in parts. 0: a 64th of the device.
  bytes copy{};

  [[nodiscard]] bool operator==(const activation_budget&) const = default;

  /// The most bytes that one copy moves, in whole frames.
  [[nodiscard]] std::uint64_t in_one_copy() const
  {
    const bytes most = copy > bytes{} ? copy : bytes{device.count() / 64};
    return align_up(std::max(most, bytes{1}), frame).count();
  }
  /// Bytes of the frames that `size` takes.
  [[nodiscard]] std::uint64_t in_frames(bytes size) const { return align_up(size, frame).count(); }
  [[nodiscard]] double to_host_seconds(std::uint64_t size) const noexcept
  {
    return seconds_per_copy + static_cast<double>(size) / to_host_bytes_per_second;
  }
  [[nodiscard]] double to_device_seconds(std::uint64_t size) const noexcept
  {
    return seconds_per_copy + static_cast<double>(size) / to_device_bytes_per_second;
  }

  /// @throws config_error   names the member that is invalid
  void check() const
  {
    const auto refuse = [](std::string_view member) {
      throw config_error{error_text{} << "chunkmem: the budget of activations is invalid: " << member
                                      << " is 0, negative or not a number"};
    };
    const auto is_rate = [](double rate) { return rate > 0 && rate <= std::numeric_limits<double>::max(); };
    if (!is_rate(to_host_bytes_per_second)) refuse("to_host_bytes_per_second");
    if (!is_rate(to_device_bytes_per_second)) refuse("to_device_bytes_per_second");
    if (!(seconds_per_copy >= 0 && seconds_per_copy <= std::numeric_limits<double>::max())) refuse("seconds_per_copy");
    if (frame == bytes{}) refuse("frame");
  }
  /// Checks that the chain can be planned with this budget. Every planner calls this first, so that no sum of sizes or
  /// times of a plan overflows.
  /// @throws config_error   the budget or the chain is invalid: names the member or the block   @complexity O(blocks)
  void check(const layer_chain& chain) const
  {
    chain.check();
    check();
    if (frame.count() > most_bytes)
      throw config_error{error_text{} << "chunkmem: the budget of activations is invalid: its frame is "
                                      << frame.count() << " B (give the size of the manager's chunks, or 1)"};
    std::uint64_t all = 0;
    const auto add = [&](bytes size) {
      const std::uint64_t taken = size.count() > most_bytes ? most_bytes : in_frames(size);
      all += std::min(taken, most_bytes);  // no wrap: the sum was below most_bytes before
    };
    add(chain.input);
    for (const chain_skip& skip : chain.skips) add(skip.size);
    for (std::uint32_t index = 0; index < chain.size(); ++index) {
      const chain_block& block = chain.blocks[index];
      for (const bytes size : {block.inner(), block.boundary, block.gradient, block.carried, block.forward_working,
                               block.passing_working, block.backward_working}) {
        add(size);
        if (all >= most_bytes)
          throw config_error{error_text{} << "chunkmem: a chain of " << chain.size()
                                          << " blocks cannot be planned: block " << index << " (\"" << block.name
                                          << "\") and those before it take more than 2^60 B in one step (check the "
                                             "sizes of this block: saved, boundary, gradient, working)"};
      }
    }
    if (copy > bytes{} && all / in_one_copy() > most_copies)
      throw config_error{error_text{} << "chunkmem: the budget of activations is invalid: a copy of " << copy.count()
                                      << " B divides the tensors of the chain into more than 2^22 copies (give a "
                                         "larger copy, or 0)"};
    const double copied = static_cast<double>(all);
    const double slowest = copied / to_host_bytes_per_second + copied / to_device_bytes_per_second +
                           seconds_per_copy * (static_cast<double>(most_copies) + chain.size());
    if (!(slowest <= std::numeric_limits<double>::max()))
      throw config_error{error_text{} << "chunkmem: the budget of activations is invalid: its copies of this chain "
                                         "would take more seconds than a double holds (check to_host_bytes_per_second, "
                                         "to_device_bytes_per_second and seconds_per_copy)"};
  }

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;
  static constexpr std::uint64_t most_copies = std::uint64_t{1} << 22;
};

/// The fate of the bytes that a block saves between its forward and its backward run.
enum class block_action : std::uint8_t {
  keep,                 ///< the bytes stay on the device
  swap,                 ///< the bytes leave for the host and come back
  recompute,            ///< the bytes are dropped, and the block runs forward again
  recompute_from_host,  ///< the same, and the block's input leaves for the host and comes back in between
};

inline constexpr std::size_t block_action_count = 4;

[[nodiscard]] constexpr std::string_view name_of(block_action action) noexcept
{
  constexpr std::string_view names[block_action_count] = {"keep", "swap", "recompute", "recompute_from_host"};
  return names[static_cast<std::size_t>(action)];
}

/// Whether a block with this action runs forward again.
[[nodiscard]] constexpr bool runs_again(block_action action) noexcept
{
  return action == block_action::recompute || action == block_action::recompute_from_host;
}

/// A run of one block.
enum class chain_run : std::uint8_t {
  saving,    ///< forward; all that backward needs is saved
  passing,   ///< forward; the output alone is made
  backward,  ///< the block's saved bytes are dead afterwards
};

/// One step of a plan.
///
///     for (const chain_step& step : plan.steps)
///       if (step.run == chain_run::saving) std::cout << step.block << '\n';
struct chain_step {
  chain_run run = chain_run::saving;
  std::uint32_t block = 0;

  [[nodiscard]] constexpr bool operator==(const chain_step&) const noexcept = default;
};

/// The costs of a plan, on virtual clocks.
///
///     if (!plan.costs.fits) std::cerr << plan.costs.missing.count() << " B are missing\n";
struct plan_costs {
  bool fits = false;
  bytes missing{};                ///< where the plan does not fit: bytes that the fullest step lacks
  double seconds = 0;             ///< of a step
  double unlimited_seconds = 0;   ///< of a step that has all memory
  double bound_seconds = 0;       ///< no plan is faster, see activation_bound
  double recomputed_seconds = 0;  ///< of forward runs after the first one
  bytes moved{};                  ///< both directions
  bytes device_peak{};            ///< in frames
  bytes host_peak{};              ///< in frames

  [[nodiscard]] bool operator==(const plan_costs&) const noexcept = default;
};

/// The order in which the blocks of a chain run, and the tensors that leave the device in between.
///
/// A tensor leaves at most once: after its last use before the first backward run. It comes back for its next use.
/// Skips leave after each use, and come back for the next one; one copy to the host is enough for that. A tensor that
/// no later step reads is dropped. The library finds all these moments in the steps.
///
/// Every planner makes this type. `checkpointed` executes it.
///
///     const activation_plan plan = karma{}.plan(chain, budget);
///     std::cout << report_of(plan);
struct activation_plan {
  std::string planner;
  std::vector<chain_step> steps;
  std::vector<std::uint8_t> inner_leaves;  ///< by block: 1 if the saved bytes leave, the output aside
  std::vector<std::uint8_t> input_leaves;  ///< by block: 1 if its input leaves, which is the output of the block before
  std::vector<std::uint8_t> skips_leave;   ///< by block: 1 if skips that it makes leave between their uses; empty: none
  plan_costs costs;
  /// chain_fingerprint of the chain that the plan was made for; 0: steps by hand, for any chain with as many blocks.
  std::uint64_t chain = 0;

  [[nodiscard]] bool operator==(const activation_plan&) const = default;

  [[nodiscard]] bool skips_of_leave(std::uint32_t block) const noexcept
  {
    return !skips_leave.empty() && skips_leave[block] != 0;
  }
  /// The fate of a block's saved bytes in this plan. Cost: O(steps).
  [[nodiscard]] block_action action_of(std::uint32_t block) const noexcept
  {
    const auto runs_forward = [&](const chain_step& step) {
      return step.block == block && step.run != chain_run::backward;
    };
    if (std::ranges::count_if(steps, runs_forward) > 1)
      return input_leaves[block] != 0 ? block_action::recompute_from_host : block_action::recompute;
    return inner_leaves[block] != 0 ? block_action::swap : block_action::keep;
  }
};

/// The steps of one action for each block: all blocks forward, then each block backward, after a second forward run
/// where its action says so. The input of a block that is recomputed stays on the device, or leaves if the action says
/// so. Skips of a block leave where other bytes leave by its action.
/// @pre actions has an entry for each block   @complexity O(blocks)
inline void set_actions(activation_plan& plan, const std::vector<block_action>& actions)
{
  const auto blocks = static_cast<std::uint32_t>(actions.size());
  plan.steps.clear();
  plan.inner_leaves.assign(blocks, 0);
  plan.input_leaves.assign(blocks, 0);
  plan.skips_leave.assign(blocks, 0);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const bool is_from_host = actions[block] == block_action::recompute_from_host;
    const bool is_again = runs_again(actions[block]);
    const bool is_output_swapped = block > 0 && actions[block - 1] == block_action::swap;
    plan.steps.push_back({is_again ? chain_run::passing : chain_run::saving, block});
    plan.inner_leaves[block] = actions[block] == block_action::swap ? 1 : 0;
    plan.skips_leave[block] = actions[block] == block_action::swap || is_from_host ? 1 : 0;
    plan.input_leaves[block] = is_from_host || (is_output_swapped && !is_again) ? 1 : 0;
  }
  for (std::uint32_t block = blocks; block-- > 0;) {
    if (plan.steps[block].run == chain_run::passing) plan.steps.push_back({chain_run::saving, block});
    plan.steps.push_back({chain_run::backward, block});
  }
}

/// Checks that a plan fits this chain: each block runs backward once, in reverse order, and each run has its input.
/// @throws config_error   names the step and the block that break this   @complexity O(steps)
inline void expect_plan_fits(const activation_plan& plan, std::uint32_t blocks)
{
  const auto refuse = [](std::size_t step, std::uint32_t block, std::string_view why) {
    throw config_error{error_text{} << "chunkmem: a plan does not fit this chain: step " << step << ", block " << block
                                    << ": " << why << " (plan again with this chain)"};
  };
  if (plan.inner_leaves.size() != blocks || plan.input_leaves.size() != blocks ||
      (!plan.skips_leave.empty() && plan.skips_leave.size() != blocks))
    refuse(0, static_cast<std::uint32_t>(plan.inner_leaves.size()), "it has another number of blocks");
  std::vector<std::uint8_t> has_output(blocks, 0);
  std::vector<std::uint8_t> has_saved(blocks, 0);
  std::uint32_t backward = blocks;
  for (std::size_t index = 0; index < plan.steps.size(); ++index) {
    const auto [run, block] = plan.steps[index];
    if (block >= blocks) refuse(index, block, "there is no such block");
    if (run != chain_run::backward) {
      if (block >= backward) refuse(index, block, "it runs forward after its backward run");
      if (block > 0 && has_output[block - 1] == 0) refuse(index, block, "its input was never made");
      has_output[block] = 1;
      has_saved[block] = run == chain_run::saving ? 1 : 0;  // a run that passes leaves the output alone
      continue;
    }
    if (block + 1 != backward) refuse(index, block, "backward runs are not in reverse order");
    if (has_saved[block] == 0) refuse(index, block, "it runs backward, and its last run saved nothing");
    backward = block;
  }
  if (backward != 0) refuse(plan.steps.size(), backward - 1, "it never runs backward");
}

/// A hash of the names, sizes and order of a chain's blocks, on which a plan depends. Times are left out: they are
/// measured, and differ from run to run. Two chains have the same hash by chance alone. Never 0.
///
///     if (plan.chain == chain_fingerprint(chain)) network.use(plan);
///
/// Cost: O(bytes of names).
[[nodiscard]] inline std::uint64_t chain_fingerprint(const layer_chain& chain) noexcept
{
  std::uint64_t hash = 0;
  const auto add = [&hash](std::uint64_t value) { hash = mixed_bits((hash ^ value) + splitmix64::step); };
  add(chain.size());
  for (const chain_block& block : chain.blocks) {
    add(block.name.size());
    for (const char letter : block.name) add(static_cast<unsigned char>(letter));
    add(block.saved.count());
    add(block.boundary.count());
    add(block.reads_input ? 1 : 0);
  }
  for (const chain_skip& skip : chain.skips) {
    add(skip.from);
    add(skip.size.count());
    for (const std::uint32_t reader : skip.readers) add(reader);
  }
  return hash != 0 ? hash : 1;
}

/// The same, and checks that the plan was made for this chain, not for another one with as many blocks.
/// @throws config_error   as above; or the plan was made for a chain with other names, other sizes or another order
inline void expect_plan_fits(const activation_plan& plan, const layer_chain& chain)
{
  expect_plan_fits(plan, chain.size());
  if (plan.chain == 0 || plan.chain == chain_fingerprint(chain)) return;
  throw config_error{error_text{} << "chunkmem: a plan of " << plan.planner << " does not fit this chain: it was made "
                                  << "for a chain of as many blocks with other names, other sizes or another order "
                                     "(this one begins with \""
                                  << chain.blocks.front().name << "\", saves " << chain.saved().count() << " B and has "
                                  << chain.size() << " blocks; plan again with this chain)"};
}

/// A plan in words and numbers, for people: its costs, then a letter for each block: K keep, S swap, R recompute,
/// H recompute with the input on the host in between.
///
///     std::cout << report_of(planned{}.plan(chain, budget));
///
/// ```
/// plan of karma: 0.412 s, 1.031 of a step with enough memory, 1.012 of the bound
/// moved 3.2 GB, recomputed 0.010 s, peak on the device 13.9 GB, on the host 1.6 GB
/// blocks SSRKKKKK
/// ```
/// Cost: O(blocks steps).
[[nodiscard]] inline std::string report_of(const activation_plan& plan)
{
  const auto giga = [](bytes size) { return static_cast<double>(size.count()) * 1e-9; };
  const auto over = [](double seconds, double base) { return base > 0 ? seconds / base : 0; };
  const plan_costs& costs = plan.costs;
  char line[512];
  std::string text = "plan of " + plan.planner + ": ";
  if (!costs.fits) {
    std::snprintf(line, sizeof line, "does not fit, %.6g GB are missing\n", giga(costs.missing));
    return text + line;
  }
  std::snprintf(line, sizeof line, "%.6g s, %.3f of a step with enough memory, %.3f of the bound\n", costs.seconds,
                over(costs.seconds, costs.unlimited_seconds), over(costs.seconds, costs.bound_seconds));
  text += line;
  std::snprintf(line, sizeof line,
                "moved %.6g GB, recomputed %.6g s, peak on the device %.6g GB, on the host %.6g GB\n",
                giga(costs.moved), costs.recomputed_seconds, giga(costs.device_peak), giga(costs.host_peak));
  text += line;
  text += "blocks ";
  for (std::uint32_t block = 0; block < plan.inner_leaves.size(); ++block)
    text += "KSRH"[static_cast<std::size_t>(plan.action_of(block))];
  return text + '\n';
}

}  // namespace activation

}  // namespace chunkmem::inline v0
