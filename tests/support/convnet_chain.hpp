// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <support/convnets.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace support::pictures {

using namespace chunkmem;
using namespace chunkmem::activation;

/// Bytes of an element of a tensor: float32.
inline constexpr std::uint64_t picture_element_bytes = 4;

/// The rates that a device sustains, not its peak.
///
///     const picture_device v100{.flops_per_second = 0.6 * 15.7e12, .bytes_per_second = 700e9};
struct picture_device {
  double flops_per_second = 0;  ///< [FLOP/s]
  double bytes_per_second = 0;  ///< [B/s] of the device's own memory

  [[nodiscard]] constexpr bool operator==(const picture_device&) const noexcept = default;

  /// @throws config_error   a rate is not a finite number above 0
  constexpr void check() const
  {
    check_rate("flops_per_second", flops_per_second);
    check_rate("bytes_per_second", bytes_per_second);
  }

 private:
  static constexpr void check_rate(std::string_view member, double rate)
  {
    if (rate > 0 && rate <= std::numeric_limits<double>::max()) return;
    throw config_error{error_text{} << "chunkmem: no device has " << member << " = " << rate
                                    << " (give it a finite number above 0)"};
  }
};

/// FLOP of an operator that is no matrix product; 0 of any other.
///
/// A batch norm has 4 for each element. A pool has 1 for each element that it reads. All others have 1 for each element
/// that they make. A concatenation computes nothing, but also has 1, for its index.
[[nodiscard]] constexpr std::uint64_t element_flops(const picture_operator& layer) noexcept
{
  if (is_product(layer.kind)) return 0;
  if (layer.kind == picture_operator_kind::batch_norm) return 4 * layer.output_elements;
  const bool pools = layer.kind == picture_operator_kind::max_pool || layer.kind == picture_operator_kind::average_pool;
  return pools ? layer.input_elements : layer.output_elements;
}

/// Seconds of the forward pass of an operator for one picture of a large batch, by formula.
///
/// The time is that of all FLOP, plus that of the output's bytes: written once, and read once by the next operator.
/// Weights are read once for a whole batch and not counted. The formula is a model, not a measurement: use measured
/// times if you have them. Cost: O(1), no allocation.
///
///     const double seconds = forward_seconds(layer, {.flops_per_second = 9.4e12, .bytes_per_second = 700e9});
///
/// @throws config_error   a rate of the device is not a finite number above 0
[[nodiscard]] constexpr double forward_seconds(const picture_operator& layer, const picture_device& device)
{
  device.check();
  const double flops = static_cast<double>(layer.forward_flops) + static_cast<double>(element_flops(layer));
  const double moved = 2 * static_cast<double>(picture_element_bytes) * static_cast<double>(layer.output_elements);
  return flops / device.flops_per_second + moved / device.bytes_per_second;
}

/// Seconds of a whole forward pass for one picture. @throws config_error as for an operator
[[nodiscard]] inline double forward_seconds(const convnet& network, const picture_device& device)
{
  double seconds = 0;
  for (const picture_operator& layer : network.operators) seconds += forward_seconds(layer, device);
  return seconds;
}

/// Seconds of the backward pass of an operator for one picture: twice the forward pass.
///
/// The first convolution takes less, since it computes one gradient; the difference is not counted.
///
/// @throws config_error   a rate of the device is not a finite number above 0
[[nodiscard]] constexpr double backward_seconds(const picture_operator& layer, const picture_device& device)
{
  return 2 * forward_seconds(layer, device);
}

/// Whether the backward pass of an operator of this kind reads the operator's input.
[[nodiscard]] constexpr bool keeps_input(picture_operator_kind kind) noexcept
{
  using enum picture_operator_kind;
  return is_product(kind) || kind == batch_norm || kind == max_pool;
}

namespace detail {

/// Operators from one cut of a network to the next.
class picture_block {
 public:
  picture_block(const picture_device& device, std::uint64_t pictures)
      : device_{device}, pictures_{pictures}, element_{picture_element_bytes * pictures}
  {
  }

  void add(const picture_operator& layer)
  {
    const double pictures = static_cast<double>(pictures_);
    if (block_.boundary == bytes{}) block_.reads_input = keeps_input(layer.kind);
    block_.forward_seconds += pictures * forward_seconds(layer, device_);
    block_.backward_seconds += pictures * backward_seconds(layer, device_);
    block_.saved += layer.saved_elements * element_;
    if (layer.is_carried) block_.saved -= layer.output_elements * element_;
    block_.boundary = block_.gradient = layer.output_elements * element_;
    block_.carried = std::max(block_.carried, layer.carried_elements * element_);
  }

  [[nodiscard]] chain_block finish(std::size_t last)
  {
    block_.name = "operators up to " + std::to_string(last);
    block_.passing_working = block_.inner();
    return std::exchange(block_, {});
  }

 private:
  const picture_device& device_;
  std::uint64_t pictures_;
  bytes element_;
  chain_block block_;
};

}  // namespace detail

/// A convolutional network as a chain: a block between each two places where it can be cut.
///
/// A network is not cut before a ReLU, which works in place, nor after a concatenation, whose parts are kept. A carried
/// tensor stays on the device until the backward run of the block that made it. A run that saves nothing holds the
/// whole block until it ends. The gradient of an output has the size of the output. Workspace is not counted: subtract
/// it from the budget.
///
///     const layer_chain chain = chain_of(resnet(50), {9.42e12, 700e9}, 256);
///
/// @param  pictures   of a batch
/// @throws config_error   a rate of the device is no finite number above 0; size_overflow
[[nodiscard]] inline layer_chain chain_of(const convnet& network, const picture_device& device, std::uint64_t pictures)
{
  using kind = picture_operator_kind;
  layer_chain chain;
  if (network.operators.empty()) return chain;
  chain.input = network.operators.front().input_elements * bytes{picture_element_bytes * pictures};
  detail::picture_block block{device, pictures};
  for (std::size_t index = 0; index < network.operators.size(); ++index) {
    const picture_operator& layer = network.operators[index];
    block.add(layer);
    const bool is_last = index + 1 == network.operators.size();
    const bool may_cut = layer.ends_block && layer.kind != kind::concatenation;
    if (is_last || (may_cut && network.operators[index + 1].kind != kind::relu))
      chain.blocks.push_back(block.finish(index));
  }
  return chain;
}

}  // namespace support::pictures
