// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_budget.hpp>
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The part of a block that a tensor is.
enum class tensor_part : std::uint8_t {
  output,    ///< also the input of the chain, with block `tensor_life::never`
  inner,     ///< what the saving run makes in addition
  gradient,  ///< of the output
};

/// The life of one tensor in a plan, in steps. The tensor is on the device from `created` to `last`, except between
/// `leaves` and `returns`. A large tensor that leaves has a life for each of its copies.
///
///     const bool is_swapped = life.leaves != tensor_life::never;
struct tensor_life {
  static constexpr std::uint32_t never = UINT32_MAX;
  std::uint32_t created = 0;
  std::uint32_t last = 0;
  std::uint32_t leaves = never;   ///< it is written back after this step
  std::uint32_t returns = never;  ///< it is loaded before this step
  std::uint64_t bytes = 0;        ///< of its frames
  std::uint32_t block = never;    ///< that the tensor is a part of
  tensor_part part = tensor_part::output;
};

/// The tensors of a plan with their lives, and the bytes that each step needs on the device.
///
/// Members keep their memory between plans, so that a search allocates nothing. Cost: O(steps).
///
/// Use:
///
///     chain_rows rows{chain, budget};
///     rows.read(plan);
///     for (const std::uint64_t needed : rows.needed()) most = std::max(most, needed);
class chain_rows {
 public:
  chain_rows(const layer_chain& chain, const activation_budget& budget) : chain_{chain}, budget_{budget} {}

  /// @pre expect_plan_fits(plan, chain.size()) does not throw
  void read(const activation_plan& plan)
  {
    begin(plan);
    for (std::uint32_t step = 0; step < plan.steps.size(); ++step) {
      const auto [run, block] = plan.steps[step];
      if (run == chain_run::backward)
        run_backward(step, block);
      else
        run_forward(step, block, run == chain_run::saving);
    }
    fill_needed(plan);
    cut();
  }

  /// Whole tensors, in the order in which they are made.
  [[nodiscard]] const std::vector<tensor_life>& tensors() const noexcept { return tensors_; }
  /// The same, a life for each copy.
  [[nodiscard]] const std::vector<tensor_life>& lives() const noexcept { return lives_; }
  /// By step: bytes of the tensors that are used or wait on the device, and of working memory. Loads that come early
  /// are not counted.
  [[nodiscard]] const std::vector<std::uint64_t>& needed() const noexcept { return needed_; }
  /// By step: bytes that a run takes when it begins and gives back when it ends.
  [[nodiscard]] const std::vector<std::uint64_t>& working() const noexcept { return working_; }
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return host_bytes_; }

 private:
  static constexpr std::uint32_t never = tensor_life::never;

  void begin(const activation_plan& plan)
  {
    tensors_.clear();
    working_.assign(plan.steps.size(), 0);
    output_.assign(chain_.size() + 1U, never);
    inner_.assign(chain_.size(), never);
    gradient_.assign(chain_.size(), never);
    leaves_ = &plan;
    const auto first = std::ranges::find(plan.steps, chain_run::backward, &chain_step::run);
    turn_ = static_cast<std::uint32_t>(first - plan.steps.begin());
    output_[0] = add(0, chain_.input, never, tensor_part::output);
  }

  void run_forward(std::uint32_t step, std::uint32_t block, bool saves)
  {
    const chain_block& it = chain_.blocks[block];
    use(step, output_[block], leaves_->input_leaves[block] != 0);
    output_[block + 1] = add(step, it.boundary, block, tensor_part::output);
    inner_[block] = saves ? add(step, it.inner(), block, tensor_part::inner) : never;
    working_[step] = budget_.in_frames(saves ? it.forward_working : it.passing_working) + budget_.in_frames(it.carried);
  }

  void run_backward(std::uint32_t step, std::uint32_t block)
  {
    const chain_block& it = chain_.blocks[block];
    use(step, inner_[block], leaves_->inner_leaves[block] != 0);
    use(step, output_[block + 1], block + 1 < chain_.size() && leaves_->input_leaves[block + 1] != 0);
    if (it.reads_input) use(step, output_[block], leaves_->input_leaves[block] != 0);
    if (gradient_[block] == never) gradient_[block] = add(step, it.gradient, block, tensor_part::gradient);
    use(step, gradient_[block], false);
    if (block > 0) {
      const std::uint32_t before = block - 1;
      gradient_[before] = add(step, chain_.blocks[before].gradient, before, tensor_part::gradient);
    }
    working_[step] = budget_.in_frames(it.backward_working) + budget_.in_frames(it.carried);
  }

  [[nodiscard]] std::uint32_t add(std::uint32_t step, bytes size, std::uint32_t block, tensor_part part)
  {
    tensors_.push_back({.created = step, .last = step, .bytes = budget_.in_frames(size), .block = block, .part = part});
    return static_cast<std::uint32_t>(tensors_.size()) - 1;
  }
  void use(std::uint32_t step, std::uint32_t which, bool may_leave)
  {
    tensor_life& life = tensors_[which];
    if (may_leave && life.bytes > 0 && life.last < turn_ && step >= turn_ && life.leaves == never) {
      life.leaves = life.last;
      life.returns = step;
    }
    life.last = step;
  }
  /// A life for each copy of a tensor that leaves. A tensor that is larger than the device stays whole.
  void cut()
  {
    lives_.clear();
    const std::uint64_t most = budget_.in_one_copy();
    for (const tensor_life& tensor : tensors_) {
      lives_.push_back(tensor);
      if (tensor.leaves == never || tensor.bytes > budget_.device.count()) continue;
      for (; lives_.back().bytes > most; lives_.back().bytes -= most) {
        lives_.push_back(lives_.back());
        lives_[lives_.size() - 2].bytes = most;
      }
    }
  }

  void fill_needed(const activation_plan& plan)
  {
    change_.assign(plan.steps.size() + 1, 0);
    host_bytes_ = 0;
    const auto add_span = [&](std::uint32_t from, std::uint32_t to, std::uint64_t size) {
      change_[from] += size;  // wraps: the sum from the left is exact
      change_[to + 1] -= size;
    };
    for (const tensor_life& life : tensors_) {
      if (life.leaves == never) {
        add_span(life.created, life.last, life.bytes);
        continue;
      }
      add_span(life.created, life.leaves, life.bytes);
      add_span(life.returns, life.last, life.bytes);
      host_bytes_ += life.bytes;
    }
    needed_.resize(plan.steps.size());
    std::uint64_t sum = 0;
    for (std::size_t step = 0; step < needed_.size(); ++step) {
      sum += change_[step];
      needed_[step] = sum + working_[step];
    }
  }

  const layer_chain& chain_;
  const activation_budget& budget_;
  const activation_plan* leaves_ = nullptr;
  std::uint32_t turn_ = 0;  // step of the first backward run
  std::uint64_t host_bytes_ = 0;
  std::vector<tensor_life> tensors_;
  std::vector<tensor_life> lives_;
  std::vector<std::uint64_t> needed_;
  std::vector<std::uint64_t> working_;
  std::vector<std::uint64_t> change_;
  std::vector<std::uint32_t> output_;    // by block: life of its input; the last entry is the chain's output
  std::vector<std::uint32_t> inner_;     // by block
  std::vector<std::uint32_t> gradient_;  // by block: of its output
};

}  // namespace activation

}  // namespace chunkmem::inline v0
