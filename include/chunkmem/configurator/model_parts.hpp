// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// A part of the model on one rank: its work, and the bytes that a micro-batch keeps.
///
///     for (const model_part& it : parts_of(shape, plan)) parameters += it.parameters;
struct model_part {
  std::uint64_t first_layer = 0;
  std::uint64_t layers = 0;
  double forward_flops = 0;          ///< [FLOP]
  double backward_input_flops = 0;   ///< of the gradient of the input, with what is computed again
  double backward_weight_flops = 0;  ///< of the gradients of the weights
  std::uint64_t parameters = 0;
  std::uint32_t all_reduces = 0;  ///< over the ranks that share layers, in a forward run; as many in a backward run
  bytes boundary{};               ///< of its output, and of what an all-reduce adds up
  bytes kept{};                   ///< by a forward run for its backward run, without the input
  bytes working{};                ///< in addition while it runs
};

namespace detail {

/// Bytes that a layer keeps on each of `tensor` ranks. Inputs of norms and of the first products, and masks of dropout
/// are whole on each; the rest is divided. Source: Korthikanti et al. 2022 (arXiv 2205.05198), without sequence
/// parallelism.
[[nodiscard]] inline bytes kept_by_layer(const workload::transformer_costs& costs, std::uint32_t tensor)
{
  const std::uint64_t stream = costs.checkpoint().count();
  const std::uint64_t masks = 2 * costs.dropout_mask().count();
  const std::uint64_t whole = 4 * stream + masks;  // two norms, two first products, two masks
  return bytes{whole + (costs.layer().kept.count() - whole) / tensor};
}

/// Parameters of a tensor on each of `tensor` ranks: matrices are divided, vectors are not.
[[nodiscard]] inline std::uint64_t share_of(const workload::transformer_tensor& it, std::uint32_t tensor)
{
  return it.columns == 1 ? it.elements() : (it.elements() + tensor - 1) / tensor;
}

}  // namespace detail

/// The weights of each part on one rank of it, in elements: those that `parts_of` counts. @throws size_overflow
/// Cost: O(tensors)
[[nodiscard]] inline std::vector<std::vector<std::uint64_t>> tensors_of_parts(const workload::transformer_shape& shape,
                                                                              const parallel_plan& plan)
{
  using enum workload::transformer_operator;
  std::vector<std::vector<std::uint64_t>> parts(plan.all_parts());
  std::vector<std::uint32_t> part_of_layer;
  for (std::uint32_t part = 0; part < parts.size(); ++part)
    part_of_layer.resize(shape.layers * (part + std::uint64_t{1}) / parts.size(), part);
  std::uint64_t table = 0;
  for (const workload::transformer_tensor& it : workload::tensors_of(shape)) {
    const std::uint64_t share = detail::share_of(it, plan.tensor);
    if (it.part == embedding && table == 0) table = share;
    if (workload::is_in_layer(it.part))
      parts[part_of_layer[it.layer]].push_back(share);
    else
      (it.part == embedding ? parts.front() : parts.back()).push_back(share);
  }
  if (shape.ties_embedding && parts.size() > 1) parts.back().push_back(table);
  return parts;
}

/// The parts of a model under a plan, as one rank of each has them. Parts have as equal numbers of layers as there are;
/// the first one has the tables of tokens and positions, the last one the logits. A tied table is a copy on both.
/// Bytes of activations are those of a fused attention, with dropout.
/// @throws config_error   no such shape, or activations of no bytes; size_overflow   FLOP or bytes that 64 bits do not
///   count
/// Cost: O(parts + tensors)
[[nodiscard]] inline std::vector<model_part> parts_of(const trained_model& model, const parallel_plan& plan)
{
  using enum workload::transformer_operator;
  const workload::transformer_shape& shape = model.shape;
  const std::uint32_t bytes_of_number = model.trainer.activation_bytes;
  if (bytes_of_number == 0) throw config_error{"a trainer whose activations have 0 bytes (give 2, or 4)"};
  const workload::transformer_costs costs{
      shape, {.micro_batch = plan.micro_batch, .recomputes_layers = plan.recomputes, .fuses_attention = true}};
  const std::uint32_t tensor = plan.tensor;
  const workload::operator_cost& layer = costs.layer();
  double weighted = 0;  // forward work of a layer that has weights: their gradients take as much
  for (const auto which : {qkv, projection, mlp_up, mlp_down})
    weighted += static_cast<double>(costs.of(which).forward_flops);
  const std::vector<std::vector<std::uint64_t>> tensors = tensors_of_parts(shape, plan);
  std::vector<model_part> parts(plan.all_parts());
  for (std::uint64_t part = 0; part < parts.size(); ++part) {
    model_part& it = parts[part];
    it.first_layer = shape.layers * part / parts.size();
    it.layers = shape.layers * (part + 1) / parts.size() - it.first_layer;
    const auto layers = static_cast<double>(it.layers);
    it.forward_flops = layers * static_cast<double>(layer.forward_flops);
    it.backward_weight_flops = layers * weighted;
    it.backward_input_flops =
        layers * (static_cast<double>(layer.backward_flops) + static_cast<double>(layer.recomputed_flops) - weighted);
    it.parameters = std::accumulate(tensors[part].begin(), tensors[part].end(), std::uint64_t{0});
    it.all_reduces = tensor == 1 ? 0 : static_cast<std::uint32_t>(2 * it.layers);
    it.boundary = costs.checkpoint();
    it.kept = plan.recomputes ? costs.checkpoint() * (it.layers - 1)
                              : detail::kept_by_layer(costs, tensor) * it.layers - costs.checkpoint();
    it.working = plan.recomputes ? detail::kept_by_layer(costs, tensor) + layer.working : layer.working;
    if (part + 1 < parts.size()) continue;
    const auto head = static_cast<double>(costs.of(logits).forward_flops);
    it.forward_flops += head;
    it.backward_weight_flops += head;
    it.backward_input_flops += static_cast<double>(costs.of(logits).backward_flops) - head;
    it.kept += costs.of(final_norm).kept + costs.of(logits).kept + bytes{costs.of(loss).kept.count() / tensor};
  }
  for (model_part& it : parts) {
    for (bytes* const size : {&it.boundary, &it.kept, &it.working})
      *size = bytes{(checked{size->count()} * bytes_of_number).value() / sizeof(std::uint16_t)};
    it.forward_flops /= tensor;
    it.backward_input_flops /= tensor;
    it.backward_weight_flops /= tensor;
  }
  return parts;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
