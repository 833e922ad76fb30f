// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/planner/layer_activations.hpp>
#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/sharding/zero.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The next act of a trainer.
enum class act_kind : std::uint8_t {
  lease,     ///< takes bytes for activations
  give,      ///< gives the bytes of `id` back
  use,       ///< computes with a group
  backward,  ///< the forward pass is over
  save,      ///< writes the kept bytes of the layer `id`, of `size` bytes, and holds them
  restore,   ///< reads them, and holds them
  let_go,    ///< ends that
  drop,      ///< the bytes are dead
};

/// One act of a training iteration, without updates.
///
///     for (const act& it : script.acts())
///       if (it.kind == act_kind::use) std::cout << it.id << ": " << it.nanoseconds << " ns\n";
struct act {
  act_kind kind = act_kind::use;
  std::uint32_t id = 0;            ///< of a lease, counted up; the group of a use; a layer, counted from 0
  bytes size{};                    ///< of a lease, or of saved bytes
  std::uint64_t nanoseconds = 0;   ///< of a use, on one rank's device
  std::uint32_t stage = 0;         ///< parameter_groups::stage
  std::uint32_t unit = 0;          ///< the place of the gathered weights
  std::uint32_t gathered_at = 0;   ///< of a use that gathers: the gather begins before this act, at the latest its own
  bool reads = false;              ///< the use reads the weights
  bool gathers = false;            ///< its weights are not in a unit yet
  bool is_ahead = false;           ///< the step before has gathered its weights
  bool makes_gradient = false;     ///< the group's gradient is written, or added to
  bool finishes_gradient = false;  ///< no later use adds to it
};

/// One iteration of training as a list of acts: forward pass, then backward pass, layer by layer.
///
/// Activations are leases that are given back in reverse. Each layer has a lease for the bytes that it holds from its
/// forward to its backward pass. While it works, it has a lease for the most that it needs in addition. The highest sum
/// of leases is transformer_costs::peak(), each rounded up to 256 B. Where activations move, the bytes that a layer
/// holds are saved and restored instead. A layer that is computed again runs forward once
/// more before its backward pass. Weights are gathered into some units, in the order of their uses and as early as a
/// unit is free. The group that is needed again latest gives its unit up.
///
/// The gradient of a tied table has two parts. With a unit for each of its groups and three more, the first part takes
/// the table's place in its unit and stays there until the second part is added. Else both parts are summed over ranks
/// one after the other, and the group may be gathered again in between.
///
/// Use:
///
///     const training_script script{groups, setup.recomputes_layers, flops_per_second};
///     for (const act& next : script.acts()) ...        // lease, use, give back
class training_script {
 public:
  /// groups that are resident at once: 3 are the group in use, the group before, and the next group
  static constexpr std::uint32_t least_units = 1;
  static constexpr std::uint32_t most_units = most_gather_units;

  /// @param flops_per_second   achieved by one device   @param units   of gathered weights, from least_units to
  ///   most_units
  /// @param ahead   groups that the step before has gathered: sharding::is_gathered_ahead, each in a unit of its own.
  ///   Fewer where three units would not be left
  training_script(const parameter_groups& groups, bool recomputes, double flops_per_second, std::uint32_t units = 3,
                  std::uint32_t ahead = 0)
      : training_script{groups, layer_activations::all(groups.stages() - 2, recomputes), flops_per_second, units, ahead}
  {
  }
  /// @throws config_error   activations has not an entry for each layer
  training_script(const parameter_groups& groups, layer_activations activations, double flops_per_second,
                  std::uint32_t units = 3, std::uint32_t ahead = 0)
      : groups_{groups},
        units_{std::clamp(units, least_units, most_units)},
        activations_{std::move(activations)},
        per_nanosecond_{flops_per_second * 1e-9}
  {
    const std::uint32_t layers = groups.stages() - 2;
    if (activations_.again.size() != layers)
      throw config_error{error_text{} << "chunkmem: activations of " << std::uint64_t{activations_.again.size()}
                                      << " layers were given for a model of " << std::uint64_t{layers}
                                      << " (give an entry for each layer)"};
    const held ends = make_forward(layers);
    make_backward(layers, ends);
    mark_gradients();
    mark_kept();
    mark_gathers(ahead);
  }

