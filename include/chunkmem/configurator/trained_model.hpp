// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/planned_optimizer.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace chunkmem::inline v0 {

namespace configurator {

/// How ranks sum gradients, and gather weights.
enum class sum_route : std::uint8_t {
  ring,    ///< each rank sends to the next one, as NCCL does
  direct,  ///< each rank sends to all other ranks concurrently, as `collective::mpi` does
};

/// The traits of a trainer, besides the shape of its model.
///
///     const trainer_traits in_single_precision{.activation_bytes = 4, .sums = sum_route::direct};
struct trainer_traits {
  std::uint32_t activation_bytes = 2;  ///< of a number between layers, and of those that runs keep
  sum_route sums = sum_route::ring;
  std::uint32_t weight_bytes = 2;     ///< 2, with additional masters of 4; or 4, without masters
  std::uint32_t gradient_bytes = 2;   ///< of a gradient element that replicas sum: 2 or 4, and not below `weight_bytes`
  std::uint32_t tied_bytes = 2;       ///< of a gradient element that copies of a tied table sum
  bool fuses_attention = true;        ///< scores are never stored
  optimizer::listed_states states{};  ///< of the optimizer; an update has the bytes of these
  bool hides_sums = false;            ///< sums of ZeRO 0 and 1 overlap the last backward run, layer by layer

  /// @throws config_error   a number has a size that no trainer has
  constexpr void check() const
  {
    if (activation_bytes == 0) throw config_error{"a trainer whose activations have 0 bytes (give 2, or 4)"};
    const auto is_size = [](std::uint32_t size) { return size == 2 || size == 4; };
    if (!is_size(weight_bytes) || !is_size(gradient_bytes) || !is_size(tied_bytes) || gradient_bytes < weight_bytes)
      throw config_error{
          "a trainer whose weights or gradients have a size that none has (give weight_bytes and tied_bytes 2 or 4, "
          "and gradient_bytes as many as weight_bytes, or 4)"};
    states.check();
  }
};

/// A model, and the trainer that trains it.
///
///     const step_latency latency{whole, trained_model{shape, {.activation_bytes = 4}}};
///
/// For a trainer with the default traits, the shape is enough. A model with a profile has the parts, times and bytes of
/// the profile, and needs no shape: its plans are cut between parts of the profile.
struct trained_model {
  trained_model(const workload::transformer_shape& of, const trainer_traits& by = {}) : shape{of}, trainer{by} {}
  /// @throws config_error   the profile is invalid
  explicit trained_model(model_profile measured, const trainer_traits& by = {},
                         const workload::transformer_shape& of = {})
      : shape{of}, trainer{by}, profile{std::move(measured)}
  {
    profile->check();
  }

  /// Pieces between which a plan can be cut: layers of the shape, or parts of the profile.
  [[nodiscard]] std::uint64_t units() const noexcept { return profile ? profile->parts.size() : shape.layers; }
  /// Whether this many ranks can share each layer: they divide its heads, or the degree was measured. With more ranks
  /// than key-value heads, each rank has a copy of one such head, and all heads have equally many copies.
  [[nodiscard]] bool has_degree(std::uint32_t tensor) const
  {
    if (profile) return profile->has_degree(tensor);
    return shape.heads % tensor == 0 && (shape.kv_heads % tensor == 0 || tensor % shape.kv_heads == 0);
  }
  /// The shape with a head of keys and values for each rank at least. `tensor` ranks have equal shares of it.
  /// @pre has_degree(tensor)
  [[nodiscard]] workload::transformer_shape shape_over(std::uint32_t tensor) const
  {
    workload::transformer_shape whole = shape;
    if (whole.kv_heads > 0)
      whole.kv_heads = std::max<std::uint64_t>(whole.kv_heads, tensor);  // else none has the shape
    return whole;
  }

  workload::transformer_shape shape;
  trainer_traits trainer;
  std::optional<model_profile> profile{};
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
