// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_step_state.hpp>
#include <chunkmem/optimizer/element_rows.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

/// `parameter_bytes` in 88 bytes: what a kernel carries to a device. The pointers are the device's.
///
///     const device_parameter it{.value = value, .gradient = gradient, .elements = elements};
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
  for (std::size_t index = 0; index < all.list_count; ++index) {
    const list_bytes& list = all.lists[index];
    addresses |= reinterpret_cast<std::uintptr_t>(list.data);
    if (list.use == list_use::master) {
      it.master = list.data;
      continue;
    }
    it.states[states] = list.data;
    it.state_types[states] = list.type;
    it.state_lists[states++] = static_cast<std::uint8_t>(index);
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

namespace detail {

/// The update of one parameter, with all that its rows share: what one thread works with.
template <class Work, class Factors, row_order Order>
class prepared_update {
 public:
  CHUNKMEM_HOST_DEVICE prepared_update(const device_parameter& it, const device_step_state& state,
                                       const Factors& factors, std::uint64_t seed, float limit) noexcept
      : it_{it},
        how_{state.factor, limit},
        work_{factors},
        key_{seed, state.number + 1, it.tensor, 0},
        updates_{state.decision == step_decision::update}
  {
  }

  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const place_type place{index, it_.elements};
    if (place.count == 0) return;
    const bool is_wide = Order == row_order::neighbours && it_.is_aligned && place.count == row_length<Order>;
    if (updates_)
      update(place, is_wide, std::make_index_sequence<Work::states>{});
    else
      leave(place, is_wide);
  }

 private:
  using place_type = row_place<Order>;
  using raw_type = raw_row<Order>;
  using floats_type = row_floats<Order>;

  template <std::size_t... States>
  CHUNKMEM_HOST_DEVICE void update(place_type place, bool is_wide, std::index_sequence<States...>) const noexcept
  {
    const bool from_master = it_.master != nullptr && !it_.fresh_master;
    const dtype type = from_master ? dtype::float32 : it_.value_type;
    const raw_type slopes = load_row(it_.gradient, it_.gradient_type, place, is_wide);
    const raw_type stored = load_row(from_master ? it_.master : it_.value, type, place, is_wide);
    [[maybe_unused]] const raw_type lists[] = {load_row(it_.states[States], it_.state_types[States], place, is_wide)...,
                                               raw_type{}};
    const floats_type gradient = transformed_row(widened(slopes, it_.gradient_type, is_wide));
    floats_type parameter = widened(stored, type, is_wide);
    floats_type states[] = {widened(lists[States], it_.state_types[States], is_wide)..., floats_type{}};
    for (std::uint32_t index = 0; index < row_length<Order>; ++index)
      work_.one(parameter.at[index], gradient.at[index], states[States].at[index]...);
    (store_state(States, place, is_wide, states[States]), ...);
    if (it_.master != nullptr) store_row(it_.master, dtype::float32, place, is_wide, parameter, nearest_rounding{});
    if (it_.master != nullptr || it_.value_type == dtype::float32)
      store_row(it_.value, it_.value_type, place, is_wide, parameter, nearest_rounding{});
    else
      store_random(it_.value, it_.value_type, value_stream, place, is_wide, parameter);
  }

  /// What a skipped step does all the same: a master is not fresh afterwards, and a weight is not a gradient.
  CHUNKMEM_HOST_DEVICE void leave(place_type place, bool is_wide) const noexcept
  {
    if (it_.fresh_master) {
      const raw_type stored = load_row(it_.value, it_.value_type, place, is_wide);
      store_row(it_.master, dtype::float32, place, is_wide, widened(stored, it_.value_type, is_wide),
                nearest_rounding{});
    } else if (it_.is_overwritten) {
      const raw_type stored = load_row(it_.master, dtype::float32, place, is_wide);
      store_row(it_.value, it_.value_type, place, is_wide, widened(stored, dtype::float32, is_wide),
                nearest_rounding{});
    }
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE floats_type transformed_row(const floats_type& wide) const noexcept
  {
    floats_type all;
    if (strict_fp::is_less(0.0F, how_.limit)) {
      for (std::uint32_t index = 0; index < row_length<Order>; ++index)
        all.at[index] = transformed<true>(how_, wide.at[index]);
    } else {
      for (std::uint32_t index = 0; index < row_length<Order>; ++index)
        all.at[index] = transformed<false>(how_, wide.at[index]);
    }
    return all;
  }

  CHUNKMEM_HOST_DEVICE void store_state(std::size_t which, place_type place, bool is_wide,
                                        const floats_type& values) const noexcept
  {
    if (is_16_bit(it_.state_types[which]))
      store_random(it_.states[which], it_.state_types[which], it_.state_lists[which], place, is_wide, values);
    else
      store_row(it_.states[which], dtype::float32, place, is_wide, values, nearest_rounding{});
  }

  CHUNKMEM_HOST_DEVICE void store_random(std::byte* data, dtype type, std::uint32_t list, place_type place,
                                         bool is_wide, const floats_type& values) const noexcept
  {
    if constexpr (Order == row_order::by_counter) {
      const chunkmem::detail::rounding_stream stream{{key_.seed, key_.step, key_.tensor, list}};
      store_row(data, type, place, is_wide, values, stochastic_rounding<Order>{stream, place});
    }
  }

  const device_parameter& it_;
  gradient_transform how_;
  Work work_;
  rounding_key key_;
  bool updates_;
};

}  // namespace detail

/// The update of one parameter on a device: the bits of `update_parameter`, decided by what lies in device memory.
///
/// Where the state says "skip", a fresh master is made and an overwritten value is made again; nothing else changes.
/// Cost: the traffic of `update_parameter`; four elements at a time where all addresses are multiples of 16 and nothing
/// is rounded stochastically, else element by element, neighbours by neighbouring threads.
///
/// @tparam Work    arithmetic of one element, made from the factors
/// @tparam Order   by_counter where `rounds_stochastically(parameter)`
template <class Work, class Factors, row_order Order>
class update_kernel {
 public:
  /// @param state, factors   in device memory
  update_kernel(const device_parameter& parameter, const device_step_state* state, const Factors* factors,
                std::uint64_t seed, float limit) noexcept
      : parameter_{parameter}, state_{state}, factors_{factors}, seed_{seed}, limit_{limit}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return detail::row_place<Order>::rows_of(parameter_.elements);
  }

  /// To be used while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE auto prepared() const noexcept
  {
    return detail::prepared_update<Work, Factors, Order>{parameter_, *state_, *factors_, seed_, limit_};
  }

 private:
  device_parameter parameter_;
  const device_step_state* state_;
  const Factors* factors_;
  std::uint64_t seed_;
  float limit_;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