  [[nodiscard]] std::span<const act> acts() const noexcept { return acts_; }
  [[nodiscard]] std::uint32_t units() const noexcept { return units_; }
  [[nodiscard]] std::uint32_t leases() const noexcept { return leases_; }
  [[nodiscard]] const layer_activations& activations() const noexcept { return activations_; }
  /// The bytes that a layer saves and restores; 0 where activations do not move.
  [[nodiscard]] bytes saved_by(std::uint32_t layer) const noexcept
  {
    return activations_.moves ? kept(layer) : bytes{};
  }
  /// The gradient of this group stays in its unit from its first to its last part.
  [[nodiscard]] bool keeps(std::uint32_t group) const noexcept { return is_kept_[group] != 0; }
  /// The number of such groups.
  [[nodiscard]] std::uint32_t kept() const noexcept { return kept_; }
  /// The number of groups that a step gathers for the next one.
  [[nodiscard]] std::uint32_t gathers_ahead() const noexcept
  {
    return static_cast<std::uint32_t>(std::ranges::count_if(acts_, [](const act& it) { return it.is_ahead; }));
  }
  /// The use whose weights the step before has gathered, for this group; or null.
  [[nodiscard]] const act* ahead(std::uint32_t group) const noexcept
  {
    const auto found = std::ranges::find_if(acts_, [&](const act& it) { return it.is_ahead && it.id == group; });
    return found == acts_.end() ? nullptr : &*found;
  }
  /// Computing, without updates [ns].
  [[nodiscard]] std::uint64_t nanoseconds() const noexcept
  {
    std::uint64_t all = 0;
    for (const act& it : acts_) all += it.nanoseconds;
    return all;
  }

 private:
  using part = workload::transformer_operator;
  struct held {
    std::uint32_t embedding = nothing;
    std::vector<std::uint32_t> layers;
  };
  static constexpr std::uint32_t nothing = UINT32_MAX;

