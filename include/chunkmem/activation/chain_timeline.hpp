// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The part of a block that a tensor is.
enum class tensor_part : std::uint8_t {
  output,    ///< also the input of the chain, with block `tensor_life::never`
  inner,     ///< what the saving run makes in addition
  gradient,  ///< of the output
  skip,      ///< which later blocks read too; its `block` is its place among the skips of the chain
};

/// The life of one tensor in a plan, in steps. The tensor is on the device from `created` to `last`, except between
/// `leaves` and `returns`. A large tensor that leaves has a life for each of its copies. A skip that leaves again has
/// one more life, which begins on the host.
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
  bool begins_on_host = false;  ///< it left in an earlier life: on the device from `returns` on, without a write-back
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
      if (!chain_.skips.empty()) use_skips(step, block, run != chain_run::backward);
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
  /// The same tensors, with a life for each copy.
  [[nodiscard]] const std::vector<tensor_life>& lives() const noexcept { return lives_; }
  /// By step: bytes of the tensors that are used or wait on the device, and of working memory. Loads that come early
  /// are not counted.
  [[nodiscard]] const std::vector<std::uint64_t>& needed() const noexcept { return needed_; }
  /// By step: bytes that a run takes when it begins and gives back when it ends.
  [[nodiscard]] const std::vector<std::uint64_t>& working() const noexcept { return working_; }
  [[nodiscard]] std::uint64_t host_bytes() const noexcept { return host_bytes_; }
  /// Bytes of copies, both directions.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return moved_bytes_; }

 private:
  static constexpr std::uint32_t never = tensor_life::never;

  void begin(const activation_plan& plan)
  {
    tensors_.clear();
    working_.assign(plan.steps.size(), 0);
    output_.assign(chain_.size() + 1U, never);
    inner_.assign(chain_.size(), never);
    gradient_.assign(chain_.size(), never);
    skip_.assign(chain_.skips.size(), never);
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

  /// The block makes its skips, or reads those of earlier blocks.
  void use_skips(std::uint32_t step, std::uint32_t block, bool is_forward)
  {
    for (std::uint32_t which = 0; which < skip_.size(); ++which) {
      const chain_skip& skip = chain_.skips[which];
      const bool makes = skip.from == block && is_forward;
      if (skip.from != block && !std::ranges::binary_search(skip.readers, block)) continue;
      const bool is_away = skip_[which] != never && leaves_->skips_of_leave(skip.from) &&
                           tensors_[skip_[which]].last + 1 < step && tensors_[skip_[which]].bytes > 0;
      if (skip_[which] == never || (is_away && makes)) {
        skip_[which] = add(step, skip.size, which, tensor_part::skip);
      } else if (is_away) {
        tensor_life* life = &tensors_[skip_[which]];
        if (life->leaves != never) {
          const std::uint32_t left = life->last;
          skip_[which] = add(left, skip.size, which, tensor_part::skip);
          life = &tensors_.back();
          life->begins_on_host = true;
        }
        life->leaves = life->last;
        life->returns = step;
      }
      tensors_[skip_[which]].last = step;
    }
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
    host_bytes_ = moved_bytes_ = 0;
    const auto add_span = [&](std::uint32_t from, std::uint32_t to, std::uint64_t size) {
      change_[from] += size;  // may wrap around: the prefix sum is exact
      change_[to + 1] -= size;
    };
    for (const tensor_life& life : tensors_) {
      if (life.leaves == never) {
        add_span(life.created, life.last, life.bytes);
        continue;
      }
      add_span(life.returns, life.last, life.bytes);
      moved_bytes_ += life.bytes;
      if (life.begins_on_host) continue;
      add_span(life.created, life.leaves, life.bytes);
      moved_bytes_ += life.bytes;
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
  std::uint64_t moved_bytes_ = 0;
  std::vector<tensor_life> tensors_;
  std::vector<tensor_life> lives_;
  std::vector<std::uint64_t> needed_;
  std::vector<std::uint64_t> working_;
  std::vector<std::uint64_t> change_;
  std::vector<std::uint32_t> output_;    // by block: life of its input; the last entry is the chain's output
  std::vector<std::uint32_t> inner_;     // by block
  std::vector<std::uint32_t> gradient_;  // by block: of its output
  std::vector<std::uint32_t> skip_;      // by skip: its last life so far
};

/// Free bytes of the device, each with the time from which they are free. A request takes the bytes that were free
/// first.
///
///     free_bytes room;
///     room.give(0.0, 100);
///     room.give(2.5, 50);
///     const double when = room.take(120);   // 2.5
class free_bytes {
 public:
  void clear() noexcept { pieces_.clear(); }
  void give(double seconds, std::uint64_t size)
  {
    if (size == 0) return;
    pieces_.push_back({seconds, size});
    std::ranges::push_heap(pieces_, is_later);
  }
  /// @return   the time from which all of them are free; infinity where there are fewer bytes
  [[nodiscard]] double take(std::uint64_t size)
  {
    double seconds = 0;
    while (size > 0) {
      if (pieces_.empty()) return std::numeric_limits<double>::infinity();
      seconds = std::max(seconds, pieces_.front().seconds);
      if (pieces_.front().size > size) {
        pieces_.front().size -= size;
        return seconds;
      }
      size -= pieces_.front().size;
      std::ranges::pop_heap(pieces_, is_later);
      pieces_.pop_back();
    }
    return seconds;
  }

 private:
  struct piece {
    double seconds = 0;
    std::uint64_t size = 0;
  };
  static constexpr auto is_later = [](const piece& left, const piece& right) { return left.seconds > right.seconds; };
  std::vector<piece> pieces_;
};

/// Simulates a plan on three virtual clocks: compute, copies to the host, copies to the device.
///
/// - Each queue works in order.
/// - A run begins when the tensors that it reads have arrived, and when the bytes that it makes have room.
/// - A tensor that leaves frees its bytes when its copy has ended.
/// - Loads come in the order of their uses. A load begins with the earliest step from which its bytes fit until its
///   use, whatever the other steps need. A load never takes the room of an earlier step, so no plan waits for itself.
///
/// The recurrences generalise the formulation that docs/activations.md explains. Cost: O(steps log steps), and O(steps)
/// for a load; no allocation after the first plan.
///
/// Use:
///
///     chain_timeline timeline{chain, budget};
///     const plan_costs costs = timeline.run(plan);
class chain_timeline {
 public:
  /// @param chain, budget   outlive the timeline
  chain_timeline(const layer_chain& chain, const activation_budget& budget)
      : chain_{chain}, budget_{budget}, rows_{chain, budget}
  {
  }

  /// `bound_seconds` stays 0. @pre expect_plan_fits(plan, chain.size()) does not throw
  [[nodiscard]] plan_costs run(const activation_plan& plan)
  {
    rows_.read(plan);
    plan_costs costs;
    costs.unlimited_seconds = chain_.unlimited_seconds();
    const std::uint64_t most = *std::ranges::max_element(rows_.needed());
    const std::uint64_t lacks_on_device = most - std::min(most, budget_.device.count());
    const std::uint64_t lacks_on_host = rows_.host_bytes() - std::min(rows_.host_bytes(), budget_.host.count());
    costs.fits = lacks_on_device == 0 && lacks_on_host == 0;
    costs.missing = bytes{lacks_on_device + lacks_on_host};
    if (!costs.fits) return costs;
    place_loads();
    walk(plan, costs);
    costs.moved = bytes{rows_.moved_bytes()};
    costs.host_peak = bytes{rows_.host_bytes()};
    costs.device_peak = bytes{budget_.device.count() - *std::ranges::min_element(room_)};
    return costs;
  }

 private:
  static constexpr std::uint32_t never = tensor_life::never;
  struct load {
    std::uint32_t life = 0;
    std::uint32_t from = 0;  ///< the step before which it may begin
    std::uint32_t use = 0;
  };

  /// Gives each load the earliest step from which its bytes fit until its use.
  void place_loads()
  {
    room_.clear();
    for (const std::uint64_t needed : rows_.needed()) room_.push_back(budget_.device.count() - needed);
    loads_.clear();
    ends_.clear();
    for (std::uint32_t which = 0; which < rows_.lives().size(); ++which) {
      const tensor_life& life = rows_.lives()[which];
      if (life.leaves != never) loads_.push_back({which, life.returns, life.returns});
      if (!life.begins_on_host) ends_.push_back({life.leaves == never ? life.last : life.leaves, which});
      if (life.leaves != never) ends_.push_back({life.last, which});
    }
    std::ranges::sort(loads_, {}, [](const load& it) { return std::uint64_t{it.use} << 32 | it.life; });
    std::ranges::sort(ends_, {}, [](const end& it) { return std::uint64_t{it.step} << 32 | it.life; });
    std::uint32_t before = 0;
    for (load& it : loads_) {
      const tensor_life& life = rows_.lives()[it.life];
      while (it.from > std::max(before, life.leaves + 1) && room_[it.from - 1] >= life.bytes) --it.from;
      for (std::uint32_t step = it.from; step < it.use; ++step) room_[step] -= life.bytes;
      before = it.from;
    }
  }

  void walk(const activation_plan& plan, plan_costs& costs)
  {
    free_.clear();
    free_.give(0, budget_.device.count());
    const std::size_t tensors = rows_.lives().size();
    copied_.assign(tensors, 0);
    arrived_.assign(tensors, 0);
    runs_.assign(chain_.size(), 0);
    made_.assign(plan.steps.size(), 0);
    for (const tensor_life& life : rows_.lives())
      if (!life.begins_on_host) made_[life.created] += life.bytes;
    now_ = to_host_ = to_device_ = 0;
    next_load_ = next_use_ = next_end_ = 0;
    for (std::uint32_t step = 0; step < plan.steps.size(); ++step) {
      begin_loads(step, step);  // the step waits for these
      double start = std::max({now_, free_.take(made_[step]), free_.take(rows_.working()[step])});
      begin_loads(step, never);
      for (; next_use_ < loads_.size() && loads_[next_use_].use == step; ++next_use_)
        start = std::max(start, arrived_[loads_[next_use_].life]);
      now_ = start + seconds_of(plan.steps[step], costs);
      end_lives(step);
    }
    costs.seconds = now_;
  }

  /// The loads that begin before this step, if their use is not after `last_use`.
  void begin_loads(std::uint32_t step, std::uint32_t last_use)
  {
    for (; next_load_ < loads_.size() && loads_[next_load_].from == step && loads_[next_load_].use <= last_use;
         ++next_load_) {
      const std::uint32_t which = loads_[next_load_].life;
      const std::uint64_t size = rows_.lives()[which].bytes;
      to_device_ = std::max({to_device_, now_, copied_[which], free_.take(size)}) + budget_.to_device_seconds(size);
      arrived_[which] = to_device_;
    }
  }

  /// Frees the bytes that this step is the last to use, immediately or after their copy to the host.
  void end_lives(std::uint32_t step)
  {
    free_.give(now_, rows_.working()[step]);
    for (; next_end_ < ends_.size() && ends_[next_end_].step == step; ++next_end_) {
      const std::uint32_t which = ends_[next_end_].life;
      const tensor_life& life = rows_.lives()[which];
      if (life.leaves == step)
        to_host_ = copied_[which] = std::max(to_host_, now_) + budget_.to_host_seconds(life.bytes);
      free_.give(life.leaves == step ? to_host_ : now_, life.bytes);
    }
  }

  [[nodiscard]] double seconds_of(const chain_step& step, plan_costs& costs)
  {
    const chain_block& block = chain_.blocks[step.block];
    if (step.run == chain_run::backward) return block.backward_seconds;
    if (runs_[step.block]++ == 0) return block.forward_seconds;
    costs.recomputed_seconds += block.again_seconds();
    return block.again_seconds();
  }

  struct end {
    std::uint32_t step = 0;
    std::uint32_t life = 0;
  };

  const layer_chain& chain_;
  const activation_budget& budget_;
  chain_rows rows_;
  free_bytes free_;
  std::vector<std::uint64_t> room_;  // by step: bytes that nothing needs
  std::vector<std::uint64_t> made_;  // by step: bytes of the tensors that it makes
  std::vector<load> loads_;          // in the order of their uses
  std::vector<end> ends_;            // in the order of their steps
  double now_ = 0;                   // of compute, as of the other two queues
  double to_host_ = 0;
  double to_device_ = 0;
  std::size_t next_load_ = 0;
  std::size_t next_use_ = 0;
  std::size_t next_end_ = 0;
  std::vector<double> copied_;       // by life: when its copy to the host ended
  std::vector<double> arrived_;      // by life: when its load ended
  std::vector<std::uint32_t> runs_;  // by block: forward runs so far
};

/// The tensors that no later step of a plan reads. The executor of the plan drops these tensors after the step.
///
/// A passing run is followed by the end of the bytes that it would have saved, since its callback may have written
/// them. Gradients are not among the tensors. `after` does not allocate. Cost of `read`: O(steps).
///
/// Use:
///
///     tensor_ends ends;
///     ends.read(plan, chain);
///     for (const tensor_ends::end& each : ends.after(step)) drop(each.block, each.part);   // of a skip: its place
class tensor_ends {
 public:
  struct end {
    std::uint32_t step = 0;
    std::uint32_t block = 0;
    tensor_part part = tensor_part::output;
  };

  /// @pre expect_plan_fits(plan, chain.size()) does not throw
  void read(const activation_plan& plan, const layer_chain& chain)
  {
    const activation_budget boundless{.device = bytes{std::numeric_limits<std::uint64_t>::max()}};
    chain_rows rows{chain, boundless};
    rows.read(plan);
    ends_.clear();
    std::vector<std::uint8_t> goes_on(chain.skips.size(), 0);  // a later life of the skip begins with this one's bytes
    for (auto life = rows.tensors().rbegin(); life != rows.tensors().rend(); ++life) {
      if (life->block == tensor_life::never || life->part == tensor_part::gradient) continue;
      if (life->part == tensor_part::skip && std::exchange(goes_on[life->block], life->begins_on_host ? 1 : 0) != 0)
        continue;
      ends_.push_back({life->last, life->block, life->part});
    }
    std::ranges::reverse(ends_);
    for (std::uint32_t step = 0; step < plan.steps.size(); ++step)
      if (plan.steps[step].run == chain_run::passing)
        ends_.push_back({step, plan.steps[step].block, tensor_part::inner});
    std::ranges::stable_sort(ends_, {}, &end::step);
    first_.assign(plan.steps.size() + 1, 0);
    for (const end& each : ends_) ++first_[each.step + 1];
    for (std::size_t step = 1; step < first_.size(); ++step) first_[step] += first_[step - 1];
  }
  [[nodiscard]] std::span<const end> after(std::uint32_t step) const noexcept
  {
    return std::span{ends_}.subspan(first_[step], first_[step + 1] - first_[step]);
  }

 private:
  std::vector<end> ends_;             // by step
  std::vector<std::uint32_t> first_;  // by step: index of its first end
};

/// Measures the runs of blocks in one step, without waits for copies.
///
///     clock.begin(blocks);
///     const auto before = clock.read(m);
///     ... run a block ...
///     clock.note(chain_run::passing, block, clock.read(m) - before);
///
/// Of a block that runs forward several times the shortest time counts. A block that was not measured has 0.
class chain_clock {
 public:
  void begin(std::uint32_t blocks)
  {
    forward_.assign(blocks, 0);
    backward_.assign(blocks, 0);
  }
  /// Seconds of the manager's backend, without those that the calling thread waited for copies.
  template <class Manager>
  [[nodiscard]] static double read(Manager& manager)
  {
    return static_cast<double>(manager.backend().now()) * 1e-9 - manager.report().stalls.seconds();
  }
  /// Notes the time of a run. Some backends count waits by another clock, and streams wait for copies on threads of
  /// their own. So the difference may be 0 or negative: such a run counts as not measured.
  void note(chain_run run, std::uint32_t block, double seconds) noexcept
  {
    if (!(seconds > 0)) return;
    double& known = (run == chain_run::backward ? backward_ : forward_)[block];
    if (known == 0 || seconds < known) known = seconds;
  }
  /// Scales all times, for another number of rows.
  void scale(double factor) noexcept
  {
    for (std::vector<double>* const all : {&forward_, &backward_})
      for (double& seconds : *all) seconds *= factor;
  }
  /// Whether the runs of both differ by less than half of all seconds, where each run counts with its longer time.
  /// @pre both are of one chain
  [[nodiscard]] bool is_like(const chain_clock& other) const noexcept
  {
    double apart = 0;
    double longer = 0;
    const auto add = [&](double left, double right) {
      apart += std::abs(left - right);
      longer += std::max(left, right);
    };
    for (std::size_t block = 0; block < forward_.size(); ++block) {
      add(forward_[block], other.forward_[block]);
      add(backward_[block], other.backward_[block]);
    }
    return apart < longer / 2 || longer == 0;
  }
  [[nodiscard]] double forward(std::uint32_t block) const noexcept { return forward_[block]; }
  [[nodiscard]] double backward(std::uint32_t block) const noexcept { return backward_[block]; }

 private:
  std::vector<double> forward_;
  std::vector<double> backward_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
