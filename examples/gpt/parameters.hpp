// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "element.hpp"
#include "extents.hpp"
#include "fnv.hpp"
#include "random.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gpt {

/// The first values of a parameter.
enum class start : std::uint8_t {
  random,  ///< uniform around zero with the deviation given
  zero,    ///< biases
  norm,    ///< {gain, bias} of a layer norm: ones, then zeros
};

/// A tensor of the model, whose element type is known when the program runs.
struct weight : chunkmem::tensor_handle {
  chunkmem::dtype type = chunkmem::dtype::float32;
  std::uint64_t elements = 0;
  bool is_trained = true;  ///< false: the weight is frozen, and has no gradient

  /// @pre   `Element` is the element type of its declaration
  template <class Element>
  [[nodiscard]] constexpr chunkmem::tensor<Element> as() const noexcept
  {
    return {static_cast<const chunkmem::tensor_handle&>(*this)};
  }
};

/// A tensor of the model and its first values.
struct parameter {
  weight tensor;
  start from = start::zero;
  float deviation = 0.0f;
  std::uint32_t number = 0;  ///< in the whole model, also where a stage has a part; copies of a tied weight share it
};

/// Two narrow matrices of a frozen one: x * down * up is added to its product (Hu et al. 2021, arXiv 2106.09685).
struct adapter {
  weight down, up;       ///< [inputs, rank] and [rank, outputs]; up is zero at first
  std::size_t rank = 0;  ///< 0: there is none
};

/// The weights of one layer. Products are row vectors times [inputs, outputs]; a norm is {gain, bias}.
struct layer_weights {
  weight attention_norm, qkv, qkv_bias, projection, projection_bias;
  weight mlp_norm, expand, expand_bias, contract, contract_bias;
  adapter beside_qkv, beside_projection, beside_expand, beside_contract;
};

/// Handles of all tensors of a model, without data.
struct parameter_set {
  extents size;
  weight token_table, position_table, final_norm;
  weight head_table;  ///< table of the logits: the table of tokens, or a copy of it on another stage
  std::vector<layer_weights> layers;
  std::vector<parameter> parameters;  ///< all of them, in the order they were declared
};

namespace detail {

/// Adds tensors to a manager and lists them. With adapters all other weights are frozen.
template <class Manager>
struct parameter_declaration {
  static constexpr std::uint32_t first_adapter = 1U << 20U;  ///< above the numbers of all other parameters

  Manager& manager;
  parameter_set& net;
  chunkmem::dtype precision;
  std::uint32_t number = 0;  ///< of the next one
  chunkmem::group_id group{0};
  std::uint32_t next_adapter = first_adapter;

  gpt::weight weight(std::uint64_t inputs, std::uint64_t outputs, float deviation)
  {
    return declared({inputs, outputs}, start::random, deviation);
  }
  gpt::weight bias(std::uint64_t outputs) { return declared({outputs}, start::zero, 0.0f); }
  gpt::weight norm(std::uint64_t width) { return declared({2, width}, start::norm, 0.0f); }
  /// None where all weights are trained.
  gpt::adapter adapter(std::uint64_t inputs, std::uint64_t outputs)
  {
    const std::uint64_t rank = net.size.adapter_rank;
    if (rank == 0) return {};
    const float deviation = 1.0f / std::sqrt(static_cast<float>(inputs));
    const gpt::weight down = add({inputs, rank}, start::random, deviation, chunkmem::role::parameter, next_adapter++);
    const gpt::weight up = add({rank, outputs}, start::zero, 0.0f, chunkmem::role::parameter, next_adapter++);
    return {down, up, rank};
  }

 private:
  gpt::weight declared(const chunkmem::shape& size, start from, float deviation)
  {
    const bool is_frozen = net.size.adapter_rank > 0;
    return add(size, from, deviation, is_frozen ? chunkmem::role::frozen : chunkmem::role::parameter, number++);
  }
  gpt::weight add(const chunkmem::shape& size, start from, float deviation, chunkmem::role part, std::uint32_t which)
  {
    const chunkmem::tensor_handle handle = with_element(precision, [&](auto element) -> chunkmem::tensor_handle {
      return manager.template add<decltype(element)>(size, part, group);
    });
    net.parameters.push_back(
        {{handle, precision, size.elements(), part == chunkmem::role::parameter}, from, deviation, which});
    return net.parameters.back().tensor;
  }
};

template <class Manager>
layer_weights declare_weights(parameter_declaration<Manager>& make, const extents& size)
{
  const std::uint64_t width = size.width;
  const float deviation = 0.02f;
  const float residual = deviation / std::sqrt(2.0f * static_cast<float>(size.layers));
  layer_weights layer;
  layer.attention_norm = make.norm(width);
  layer.qkv = make.weight(width, 3 * width, deviation);
  layer.qkv_bias = make.bias(3 * width);
  layer.beside_qkv = make.adapter(width, 3 * width);
  layer.projection = make.weight(width, width, residual);
  layer.projection_bias = make.bias(width);
  layer.beside_projection = make.adapter(width, width);
  layer.mlp_norm = make.norm(width);
  layer.expand = make.weight(width, 4 * width, deviation);
  layer.expand_bias = make.bias(4 * width);
  layer.beside_expand = make.adapter(width, 4 * width);
  layer.contract = make.weight(4 * width, width, residual);
  layer.contract_bias = make.bias(width);
  layer.beside_contract = make.adapter(4 * width, width);
  return layer;
}

/// Names for files: the name of a weight, with the number of its layer. @param first   number of the first layer
template <class Manager>
void name_layers(Manager& manager, const parameter_set& net, std::size_t first = 0)
{
  for (std::size_t index = 0; index < net.layers.size(); ++index) {
    const layer_weights& it = net.layers[index];
    const auto name = [&](const weight& which, const char* what) {
      manager.name(which, "layers." + std::to_string(first + index) + '.' + what);
    };
    name(it.attention_norm, "attention_norm");
    name(it.qkv, "qkv"), name(it.qkv_bias, "qkv_bias");
    name(it.projection, "projection"), name(it.projection_bias, "projection_bias");
    name(it.mlp_norm, "mlp_norm");
    name(it.expand, "expand"), name(it.expand_bias, "expand_bias");
    name(it.contract, "contract"), name(it.contract_bias, "contract_bias");
    const auto name_adapter = [&](const adapter& which, const std::string& what) {
      if (which.rank == 0) return;
      name(which.down, (what + "_down").c_str());
      name(which.up, (what + "_up").c_str());
    };
    name_adapter(it.beside_qkv, "qkv"), name_adapter(it.beside_projection, "projection");
    name_adapter(it.beside_expand, "expand"), name_adapter(it.beside_contract, "contract");
  }
}

}  // namespace detail

