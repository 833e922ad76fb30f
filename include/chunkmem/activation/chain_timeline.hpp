// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_budget.hpp>
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_rows.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

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

/// Runs a plan on three virtual clocks: compute, copies to the host, copies to the device.
///
/// - Each queue works in order.
/// - A run begins when the tensors that it reads have arrived, and when the bytes that it makes have room.
/// - A tensor that leaves gives its bytes free when its copy has ended.
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
    costs.moved = bytes{2 * rows_.host_bytes()};
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
      ends_.push_back({life.leaves == never ? life.last : life.leaves, which});
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
    for (const tensor_life& life : rows_.lives()) made_[life.created] += life.bytes;
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

  /// Gives the bytes free that this step used last, at once or after their copy to the host.
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

}  // namespace activation

}  // namespace chunkmem::inline v0
