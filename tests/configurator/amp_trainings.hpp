// SPDX-License-Identifier: Apache-2.0
// The trainings that AMP measured, described to this library by the constants of amp_rules.hpp.
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/transformer.hpp>

#include "amp_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace amp_trainings {

using namespace chunkmem;
using namespace chunkmem::configurator;

/// A row of a file of measured trainings.
struct measured_training {
  std::vector<std::uint64_t> cut;  ///< the first part of each stage, and the number of parts
  std::uint64_t micro_batch = 1;
  std::uint32_t tensor = 1;
  std::uint32_t replicas = 1;
  std::uint32_t stages = 1;
  double seconds = 0;  ///< infinite: it failed

  [[nodiscard]] bool failed() const noexcept { return seconds == std::numeric_limits<double>::infinity(); }
};

/// A kind of node, as amp_rules has it.
struct node_rules {
  std::string kind;
  double port_bits = 0;
  double inside_bits = 0;
  double inside_latency = 0;
  double memory_rate = 0;
  std::uint64_t device_bytes = 0;
};

[[nodiscard]] inline node_rules t4_node()
{
  using namespace amp_rules;
  return {"t4", t4_port_bits, t4_inside_bits, t4_inside_latency, t4_memory_rate, t4_bytes};
}
[[nodiscard]] inline node_rules v100_node()
{
  using namespace amp_rules;
  return {"v100", v100_port_bits, v100_inside_bits, v100_inside_latency, v100_memory_rate, std::uint64_t{16} << 30};
}

/// The rules that a prediction can do without, to see what each is worth.
struct switches {
  bool profile = true;  ///< off: FLOP of layers, at 8.1 TFLOP/s
  bool cuts = true;     ///< off: stages with equal numbers of layers
  bool sums_are_measured = true;
  bool splits_sums = true;  ///< off: version 1, a backward run takes twice a forward run
  bool ports = true;
  bool latency = true;
  bool tie = true;
  bool wide_sums = true;  ///< off: gradients of 2 bytes
  bool halves = true;     ///< off: float32 throughout, as in version 2
  bool updates = true;
  bool hides_sums = amp_rules::hides_sums;
};

/// Four nodes of four devices each. Also for nodes that differ.
[[nodiscard]] inline cluster cluster_of(std::span<const node_rules> nodes, const switches& rules = {})
{
  using namespace amp_rules;
  cluster whole{.name = "AMP", .nodes{}, .links = link_matrix{static_cast<std::uint32_t>(nodes.size())}};
  for (const node_rules& it : nodes) {
    cluster_node node{.kind = it.kind,
                      .devices = devices_of_node,
                      .device_bytes = bytes{it.device_bytes},
                      .host_bytes = bytes{std::uint64_t{192} << 30},
                      .device_flops_per_second = 8.1e12,   // of a T4, where no profile is used
                      .to_device_bytes_per_second = 12e9,  // nothing is on the host
                      .to_host_bytes_per_second = 12e9,
                      .host_memory_bytes_per_second = 100e9,
                      .host_updates_per_second = 1e9,
                      .device_updates_per_second = rules.updates ? it.memory_rate / bytes_of_update : 1e14};
    if (rules.ports && ports_are_shared)
      node.port_out_bytes_per_second = node.port_in_bytes_per_second = it.port_bits * bytes_of_bit;
    node.inner_links = inside_is_shared ? link_sharing::shared : link_sharing::pairs;
    whole.nodes.push_back(node);
  }
  for (std::uint32_t from = 0; from < nodes.size(); ++from)
    for (std::uint32_t to = 0; to < nodes.size(); ++to) {
      const double bits = from == to ? nodes[from].inside_bits : std::min(nodes[from].port_bits, nodes[to].port_bits);
      const double latency = from == to ? nodes[from].inside_latency : network_latency;
      whole.links(from, to) = {rules.latency ? latency : 0, bits * bytes_of_bit};
    }
  return whole;
}

