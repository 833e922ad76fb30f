// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The seconds of a part on a kind of device, as a profile has them.
///
///     for (const measured_runs& it : part.measured) slowest = std::max(slowest, it.seconds.sum());
struct measured_runs {
  std::string kind;
  run_seconds seconds{};    ///< as measured, with the sums where the profile has them
  run_seconds computing{};  ///< without sums, by the rule of model_profile

  [[nodiscard]] bool operator==(const measured_runs&) const = default;
};

/// Products of one size, and how many of them the runs of a part have.
///
///     seconds += it.forward * it.flops / node.product_rate(it.flops);
struct product_runs {
  double flops = 0;  ///< of one product
  double forward = 0;
  double backward_input = 0;   ///< of the gradient of the input, with recomputation
  double backward_weight = 0;  ///< of the gradients of the weights

  [[nodiscard]] bool operator==(const product_runs&) const = default;
};

/// A part of the model on one rank: its work, and the bytes that a micro-batch keeps.
///
/// Its work is given in products, or in measured seconds for each kind of device.
///
///     for (const model_part& it : parts_of(shape, plan)) parameters += it.parameters;
struct model_part {
  std::uint64_t first_layer = 0;
  std::uint64_t layers = 0;
  std::vector<product_runs> products{};
  std::uint64_t parameters = 0;
  std::uint32_t all_reduces = 0;  ///< over the ranks that share layers, in a forward run; as many in a backward run
  bytes boundary{};               ///< of its output
  bytes summed{};                 ///< by each all-reduce
  bytes kept{};                   ///< by a forward run for its backward run, without the input
  bytes working{};                ///< in addition while it runs
  std::uint64_t tied = 0;         ///< parameters with a copy in another part; `parameters` counts them
  std::vector<measured_runs> measured{};  ///< by kind of device; empty: the work is that of the products
  bool measured_with_sums = false;        ///< measured seconds contain sums over ranks that share layers, inside a node

