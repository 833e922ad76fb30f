// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpt {

/// The layers of one part of a pipeline. The first part has the embedding too, and the last one the head.
struct part_of_model {
  std::size_t first = 0;  ///< layer
  std::size_t count = 0;
  bool begins = false;
  bool ends = false;

  /// Parts whose numbers of layers differ by one at most. @pre part < parts, and parts <= layers
  [[nodiscard]] static constexpr part_of_model of(std::size_t part, std::size_t parts, std::size_t layers) noexcept
  {
    const std::size_t first = layers * part / parts;
    return {first, layers * (part + 1) / parts - first, part == 0, part + 1 == parts};
  }
};

/// The micro-batches that a part holds between their forward and their backward runs, each with activations of its own.
/// The number is a divisor of the batch where one is large enough, so that each batch uses the same tensors.
[[nodiscard]] inline std::uint32_t places_of_part(const chunkmem::pipeline::schedule& plan, std::uint32_t part)
{
  using enum chunkmem::pipeline::operation_kind;
  std::uint32_t held = 0;
  std::uint32_t most = 1;
  for (const chunkmem::pipeline::operation& step : plan.stages[plan.owners[part]]) {
    if (step.part != part) continue;
    if (step.kind == forward) most = std::max(most, ++held);
    if (step.kind == backward || step.kind == backward_weight) --held;
  }
  while (most < plan.micro_batches && plan.micro_batches % most != 0) ++most;
  return most;
}

/// Backward runs are divided in two: first the gradient of the input, later the gradients of the weights.
[[nodiscard]] inline bool divides_backward(const chunkmem::pipeline::schedule& plan)
{
  using enum chunkmem::pipeline::operation_kind;
  return std::ranges::any_of(plan.stages, [](const auto& steps) {
    return std::ranges::find(steps, backward_input, &chunkmem::pipeline::operation::kind) != steps.end();
  });
}

/// Declares one part: its weights once, and activations for `places` micro-batches.
///
/// The last part has a table of its own for the logits, a copy of the first part's table of tokens: both have number 0.
/// Where stages have replicas, each part is a unit of its own, so its gradients are summed after its last backward run.
/// Each table is a unit too: replicas divide both copies alike.
/// @param number   of the part, among `parts`   @param divides   as divides_backward
/// @return   a model for each micro-batch held; all of them have the same weights
template <class Manager>
[[nodiscard]] std::vector<model> declare_part(Manager& manager, const extents& size, chunkmem::dtype precision,
                                              std::uint32_t number, std::uint32_t parts, std::uint32_t places,
                                              bool divides)
{
  const part_of_model part = part_of_model::of(number, parts, size.layers);
  constexpr std::uint32_t weights_of_layer = 10;
  const auto of_layer = [](std::size_t layer) { return static_cast<std::uint32_t>(2 + weights_of_layer * layer); };
  model net;
  net.size = size;
  net.size.layers = part.count;
  detail::parameter_declaration<Manager> make{manager, net, precision};
  const auto enter_group = [&](std::uint32_t group) {
    if constexpr (requires { manager.shares(); }) make.group = chunkmem::group_id{group};
  };
  const auto table = [&](std::uint32_t group) {
    enter_group(group);
    const weight made = make.weight(vocabulary, size.width, 0.04f);
    enter_group(number);
    return made;
  };
  enter_group(number);
  if (part.begins) {
    net.token_table = table(parts);
    net.position_table = make.weight(size.context, size.width, 0.02f);
    manager.name(net.token_table, "token_table");
    manager.name(net.position_table, "position_table");
  }
  make.number = of_layer(part.first);
  for (std::size_t layer = 0; layer < part.count; ++layer) net.layers.push_back(detail::declare_weights(make, size));
  detail::name_layers(manager, net, part.first);
  if (part.ends) {
    make.number = of_layer(size.layers);
    net.final_norm = make.norm(size.width);
    make.number = 0;
    net.head_table = table(parts + 1);
    manager.name(net.final_norm, "final_norm");
    manager.name(net.head_table, "head_table");
  }
  std::vector<model> all(places, net);
  for (model& each : all) {
    declare_rows(manager, each);
    if (!divides || part.ends) continue;
    for (row_activations& row : each.rows)
      row.start = manager.template add<float>({size.context, size.width}, chunkmem::role::activation);
  }
  return all;
}

}  // namespace gpt