  held make_forward(std::uint32_t layers)
  {
    const workload::transformer_costs& costs = groups_.costs();
    held ends;
    ends.embedding = lease(costs.of(part::embedding).kept);
    within(costs.of(part::embedding).working, [&] { forward(0); });
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      if (activations_.moves)
        hold(act_kind::save, layer);
      else
        ends.layers.push_back(lease(kept(layer)));
      within(forward_working(layer), [&] { forward(layer + 1); });
      if (activations_.moves) hold(act_kind::let_go, layer);
    }
    return ends;
  }
  void make_backward(std::uint32_t layers, const held& ends)
  {
    const workload::transformer_costs& costs = groups_.costs();
    within(head_peak(), [&] {
      forward(layers + 1);
      acts_.push_back({.kind = act_kind::backward});
      backward(layers + 1);
    });
    for (std::uint32_t layer = layers; layer-- > 0;) {
      if (activations_.moves) hold(act_kind::restore, layer);
      within(layer_peak(layer) - kept(layer), [&] {
        if (activations_.again[layer] != 0) forward(layer + 1);
        backward(layer + 1);
      });
      if (!activations_.moves) {
        give(ends.layers[layer]);
        continue;
      }
      hold(act_kind::let_go, layer);
      hold(act_kind::drop, layer);
    }
    within(costs.of(part::embedding).working, [&] { backward(0); });
    give(ends.embedding);
  }

  /// The most that the operators from `first` to `last` hold at once, one after the other. Each keeps its bytes.
  [[nodiscard]] bytes most_held(part first, part last) const
  {
    bytes kept;
    bytes most;
    for (auto at = static_cast<std::size_t>(first); at <= static_cast<std::size_t>(last); ++at) {
      const workload::operator_cost& cost = groups_.costs().of(static_cast<part>(at));
      kept += cost.kept;
      most = std::max(most, kept + cost.working);
    }
    return most;
  }
  /// On its way back, a layer holds the gradient of the stream in addition to its kept bytes.
  [[nodiscard]] bytes layer_peak(std::uint32_t layer) const
  {
    const workload::transformer_costs& costs = groups_.costs();
    bytes kept;
    bytes most;
    for (auto at = static_cast<std::size_t>(part::attention_norm); at <= static_cast<std::size_t>(part::mlp_down);
         ++at) {
      kept += costs.of(static_cast<part>(at)).kept;
      const bytes working = costs.beside_stream(static_cast<part>(at), activations_.again[layer] != 0);
      most = std::max(most, kept + costs.checkpoint() + working);
    }
    return most;
  }
  [[nodiscard]] bytes head_peak() const { return most_held(part::final_norm, part::loss); }
  [[nodiscard]] bytes kept(std::uint32_t layer) const noexcept { return activations_.kept(groups_.costs(), layer); }
  void hold(act_kind kind, std::uint32_t layer) { acts_.push_back({.kind = kind, .id = layer, .size = kept(layer)}); }
  /// The bytes that a layer needs on its way forward, in addition to the bytes that it holds. If it keeps its input
  /// alone, these are the bytes that one operator reads and makes.
  [[nodiscard]] bytes forward_working(std::uint32_t layer) const
  {
    const workload::transformer_costs& costs = groups_.costs();
    if (activations_.again[layer] == 0) return most_held(part::attention_norm, part::mlp_down) - kept(layer);
    bytes most = costs.of(part::attention_norm).working;
    for (auto at = static_cast<std::size_t>(part::qkv); at <= static_cast<std::size_t>(part::mlp_down); ++at)
      most = std::max(most, costs.of(static_cast<part>(at)).kept + costs.of(static_cast<part>(at)).working);
    return most;
  }

  [[nodiscard]] std::uint32_t lease(bytes size)
  {
    if (size == bytes{}) return nothing;
    acts_.push_back({.kind = act_kind::lease, .id = leases_, .size = size});
    return leases_++;
  }
  void give(std::uint32_t id)
  {
    if (id != nothing) acts_.push_back({.kind = act_kind::give, .id = id});
  }
  template <class Work>
  void within(bytes size, Work work)
  {
    const std::uint32_t id = lease(size);
    work();
    give(id);
  }

  void forward(std::uint32_t stage)
  {
    for (const group_use& it : groups_.stage(stage)) use(stage, it.group, it.forward_flops, true);
  }
  void backward(std::uint32_t stage)
  {
    const auto uses = groups_.stage(stage);
    for (std::size_t index = uses.size(); index-- > 0;) {
      use(stage, uses[index].group, uses[index].backward_flops, stage != 0 || uses[index].backward_flops > 0);
      acts_.back().makes_gradient = true;
      acts_.back().finishes_gradient = !uses[index].is_tied;
    }
  }
  /// Uses of one group in a row are one use.
  void use(std::uint32_t stage, std::uint32_t group, std::uint64_t flops, bool reads)
  {
    const double exact = std::ceil(static_cast<double>(flops) / per_nanosecond_);
    const auto nanoseconds =
        exact < 9e18 ? static_cast<std::uint64_t>(exact) : std::uint64_t{9'000'000'000'000'000'000U};
    if (!acts_.empty()) {
      act& last = acts_.back();
      if (last.kind == act_kind::use && last.id == group && last.stage == stage) {
        last.nanoseconds += nanoseconds;
        return;
      }
    }
    acts_.push_back({.kind = act_kind::use, .id = group, .nanoseconds = nanoseconds, .stage = stage, .reads = reads});
  }

  /// A gradient is written once, at the last use of its group. The gradient of a tied table is written at both ends.
  void mark_gradients()
  {
    std::vector<std::uint8_t> seen(groups_.groups(), 0);
    for (std::size_t index = acts_.size(); index-- > 0;) {
      act& it = acts_[index];
      if (!it.makes_gradient) continue;
      const bool is_tied = !it.finishes_gradient;
      it.finishes_gradient = std::exchange(seen[it.id], std::uint8_t{1}) == 0;
      it.makes_gradient = it.finishes_gradient || is_tied;
    }
  }

  /// Groups with a gradient of two parts, if there is room for them beside the units of a pass.
  void mark_kept()
  {
    constexpr std::uint32_t of_a_pass = 3;
    is_kept_.assign(groups_.groups(), 0);
    for (const act& it : acts_)
      if (it.makes_gradient && !it.finishes_gradient)
        kept_ += std::exchange(is_kept_[it.id], std::uint8_t{1}) == 0 ? 1U : 0U;
    if (units_ >= kept_ + of_a_pass) return;
    is_kept_.assign(groups_.groups(), 0);
    kept_ = 0;
  }

  /// The content of a unit of gathered weights.
  struct unit_content {
    std::uint32_t group = nothing;
    std::uint32_t next = nothing;  ///< act that reads it next
    std::uint32_t free_from = 0;   ///< act after its last use
    bool is_kept = false;          ///< for a gradient that has begun
    bool is_ahead = false;         ///< until its first use
  };

  /// The groups that are there when the forward pass begins, each in a unit of its own: later ones in later units.
  void place_ahead(std::span<unit_content> units, std::uint32_t ahead) const
  {
    constexpr std::uint32_t of_a_pass = 3;
    if (units.size() <= kept_ + of_a_pass) return;
    ahead = std::min(ahead, static_cast<std::uint32_t>(units.size()) - kept_ - of_a_pass);
    std::vector<std::uint32_t> first;  // uses, one for each group
    std::vector<std::uint8_t> seen(groups_.groups(), 0);
    for (std::uint32_t index = 0; index < acts_.size() && acts_[index].kind != act_kind::backward; ++index)
      if (acts_[index].reads && std::exchange(seen[acts_[index].id], std::uint8_t{1}) == 0) first.push_back(index);
    const auto all = static_cast<std::uint32_t>(first.size());
    for (std::uint32_t unit = units_, group = all; group-- > 0;)
      if (sharding::is_gathered_ahead(group, all, ahead))
        units[--unit] = {acts_[first[group]].id, first[group], 0, false, true};
  }

  void mark_gathers(std::uint32_t ahead)
  {
    std::vector<std::uint32_t> next_read(acts_.size(), nothing);
    std::vector<std::uint32_t> next_of(groups_.groups(), nothing);
    for (std::size_t index = acts_.size(); index-- > 0;) {
      const act& it = acts_[index];
      if (it.kind != act_kind::use) continue;
      if (it.makes_gradient && !begins_to_keep(it)) next_of[it.id] = nothing;  // it takes the place of the weights
      if (!it.reads) continue;
      next_read[index] = next_of[it.id];
      next_of[it.id] = static_cast<std::uint32_t>(index);
    }
    std::vector<unit_content> units(units_);
    place_ahead(units, ahead);
    std::uint32_t last_unit = 0;
    std::uint32_t last_gather = 0;
    for (std::uint32_t index = 0; index < acts_.size(); ++index) {
      act& it = acts_[index];
      if (!it.reads && !(it.finishes_gradient && keeps(it.id))) continue;
      it.unit = unit_of(units, it.id, last_unit);
      unit_content& unit = units[it.unit];
      it.gathers = it.reads && unit.group != it.id;
      if (it.gathers) it.gathered_at = last_gather = std::max(unit.free_from, last_gather);
      it.is_ahead = unit.is_ahead;
      const bool is_kept = begins_to_keep(it) || (unit.is_kept && !it.finishes_gradient);
      unit = {is_kept || next_read[index] != nothing ? it.id : nothing, next_read[index], index + 1, is_kept, false};
      last_unit = it.unit;
    }
  }
  [[nodiscard]] bool begins_to_keep(const act& it) const noexcept
  {
    return it.makes_gradient && !it.finishes_gradient && keeps(it.id);
  }
  /// The unit that has this group, or the unit whose group is read again latest. Never the unit in use before, nor one
  /// that keeps a gradient or has a group of the step before.
  [[nodiscard]] static std::uint32_t unit_of(std::span<const unit_content> units, std::uint32_t group,
                                             std::uint32_t last) noexcept
  {
    std::uint32_t found = last;
    do found = (found + 1) % static_cast<std::uint32_t>(units.size());
    while (units[found].is_kept || units[found].is_ahead);
    for (std::uint32_t index = 0; index < units.size(); ++index) {
      if (units[index].group == group) return index;
      const bool is_better = units[index].next > units[found].next || (units[index].next == units[found].next &&
                                                                       units[index].free_from < units[found].free_from);
      if (index != last && !units[index].is_kept && !units[index].is_ahead && is_better) found = index;
    }
    return found;
  }

  const parameter_groups& groups_;
  std::uint32_t units_;
  layer_activations activations_;
  double per_nanosecond_;
  std::uint32_t leases_ = 0;
  std::uint32_t kept_ = 0;
  std::vector<std::uint8_t> is_kept_;  // by group
  std::vector<act> acts_;
};

}  // namespace planner

}  // namespace chunkmem::inline v0
