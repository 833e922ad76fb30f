// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/picture_network.hpp>
#include <chunkmem/workload/picture_operator.hpp>

#include <cstdint>
#include <limits>
#include <string_view>

namespace chunkmem::inline v0 {

namespace workload {

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
/// that they make. A concatenation is among them, though it computes nothing: 1 stands for its index.
[[nodiscard]] constexpr std::uint64_t element_flops(const picture_operator& layer) noexcept
{
  if (is_product(layer.kind)) return 0;
  if (layer.kind == picture_operator_kind::batch_norm) return 4 * layer.output_elements;
  const bool pools = layer.kind == picture_operator_kind::max_pool || layer.kind == picture_operator_kind::average_pool;
  return pools ? layer.input_elements : layer.output_elements;
}

/// Seconds that the forward pass of an operator takes for one picture of a large batch, by formula.
///
/// The time is that of all FLOP, plus that of the output's way: written once, and read once by the next operator.
/// Weights are read once for a whole batch and not counted. The formula is a model, not a measurement: use measured
/// times where you have some. Cost: O(1), no allocation.
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
[[nodiscard]] inline double forward_seconds(const picture_network& network, const picture_device& device)
{
  double seconds = 0;
  for (const picture_operator& layer : network.operators) seconds += forward_seconds(layer, device);
  return seconds;
}

/// Seconds that the backward pass of an operator takes for one picture: twice the forward pass.
///
/// The first convolution takes less, since it makes one gradient; the difference is not counted.
///
/// @throws config_error   a rate of the device is not a finite number above 0
[[nodiscard]] constexpr double backward_seconds(const picture_operator& layer, const picture_device& device)
{
  return 2 * forward_seconds(layer, device);
}

}  // namespace workload

}  // namespace chunkmem::inline v0