  /// The seconds of a kind of device. @throws config_error   the profile has no such kind
  [[nodiscard]] const measured_runs& measured_on(std::string_view kind) const
  {
    for (const measured_runs& it : measured)
      if (it.kind == kind) return it;
    throw config_error{error_text{} << "chunkmem: the profile has no times for nodes of the kind \"" << kind
                                    << "\" at this degree of tensor parallelism (measure them there)"};
  }
  /// The seconds of its runs on a device, without sums over ranks that share layers.
  [[nodiscard]] run_seconds computing_on(const cluster_node& node) const
  {
    if (!measured.empty()) return measured_on(node.kind).computing;
    run_seconds all;
    for (const product_runs& it : products) {
      const double seconds = it.flops / node.product_rate(it.flops);
      all += {it.forward * seconds, it.backward_input * seconds, it.backward_weight * seconds};
    }
    return all;
  }
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

/// The first unit of each part, and the number of units. Units are the layers of a shape, or the parts of a profile.
/// @pre the plan has been checked for this model
[[nodiscard]] inline std::vector<std::uint64_t> borders_of(const trained_model& model, const parallel_plan& plan)
{
  const std::uint64_t parts = plan.all_parts();
  const std::uint64_t units = model.units();
  std::vector<std::uint64_t> borders{0};
  borders.insert(borders.end(), plan.cuts.begin(), plan.cuts.end());
  if (plan.cuts.empty() && !model.profile)
    for (std::uint64_t part = 1; part < parts; ++part) borders.push_back(units * part / parts);
  if (plan.cuts.empty() && model.profile) {  // cuts after equal numbers of layers
    std::uint64_t layers = 0, before = 0, unit = 0;
    for (const profiled_part& it : model.profile->parts) layers += it.layers;
    for (std::uint64_t part = 1; part < parts; ++part) {
      const std::uint64_t room = units - (parts - part);  // each later part has at least one
      while (unit < room && (before < layers * part / parts || unit == borders.back()))
        before += model.profile->parts[unit++].layers;
      borders.push_back(unit);
    }
  }
  borders.push_back(units);
  return borders;
}

/// The weights of each part under a plan, as the profile has them. A part with both ends of a tie has its tensor once.
[[nodiscard]] inline std::vector<std::vector<std::uint64_t>> profiled_tensors(const trained_model& model,
                                                                              const parallel_plan& plan)
{
  const model_profile& profile = *model.profile;
  const std::vector<std::uint64_t> borders = borders_of(model, plan);
  std::vector<std::vector<std::uint64_t>> parts(plan.all_parts());
  for (std::size_t part = 0; part < parts.size(); ++part)
    for (std::uint64_t unit = borders[part]; unit < borders[part + 1]; ++unit)
      for (const std::uint64_t elements : profile.weights_of(unit, plan.tensor)) {
        const bool is_second = profile.tie && unit == profile.tie->last_part &&
                               profile.tie->is_within(borders[part], borders[part + 1]) &&
                               elements == profile.tie->share(plan.tensor);
        if (!is_second) parts[part].push_back(elements);
      }
  return parts;
}

/// The seconds of a part under a plan, for each kind of device that was measured at its degree.
[[nodiscard]] inline std::vector<measured_runs> measured_part(const model_profile& profile, const parallel_plan& plan,
                                                              std::uint64_t first, std::uint64_t end)
{
  std::vector<measured_runs> all;
  for (const std::string& kind : profile.kinds()) {
    if (!profile.has_times(kind, plan.tensor)) continue;
    const bool knows_alone = plan.tensor > 1 && profile.times_have_sums && profile.has_times(kind, 1);
    measured_runs it{.kind = kind};
    for (std::uint64_t unit = first; unit < end; ++unit) {
      it.seconds += profile.seconds(kind, unit, plan.tensor, plan.micro_batch);
      if (!knows_alone) continue;
      const run_seconds alone = profile.seconds(kind, unit, 1, plan.micro_batch);
      it.computing +=
          {alone.forward / plan.tensor, alone.backward_input / plan.tensor, alone.backward_weight / plan.tensor};
    }
    if (!knows_alone) it.computing = it.seconds;
    if (plan.recomputes)
      for (run_seconds* const runs : {&it.seconds, &it.computing}) runs->backward_input += runs->forward;
    all.push_back(std::move(it));
  }
  return all;
}

/// The parts of a profile under a plan.
[[nodiscard]] inline std::vector<model_part> profiled_parts(const trained_model& model, const parallel_plan& plan,
                                                            const std::vector<std::vector<std::uint64_t>>& tensors)
{
  const model_profile& profile = *model.profile;
  const std::vector<std::uint64_t> borders = borders_of(model, plan);
  std::vector<model_part> parts(plan.all_parts());
  std::uint64_t layers = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    model_part& it = parts[part];
    const std::uint64_t first = borders[part], end = borders[part + 1];
    const auto size = [&](std::vector<std::uint64_t> profiled_sizes::*which, std::uint64_t unit) {
      return profile.size(which, unit, plan.tensor, plan.micro_batch);
    };
    it.first_layer = layers;
    for (std::uint64_t unit = first; unit < end; ++unit) {
      layers += profile.parts[unit].layers;
      if (plan.tensor > 1 && profile.parts[unit].all_reduces > 0) {
        it.all_reduces += profile.parts[unit].all_reduces;
        it.summed = std::max(it.summed, size(&profiled_sizes::boundary, unit));
      }
      const bytes saved = size(&profiled_sizes::saved, unit), working = size(&profiled_sizes::transient, unit);
      if (unit > first) it.kept += size(&profiled_sizes::boundary, unit - 1);
      if (!plan.recomputes) it.kept += saved;
      it.working = std::max(it.working, plan.recomputes ? saved + working : working);
    }
    it.layers = layers - it.first_layer;
    it.boundary = size(&profiled_sizes::boundary, end - 1);
    it.parameters = std::accumulate(tensors[part].begin(), tensors[part].end(), std::uint64_t{0});
    it.measured = measured_part(profile, plan, first, end);
    it.measured_with_sums = profile.times_have_sums && plan.tensor > 1;
    if (!profile.tie || profile.tie->is_within(first, end)) continue;
    const auto has = [&](std::uint64_t unit) { return unit >= first && unit < end; };
    if (has(profile.tie->first_part) || has(profile.tie->last_part)) it.tied = profile.tie->share(plan.tensor);
  }
  return parts;
}

/// The products of a layer on each of `tensor` ranks: one for each operator, and one for each expert.
[[nodiscard]] inline std::vector<product_runs> products_of_layer(const workload::transformer_shape& shape,
                                                                 const workload::transformer_costs& costs,
                                                                 std::uint32_t tensor)
{
  using enum workload::transformer_operator;
  std::vector<product_runs> all;
  for (const auto which : {qkv, attention_scores, attention_values, projection, mlp_up, mlp_down}) {
    const workload::operator_cost& it = costs.of(which);
    const bool has_weights = which != attention_scores && which != attention_values;
    const double pieces =
        shape.experts > 0 && (which == mlp_up || which == mlp_down) ? static_cast<double>(shape.experts) : 1;
    const auto flops = static_cast<double>(it.forward_flops);
    const double backward = static_cast<double>(it.backward_flops + it.recomputed_flops) / flops;
    all.push_back({.flops = flops / pieces / tensor,
                   .forward = pieces,
                   .backward_input = pieces * (backward - (has_weights ? 1 : 0)),
                   .backward_weight = has_weights ? pieces : 0});
  }
  return all;
}

}  // namespace detail

