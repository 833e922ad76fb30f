// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A part of a pass that works with the parameters of one group.
///
///     for (const group_use& it : groups.stage(0)) std::cout << it.group << ": " << it.forward_flops << '\n';
struct group_use {
  std::uint32_t group = 0;
  std::uint64_t forward_flops = 0;
  std::uint64_t backward_flops = 0;
  bool is_tied = false;  ///< of the head: the embedding's table, whose gradient has a second part
};

/// The parameters of a transformer, cut into groups in the order of construction, and the order in which a pass uses
/// them.
///
/// On one rank a group is a tensor, as the manager has it. Over ranks a group is one chunk of each rank. A rank gathers
/// the whole group before it computes with it (ZeRO-3 on chunks, PatrickStar, Fang et al. 2021, arXiv 2108.05818).
/// Tensors are cut there wherever a group ends. A pass goes through stages: the embedding, each layer, the head. Inside
/// a stage the order of use is the order of construction. FLOP lie with the matrix that they multiply. The FLOP of
/// attention lie with the last group of queries, keys and values. A tied table is used at both ends. Cost: O(tensors +
/// groups), 24 B for each use.
///
/// Use:
///
///     const parameter_groups groups = groups_of(shape, setup, share, settings);
///     const training_script script{groups, setup.recomputes_layers, flops_per_second};
class parameter_groups {
 public:
  /// A group for each tensor, in the order of workload::tensors_of.
  /// @throws config_error   no such shape or micro-batch
  parameter_groups(const workload::transformer_shape& shape, const workload::training_setup& setup)
      : costs_{shape, setup}, has_logits_{setup.has_logits}, recomputes_{setup.recomputes_layers}
  {
    for (const workload::transformer_tensor& declared : workload::tensors_of(shape))
      ends_.push_back(elements() + declared.elements());
    lay_out(shape);
  }
  /// Groups of equal size. @param elements   of a group: all ranks together
  /// @throws config_error   no such shape or micro-batch, a group of no elements, or more than 2^31 groups
  parameter_groups(const workload::transformer_shape& shape, const workload::training_setup& setup,
                   std::uint64_t elements)
      : costs_{shape, setup}, has_logits_{setup.has_logits}, recomputes_{setup.recomputes_layers}
  {
    const std::uint64_t all = workload::parameters_of(shape);
    if (elements == 0 || all / elements >= UINT32_MAX / 2)
      throw config_error{error_text{} << "chunkmem: " << all << " parameters cannot be cut into groups of " << elements
                                      << " elements (give at least 1, and larger ones for large models)"};
    ends_.reserve((all + elements - 1) / elements);
    while (this->elements() < all) ends_.push_back(this->elements() + std::min(elements, all - this->elements()));
    lay_out(shape);
  }

  [[nodiscard]] const workload::transformer_costs& costs() const noexcept { return costs_; }
  [[nodiscard]] std::uint64_t elements() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  [[nodiscard]] std::uint32_t groups() const noexcept { return static_cast<std::uint32_t>(ends_.size()); }
  /// The elements of a group, of all ranks together.
  [[nodiscard]] std::uint64_t elements_of(std::uint32_t group) const noexcept
  {
    return ends_[group] - (group == 0 ? 0 : ends_[group - 1]);
  }

  [[nodiscard]] std::uint32_t stages() const noexcept { return static_cast<std::uint32_t>(begins_.size() - 1); }
  /// The groups that a stage uses, in the order of the forward pass. Stage 0 is the embedding, the last stage the head.
  [[nodiscard]] std::span<const group_use> stage(std::uint32_t index) const noexcept
  {
    return std::span{uses_}.subspan(begins_[index], begins_[index + 1] - begins_[index]);
  }