[[nodiscard]] inline workload::transformer_shape gpt2_shape()
{
  using namespace amp_rules;
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .ffn = 4 * hidden,
          .vocabulary = vocabulary,
          .embedding = hidden,
          .positions = amp_rules::sequence,
          .sequence = amp_rules::sequence,
          .ties_embedding = ties_table};
}
[[nodiscard]] inline trainer_traits traits(const switches& rules = {})
{
  using namespace amp_rules;
  if (!rules.halves)
    return {.activation_bytes = 4,
            .weight_bytes = 4,
            .gradient_bytes = 4,
            .tied_bytes = 4,
            .fuses_attention = fuses_attention,
            .hides_sums = rules.hides_sums};
  return {.activation_bytes = bytes_of_activation,
          .sums = sum_route::ring,
          .weight_bytes = bytes_of_weight,
          .gradient_bytes = rules.wide_sums ? bytes_of_gradient_in_sums : 2,
          .tied_bytes = bytes_of_tied_gradient,
          .fuses_attention = fuses_attention,
          .hides_sums = rules.hides_sums};
}

/// The forward seconds of one row in each part.
[[nodiscard]] inline std::vector<double> read_forward_seconds(const std::string& path)
{
  std::ifstream in{path};
  std::string line;
  std::vector<double> all;
  for (std::getline(in, line); std::getline(in, line);) all.push_back(std::stod(line.substr(line.find(',') + 1)));
  if (all.size() != amp_rules::parts) throw std::runtime_error{path + " has not 30 parts"};
  return all;
}

/// Forward seconds of a kind of device, for one tensor-parallel degree.
struct forward_seconds {
  std::string kind;
  std::uint32_t tensor = 1;
  std::vector<double> of_parts;
};

/// Weights and bytes of the 30 parts on one of `tensor` ranks, from the shape.
inline void add_bytes(model_profile& profile, std::uint32_t tensor, const switches& rules)
{
  using namespace amp_rules;
  const trained_model by_shape{gpt2_shape(), traits(rules)};
  const std::vector<model_part> of_layers =
      parts_of(by_shape, {.tensor = tensor, .stages = static_cast<std::uint32_t>(layers)});
  const model_part& layer = of_layers[1];
  const std::uint64_t stream = layer.boundary.count();
  const std::uint64_t of_logits = by_shape.trainer.activation_bytes * amp_rules::sequence * vocabulary / tensor;
  profiled_weights weights{.tensor = tensor, .elements = std::vector<std::vector<std::uint64_t>>(parts)};
  for (const workload::transformer_tensor& it : workload::tensors_of(by_shape.shape)) {
    std::size_t part = parts - 3;  // the final norm
    if (it.part == workload::transformer_operator::embedding) part = embedding_part;
    if (workload::is_in_layer(it.part)) part = first_layer_part + it.layer;
    weights.elements[part].push_back(configurator::detail::share_of(it, tensor));
  }
  weights.elements[logits_part].push_back(weights.elements[embedding_part].front());
  profiled_sizes sizes{.tensor = tensor, .rows = rows_of_profile};
  for (std::uint32_t part = 0; part < parts; ++part) {
    const bool is_layer = part >= first_layer_part && part < first_layer_part + layers;
    const bool is_logits = part == logits_part;
    sizes.saved.push_back(is_layer ? layer.kept.count() : is_logits ? (of_layers.back().kept - layer.kept).count() : 0);
    sizes.boundary.push_back(part < logits_part ? stream : of_logits);
    sizes.transient.push_back(is_layer ? layer.working.count() : is_logits ? of_logits : 0);
  }
  profile.weights.push_back(std::move(weights));
  profile.sizes.push_back(std::move(sizes));
}