/// Declares all tensors in the order of their use, with their names.
/// @param precision   what weights are stored in: float32, bfloat16 or float16
template <class Manager>
void declare_parameters(Manager& manager, parameter_set& net, const extents& size, chunkmem::dtype precision)
{
  net.size = size;
  detail::parameter_declaration<Manager> make{manager, net, precision};
  net.token_table = make.weight(vocabulary, size.width, 0.04f);
  net.position_table = make.weight(size.context, size.width, 0.02f);
  for (std::size_t layer = 0; layer < size.layers; ++layer) net.layers.push_back(detail::declare_weights(make, size));
  net.final_norm = make.norm(size.width);
  net.head_table = net.token_table;
  if constexpr (requires { manager.name(net.final_norm, ""); }) {
    manager.name(net.token_table, "token_table");
    manager.name(net.position_table, "position_table");
    manager.name(net.final_norm, "final_norm");
    detail::name_layers(manager, net);
  }
}

/// Where the calling thread reads and writes weights: on the device, if the thread can access its memory.
template <class Manager>
inline constexpr chunkmem::memory_location reachable =
    Manager::engine_type::host_addressable ? chunkmem::memory_location::device : chunkmem::memory_location::host;

/// The first value of one number of a parameter.
[[nodiscard]] inline float first_value(const parameter& each, const counter_random& random, std::uint64_t i)
{
  const float uniform_deviation = std::sqrt(1.0f / 12.0f);
  switch (each.from) {
    case start::random: return (random.uniform(i) - 0.5f) * (each.deviation / uniform_deviation);
    case start::norm: return i < each.tensor.elements / 2 ? 1.0f : 0.0f;
    default: return 0.0f;
  }
}

/// Gives every parameter its first values, which depend only on the seed and on the index of each number, and are
/// rounded to nearest for 16 bits.
/// @param begun   called once, when the first parameter is writable: the manager has allocated its memory then
template <class Manager, chunkmem::executor Executor = chunkmem::serial, std::invocable Begun = void (*)()>
void fill(
    Manager& manager, const parameter_set& net, std::uint64_t seed, Executor&& workers = {}, Begun&& begun = [] {})
{
  constexpr std::size_t piece = std::size_t{1} << 16;  // numbers that a thread fills at once
  for (const parameter& each : net.parameters) {
    const counter_random random{seed, stream::weights + each.number};
    with_element(each.tensor.type, [&](auto element) {
      using stored = decltype(element);
      const auto pin = manager.acquire(each.tensor.template as<stored>(), chunkmem::access::write, reachable<Manager>);
      if (&each == net.parameters.data()) begun();
      if constexpr (!Manager::engine_type::has_bytes) return;
      const auto values = pin.span();
      workers.run(static_cast<unsigned>((values.size() + piece - 1) / piece), [&](unsigned part) {
        const std::size_t end = std::min(values.size(), (part + 1) * piece);
        for (std::size_t i = part * piece; i < end; ++i)
          values[i] = chunkmem::round_to<stored>(first_value(each, random, i));
      });
    });
  }
}

/// A hash of all parameters, byte for byte in the order they were declared.
template <class Manager>
[[nodiscard]] std::uint64_t hash_of_parameters(Manager& manager, const parameter_set& net)
{
  fnv1a hash;
  for (const parameter& each : net.parameters) {
    with_element(each.tensor.type, [&](auto element) {
      const auto pin =
          manager.acquire(each.tensor.template as<decltype(element)>(), chunkmem::access::read, reachable<Manager>);
      if constexpr (Manager::engine_type::has_bytes) hash.add_words(std::as_bytes(pin.span()));
    });
  }
  return hash.value();
}

}  // namespace gpt