/// The weights of each part on one of its ranks: the elements of each tensor, as `parts_of` counts them.
///
///     const std::uint64_t elements = tensors_of_parts(model, plan)[0][0];  // of the first tensor of the first part
///
/// @pre the plan has been checked for this model
/// @throws size_overflow   more elements than 64 bits can count
/// Cost: O(tensors)
[[nodiscard]] inline std::vector<std::vector<std::uint64_t>> tensors_of_parts(const trained_model& model,
                                                                              const parallel_plan& plan)
{
  using enum workload::transformer_operator;
  if (model.profile) return detail::profiled_tensors(model, plan);
  const workload::transformer_shape shape = model.shape_over(plan.tensor);
  const std::vector<std::uint64_t> borders = detail::borders_of(model, plan);
  std::vector<std::vector<std::uint64_t>> parts(plan.all_parts());
  std::vector<std::uint32_t> part_of_layer;
  for (std::uint32_t part = 0; part < parts.size(); ++part) part_of_layer.resize(borders[part + 1], part);
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

/// The parts of a model under a plan, as one rank of each has them. Parts have the layers between the plan's cuts; the
/// first one has the token and position embeddings, the last one the logits. A tied table is a copy on both. Bytes of
/// activations are those with dropout. For a model with a profile, times and bytes are those of the profile.
///
///     const std::vector<model_part> parts = parts_of(model, plan);
///     const bytes kept = parts.front().kept;  // by each micro-batch, from its forward to its backward run
///
/// @pre the plan has been checked for this model
/// @throws config_error    no such shape, or activations of no bytes
/// @throws size_overflow   FLOP or bytes beyond 64 bits
/// Cost: O(parts + tensors)
[[nodiscard]] inline std::vector<model_part> parts_of(const trained_model& model, const parallel_plan& plan)
{
  using enum workload::transformer_operator;
  const workload::transformer_shape shape = model.shape_over(plan.tensor);
  const std::uint32_t bytes_of_number = model.trainer.activation_bytes;
  model.trainer.check();
  const std::vector<std::vector<std::uint64_t>> tensors = tensors_of_parts(model, plan);
  if (model.profile) return detail::profiled_parts(model, plan, tensors);
  const workload::transformer_costs costs{shape,
                                          {.micro_batch = plan.micro_batch,
                                           .recomputes_layers = plan.recomputes,
                                           .fuses_attention = model.trainer.fuses_attention}};
  const std::vector<std::uint64_t> borders = detail::borders_of(model, plan);
  const std::uint32_t tensor = plan.tensor;
  const std::vector<product_runs> products = detail::products_of_layer(shape, costs, tensor);
  std::vector<model_part> parts(plan.all_parts());
  for (std::uint64_t part = 0; part < parts.size(); ++part) {
    model_part& it = parts[part];
    it.first_layer = borders[part];
    it.layers = borders[part + 1] - it.first_layer;
    const auto layers = static_cast<double>(it.layers);
    for (const product_runs& of_layer : products)
      it.products.push_back({of_layer.flops, layers * of_layer.forward, layers * of_layer.backward_input,
                             layers * of_layer.backward_weight});
    it.parameters = std::accumulate(tensors[part].begin(), tensors[part].end(), std::uint64_t{0});
    it.all_reduces = tensor == 1 ? 0 : static_cast<std::uint32_t>(2 * it.layers);
    it.boundary = it.summed = costs.checkpoint();
    it.kept = plan.recomputes ? costs.checkpoint() * (it.layers - 1)
                              : detail::kept_by_layer(costs, tensor) * it.layers - costs.checkpoint();
    it.working = plan.recomputes ? detail::kept_by_layer(costs, tensor) + costs.layer().working : costs.layer().working;
    if (part + 1 < parts.size()) continue;
    it.products.push_back({.flops = static_cast<double>(costs.of(logits).forward_flops) / tensor,
                           .forward = 1,
                           .backward_input = 1,
                           .backward_weight = 1});
    if (shape.ties_embedding && parts.size() > 1) parts.front().tied = it.tied = tensors.back().back();
    it.kept += costs.of(final_norm).kept + costs.of(logits).kept + bytes{costs.of(loss).kept.count() / tensor};
  }
  for (model_part& it : parts)
    for (bytes* const size : {&it.boundary, &it.summed, &it.kept, &it.working})
      *size = bytes{(checked{size->count()} * bytes_of_number).value() / sizeof(std::uint16_t)};
  return parts;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