/// A profile of AMP's GPT-2 from the seconds of some kinds of devices.
[[nodiscard]] inline model_profile profile_of(std::span<const forward_seconds> measured, const switches& rules = {})
{
  using namespace amp_rules;
  model_profile profile{.name = "AMP GPT-2",
                        .input_of_row = bytes{4 * amp_rules::sequence},
                        .times_have_sums = times_have_sums && rules.sums_are_measured,
                        .parts = {}};
  for (std::uint32_t part = 0; part < parts; ++part) {
    const bool is_layer = part >= first_layer_part && part < first_layer_part + layers;
    profile.parts.push_back(
        {.name = "part " + std::to_string(part), .layers = is_layer ? 1U : 0U, .all_reduces = is_layer ? 2U : 0U});
  }
  for (const forward_seconds& it : measured) {
    const bool is_new = std::ranges::none_of(profile.sizes, [&](const auto& of) { return of.tensor == it.tensor; });
    if (is_new) add_bytes(profile, it.tensor, rules);
    profiled_times times{.kind = it.kind, .tensor = it.tensor, .rows = rows_of_profile};
    for (const double forward : it.of_parts)
      times.of_parts.push_back({forward, backward_computing * forward / 2, backward_computing * forward / 2});
    profile.times.push_back(std::move(times));
  }
  if (ties_table && rules.tie) profile.tie = profiled_tie{embedding_part, logits_part, vocabulary * hidden};
  static_assert(backward_computing == 2 && backward_sums == 1);  // as with_backward_runs has it
  return rules.splits_sums ? with_backward_runs(profile) : profile;
}

[[nodiscard]] inline std::vector<measured_training> read_trainings(const std::string& path)
{
  std::ifstream in{path};
  std::string line;
  std::vector<measured_training> all;
  for (std::getline(in, line); std::getline(in, line);) {
    std::vector<std::string> last;  // five columns behind the cut
    for (int column = 0; column < 5; ++column) {
      const std::size_t comma = line.rfind(',');
      last.insert(last.begin(), line.substr(comma + 1));
      line.resize(comma);
    }
    measured_training it;
    for (const char* at = line.c_str(); *at != 0;) {
      char* end = nullptr;
      const auto number = std::strtoul(at, &end, 10);
      if (end != at) it.cut.push_back(number);
      at = end == at ? at + 1 : end;
    }
    it.micro_batch = std::stoul(last[0]);
    it.tensor = static_cast<std::uint32_t>(std::stoul(last[1]));
    it.replicas = static_cast<std::uint32_t>(std::stoul(last[2]));
    it.stages = static_cast<std::uint32_t>(std::stoul(last[3]));
    it.seconds = std::stod(last[4]);  // "inf" too
    if (it.cut.size() != it.stages + std::size_t{1} || it.cut.front() != 0 || it.cut.back() != amp_rules::parts)
      throw std::runtime_error{path + " has a cut that is none"};
    all.push_back(std::move(it));
  }
  return all;
}

/// The plan of a training.
[[nodiscard]] inline parallel_plan plan_of(const measured_training& it, const switches& rules = {})
{
  using namespace amp_rules;
  parallel_plan plan{.tensor = it.tensor,
                     .stages = it.stages,
                     .replicas = it.replicas,
                     .micro_batch = it.micro_batch,
                     .micro_batches = static_cast<std::uint32_t>(rows_of_batch / it.replicas / it.micro_batch),
                     .recomputes = recomputes,
                     .zero = zero};
  for (std::size_t stage = 1; rules.cuts && stage < it.stages; ++stage)
    plan.cuts.push_back(rules.profile ? it.cut[stage] : it.cut[stage] - first_layer_part);
  for (std::uint32_t replica = 0; replica < it.replicas; ++replica)
    for (std::uint32_t stage = 0; stage < it.stages; ++stage)
      for (std::uint32_t member = 0; member < it.tensor; ++member)
        plan.devices.push_back(device_of(it.tensor, it.replicas, stage, replica, member));
  return plan;
}

}  // namespace amp_trainings