 private:
  void lay_out(const workload::transformer_shape& shape)
  {
    const auto tensors = workload::tensors_of(shape);
    std::vector<std::size_t> of_head;
    std::vector<std::uint64_t> offsets;
    std::uint64_t offset = 0;
    begins_.push_back(0);
    bool in_layers = false;
    std::uint64_t layer = 0;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      const workload::transformer_tensor& declared = tensors[index];
      offsets.push_back(offset);
      offset += declared.elements();
      if (declared.part >= workload::transformer_operator::final_norm) {
        of_head.push_back(index);
        continue;
      }
      const bool is_layer = workload::is_in_layer(declared.part);
      if (is_layer && (!in_layers || declared.layer != layer)) begin_stage();
      in_layers = is_layer;
      layer = declared.layer;
      use(declared, offsets[index], multiplies(shape, tensors, index));
      sample(tensors, index);
      if (declared.part == workload::transformer_operator::qkv) attend(tensors, index);
    }
    begin_stage();
    for (const std::size_t index : of_head) use(tensors[index], offsets[index], multiplies(shape, tensors, index));
    if (shape.ties_embedding && has_logits_) use(tensors.front(), 0, true, true);
    begin_stage();
  }
  void begin_stage() { begins_.push_back(uses_.size()); }

  /// A matrix that the stream is multiplied with: no table of the embedding, no vector.
  [[nodiscard]] bool multiplies(const workload::transformer_shape& shape,
                                std::span<const workload::transformer_tensor> all, std::size_t index) const noexcept
  {
    if (all[index].part == workload::transformer_operator::logits) return has_logits_;
    if (all[index].part != workload::transformer_operator::embedding) return all[index].columns > 1;
    const bool is_last = index + 1 == all.size() || all[index + 1].part != workload::transformer_operator::embedding;
    return shape.projects_embedding() && is_last;
  }

  void use(const workload::transformer_tensor& declared, std::uint64_t offset, bool multiplies, bool is_tied = false)
  {
    const std::uint64_t end = offset + declared.elements();
    for (auto group = std::ranges::upper_bound(ends_, offset); offset < end; ++group) {
      const std::uint64_t part = std::min(end, *group) - offset;
      const std::uint64_t flops = multiplies ? 2 * costs_.tokens() * part : 0;
      const std::uint64_t of_weight = multiplies ? 2 * costs_.rows_of(declared.part) * part : 0;
      add({static_cast<std::uint32_t>(group - ends_.begin()), flops, flops + of_weight, is_tied});
      offset += part;
    }
  }
  /// After the last tensor of an operator whose input is sampled: the passes over rows.
  void sample(std::span<const workload::transformer_tensor> all, std::size_t index)
  {
    if (index + 1 < all.size() && all[index + 1].part == all[index].part) return;
    const auto& passes = costs_.passes_of(all[index].part);
    if (passes.forward > 0) add({uses_.back().group, passes.forward, passes.backward});
  }
  /// After the last matrix of queries, keys and values.
  void attend(std::span<const workload::transformer_tensor> all, std::size_t index)
  {
    if (index + 1 < all.size() && all[index + 1].part == workload::transformer_operator::qkv) return;
    for (const auto which :
         {workload::transformer_operator::attention_scores, workload::transformer_operator::attention_values}) {
      const workload::operator_cost& cost = costs_.of(which);
      // Work that a fused kernel does again on its way back, in addition to a layer that runs forward again.
      const std::uint64_t again = cost.recomputed_flops - (recomputes_ ? cost.forward_flops : 0);
      add({uses_.back().group, cost.forward_flops, cost.backward_flops + again});
    }
  }
  void add(const group_use& it)
  {
    if (uses_.size() == begins_.back() || uses_.back().group != it.group) return uses_.push_back(it);
    uses_.back().forward_flops += it.forward_flops;
    uses_.back().backward_flops += it.backward_flops;
    uses_.back().is_tied |= it.is_tied;
  }

  workload::transformer_costs costs_;
  bool has_logits_;
  bool recomputes_;
  std::vector<std::uint64_t> ends_;  // of groups: elements up to there
  std::vector<group_use> uses_;
  std::vector<std::size_t> begins_;
};

}  // namespace planner

}  // namespace chunkmem::inline v0
