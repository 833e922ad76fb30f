// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// `parameter_bytes` in 88 bytes: what a body carries to a device. The pointers are the device's.
struct device_parameter {
  std::byte* value = nullptr;
  const std::byte* gradient = nullptr;
  std::byte* master = nullptr;        ///< or none
  std::byte* states[max_lists] = {};  ///< in the order of the kernel's lists, without the master
  std::uint64_t elements = 0;
  std::uint32_t tensor = 0;
  dtype value_type = dtype::float32;
  dtype gradient_type = dtype::float32;
  dtype state_types[max_lists] = {};
  std::uint8_t state_lists[max_lists] = {};  ///< which list each is: a part of the keys of stochastic rounding
  bool fresh_master = false;
  bool is_overwritten = false;  ///< the gradient has the bytes of the value, which a skipped step makes again
  bool is_aligned = false;      ///< all addresses are multiples of 16
};

static_assert(sizeof(device_parameter) == 88);

/// @param is_overwritten   the gradient lies in the bytes of the value
/// @pre   the bytes fit a kernel, as `update_parameter` wants it
[[nodiscard]] inline device_parameter on_device(const parameter_bytes& all, bool is_overwritten) noexcept
{
  device_parameter it;
  it.value = all.value;
  it.gradient = all.gradient;
  it.elements = all.elements;
  it.tensor = all.tensor;
  it.value_type = all.value_type;
  it.gradient_type = all.gradient_type;
  it.fresh_master = all.fresh_master;
  it.is_overwritten = is_overwritten;
  auto addresses = reinterpret_cast<std::uintptr_t>(all.value) | reinterpret_cast<std::uintptr_t>(all.gradient);
  std::size_t states = 0;
  for (std::size_t at = 0; at < all.list_count; ++at) {
    const list_bytes& list = all.lists[at];
    addresses |= reinterpret_cast<std::uintptr_t>(list.data);
    if (list.use == list_use::master) {
      it.master = list.data;
      continue;
    }
    it.states[states] = list.data;
    it.state_types[states] = list.type;
    it.state_lists[states++] = static_cast<std::uint8_t>(at);
  }
  it.is_aligned = addresses % 16 == 0;
  return it;
}

/// Whether an update rounds anything by random bits: 16-bit states, or a 16-bit value without a master.
[[nodiscard]] constexpr bool rounds_stochastically(const device_parameter& it) noexcept
{
  bool any = is_16_bit(it.value_type) && it.master == nullptr;
  for (const dtype type : it.state_types) any = any || is_16_bit(type);
  return any;
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
