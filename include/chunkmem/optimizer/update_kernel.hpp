// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/numerics.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/rounding_bits.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The bytes of `loss_scale::bytes()`, which a device updates.
struct loss_scale_state {
  std::uint64_t updates = 0;
  std::uint64_t skips = 0;
  float scale = 1.0F;
  std::uint32_t in_a_row = 0;
};

/// The progress of a device's steps: written in device memory, and copied to the host on request.
///
///     device_step_state state;
///     std::memcpy(&state, copied, sizeof state);
struct device_step_state {
  std::uint64_t number = 0;  ///< of the last complete update
  loss_scale_state loss;     ///< counts with a loss scale and without
  gradient_measure total;    ///< of the gradients of this step, where a measure is needed
  double norm = 0.0;         ///< of the gradients, unscaled
  float factor = 1.0F;       ///< of the gradients
  step_decision decision = step_decision::open;
};

static_assert(std::is_trivially_copyable_v<device_step_state> && sizeof(device_step_state) == 72);

namespace detail {

inline constexpr std::uint32_t row_length = 4;

/// The elements of one call: contiguous, fewer at the end of a tensor. A thread has 16 bytes of float32 at a time, and
/// the accesses of a warp are coalesced.
struct row_place {
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static constexpr std::uint64_t rows_of(std::uint64_t elements) noexcept
  {
    return (elements + row_length - 1) / row_length;
  }

  CHUNKMEM_HOST_DEVICE constexpr row_place(std::uint64_t index, std::uint64_t elements) noexcept
      : first{index * row_length}
  {
    const std::uint64_t left = first < elements ? elements - first : 0;
    count = left < row_length ? static_cast<std::uint32_t>(left) : row_length;
  }

  std::uint64_t first;
  std::uint32_t count;
};

/// Bits of elements as they are stored: a word for each, or two of 16 bits in a word where they are packed. They are
/// converted later, so that no load waits for another.
struct raw_row {
  std::uint32_t word[row_length];
};

struct row_floats {
  float at[row_length];
};

/// `Size` bytes from or to an address that is a multiple of it.
template <std::size_t Size>
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline void copy_aligned(void* to, const void* from) noexcept
{
  __builtin_memcpy(__builtin_assume_aligned(to, Size), __builtin_assume_aligned(from, Size), Size);
}

/// @pre float32, bfloat16 or float16
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint64_t size_of_real(dtype type) noexcept
{
  return is_16_bit(type) ? 2 : 4;
}

/// Words that are loaded and stored at once.
template <std::size_t Count>
struct alignas(4 * Count) word_group {
  std::uint32_t word[Count];
};

template <std::size_t Count>
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline void load_words(std::uint32_t* words, const std::byte* from) noexcept
{
  word_group<Count> all;
  copy_aligned<4 * Count>(&all, from);
  for (std::size_t index = 0; index < Count; ++index) words[index] = all.word[index];
}
template <std::size_t Count>
[[gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline void store_words(std::byte* to, const std::uint32_t* words) noexcept
{
  word_group<Count> all;
  for (std::size_t index = 0; index < Count; ++index) all.word[index] = words[index];
  copy_aligned<4 * Count>(to, &all);
}

/// @param is_wide   four contiguous elements inside the tensor, at an address that is a multiple of 16
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline raw_row load_row(const std::byte* data, dtype type, row_place place,
                                                           bool is_wide) noexcept
{
  raw_row raw{};
  if (is_wide) {
    const std::byte* const from = data + place.first * size_of_real(type);
    if (is_16_bit(type))
      load_words<2>(raw.word, from);
    else
      load_words<4>(raw.word, from);
  } else if (is_16_bit(type)) {
    for (std::uint32_t index = 0; index < row_length; ++index) {
      std::uint16_t half = 0;
      if (index < place.count) copy_aligned<2>(&half, data + 2 * (place.first + index));
      raw.word[index] = half;
    }
  } else {
    for (std::uint32_t index = 0; index < row_length; ++index)
      if (index < place.count) copy_aligned<4>(&raw.word[index], data + 4 * (place.first + index));
  }
  return raw;
}

/// The elements in single precision.
/// @param is_packed   the row was loaded wide
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline row_floats widened(const raw_row& raw, dtype type, bool is_packed) noexcept
{
  row_floats wide;
  for (std::uint32_t index = 0; index < row_length; ++index) {
    const std::uint32_t packed = raw.word[index / 2] >> (index % 2 * 16);
    const auto half = static_cast<std::uint16_t>(is_packed ? packed : raw.word[index]);
    if (type == dtype::bfloat16)
      wide.at[index] = to_float(bf16::from_bits(half));
    else if (type == dtype::float16)
      wide.at[index] = to_float(fp16::from_bits(half));
    else
      wide.at[index] = bits_as<float>(raw.word[index]);
  }
  return wide;
}

/// Rounds to nearest.
struct nearest_rounding {
  template <class Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE Element rounded(float value, std::uint32_t) const noexcept
  {
    return round_to<Element>(value);
  }
};

/// Rounds by random bits of the elements from `first` on. @tparam Source   of the bits: a rounding_source
template <class Source>
struct stochastic_rounding {
  template <class Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE Element rounded(float value, std::uint32_t index) const noexcept
  {
    return round_stochastic<Element>(value, source.bits_of(first + index));
  }

  Source source;
  std::uint64_t first;
};

template <class Element, class Rounding>
CHUNKMEM_HOST_DEVICE inline void store_halves(std::byte* data, row_place place, bool is_wide, const row_floats& values,
                                              const Rounding& how) noexcept
{
  if (is_wide) {
    std::uint32_t words[2];
    for (std::uint32_t index = 0; index < 2; ++index) {
      const std::uint32_t high = how.template rounded<Element>(values.at[2 * index + 1], 2 * index + 1).bits();
      words[index] = how.template rounded<Element>(values.at[2 * index], 2 * index).bits() | high << 16U;
    }
    return store_words<2>(data + 2 * place.first, words);
  }
  for (std::uint32_t index = 0; index < row_length; ++index) {
    const Element half = how.template rounded<Element>(values.at[index], index);
    if (index < place.count) copy_aligned<2>(data + 2 * (place.first + index), &half);
  }
}

/// Stores a row; `how` rounds 16-bit elements.
template <class Rounding>
CHUNKMEM_HOST_DEVICE inline void store_row(std::byte* data, dtype type, row_place place, bool is_wide,
                                           const row_floats& values, const Rounding& how) noexcept
{
  if (type == dtype::bfloat16) return store_halves<bf16>(data, place, is_wide, values, how);
  if (type == dtype::float16) return store_halves<fp16>(data, place, is_wide, values, how);
  if (is_wide) {
    std::uint32_t words[4];
    for (std::uint32_t index = 0; index < 4; ++index) words[index] = bits_as<std::uint32_t>(values.at[index]);
    return store_words<4>(data + 4 * place.first, words);
  }
  for (std::uint32_t index = 0; index < row_length; ++index)
    if (index < place.count) copy_aligned<4>(data + 4 * (place.first + index), &values.at[index]);
}

}  // namespace detail

/// `parameter_bytes` in 88 bytes, as a kernel argument. The pointers are device pointers.
///
///     const device_parameter it{.value = value, .gradient = gradient, .elements = elements};
struct device_parameter {
  std::byte* value = nullptr;
  const std::byte* gradient = nullptr;
  std::byte* master = nullptr;        ///< or none
  std::byte* states[max_lists] = {};  ///< in the order of the kernel's lists, without the master
  std::uint64_t elements = 0;
  std::uint32_t tensor = 0;
  std::uint32_t first_block = 0;  ///< number of the block of 4,096 elements at which these begin
  dtype value_type = dtype::float32;
  dtype gradient_type = dtype::float32;
  dtype state_types[max_lists] = {};
  std::uint8_t state_lists[max_lists] = {};  ///< the number of each list: a part of the keys of stochastic rounding
  bool fresh_master = false;
  bool is_overwritten = false;  ///< the gradient has the bytes of the value, which a skipped step makes again
  bool is_aligned = false;      ///< all addresses are multiples of 16
};

static_assert(sizeof(device_parameter) == 88);

/// @param is_overwritten   the gradient lies in the bytes of the value
/// @pre   the bytes fit a kernel, as for `update_parameter`
[[nodiscard]] inline device_parameter on_device(const parameter_bytes& all, bool is_overwritten) noexcept
{
  device_parameter it;
  it.value = all.value;
  it.gradient = all.gradient;
  it.elements = all.elements;
  it.first_block = static_cast<std::uint32_t>(all.first / detail::update_grain);
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

namespace detail {

/// The update of one parameter in one thread, with the numbers that its rows share.
template <class Work, class Factors>
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
    const row_place place{index, it_.elements};
    if (place.count == 0) return;
    const bool is_wide = it_.is_aligned && place.count == row_length;
    if (updates_)
      update(place, is_wide, std::make_index_sequence<Work::states>{});
    else
      leave(place, is_wide);
  }

 private:
  template <std::size_t... States>
  CHUNKMEM_HOST_DEVICE void update(row_place place, bool is_wide, std::index_sequence<States...>) const noexcept
  {
    const bool from_master = it_.master != nullptr && !it_.fresh_master;
    const dtype type = from_master ? dtype::float32 : it_.value_type;
    const raw_row slopes = load_row(it_.gradient, it_.gradient_type, place, is_wide);
    const raw_row stored = load_row(from_master ? it_.master : it_.value, type, place, is_wide);
    [[maybe_unused]] const raw_row lists[] = {load_row(it_.states[States], it_.state_types[States], place, is_wide)...,
                                              raw_row{}};
    const row_floats gradient = transformed_row(widened(slopes, it_.gradient_type, is_wide));
    row_floats parameter = widened(stored, type, is_wide);
    row_floats states[] = {widened(lists[States], it_.state_types[States], is_wide)..., row_floats{}};
    for (std::uint32_t index = 0; index < row_length; ++index)
      work_.one(parameter.at[index], gradient.at[index], states[States].at[index]...);
    (store_state(States, place, is_wide, states[States]), ...);
    if (it_.master != nullptr) store_row(it_.master, dtype::float32, place, is_wide, parameter, nearest_rounding{});
    if (it_.master != nullptr || it_.value_type == dtype::float32)
      store_row(it_.value, it_.value_type, place, is_wide, parameter, nearest_rounding{});
    else
      store_random(it_.value, it_.value_type, value_stream, place, is_wide, parameter);
  }

  /// The part of a skipped step that always runs: makes a fresh master, and a value that its gradient overwrote.
  CHUNKMEM_HOST_DEVICE void leave(row_place place, bool is_wide) const noexcept
  {
    if (it_.fresh_master) {
      const raw_row stored = load_row(it_.value, it_.value_type, place, is_wide);
      store_row(it_.master, dtype::float32, place, is_wide, widened(stored, it_.value_type, is_wide),
                nearest_rounding{});
    } else if (it_.is_overwritten) {
      const raw_row stored = load_row(it_.master, dtype::float32, place, is_wide);
      store_row(it_.value, it_.value_type, place, is_wide, widened(stored, dtype::float32, is_wide),
                nearest_rounding{});
    }
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE row_floats transformed_row(const row_floats& wide) const noexcept
  {
    row_floats all;
    if (strict_fp::is_less(0.0F, how_.limit)) {
      for (std::uint32_t index = 0; index < row_length; ++index)
        all.at[index] = transformed<true>(how_, wide.at[index]);
    } else {
      for (std::uint32_t index = 0; index < row_length; ++index)
        all.at[index] = transformed<false>(how_, wide.at[index]);
    }
    return all;
  }

  CHUNKMEM_HOST_DEVICE void store_state(std::size_t which, row_place place, bool is_wide,
                                        const row_floats& values) const noexcept
  {
    if (is_16_bit(it_.state_types[which]))
      store_random(it_.states[which], it_.state_types[which], it_.state_lists[which], place, is_wide, values);
    else
      store_row(it_.states[which], dtype::float32, place, is_wide, values, nearest_rounding{});
  }

  CHUNKMEM_HOST_DEVICE void store_random(std::byte* data, dtype type, std::uint32_t list, row_place place, bool is_wide,
                                         const row_floats& values) const noexcept
  {
    const rounding_source<numerics_of<Work>> source{rounding_key{key_.seed, key_.step, key_.tensor, list}};
    const std::uint64_t first = it_.first_block * std::uint64_t{update_grain} + place.first;
    store_row(data, type, place, is_wide, values, stochastic_rounding<decltype(source)>{source, first});
  }

  const device_parameter& it_;
  gradient_transform how_;
  Work work_;
  rounding_key key_;
  bool updates_;
};

}  // namespace detail

/// The update of one parameter on a device: the bits of `update_parameter`, by the decision in device memory.
///
/// Where the state says "skip", a fresh master is made and an overwritten value is made again; nothing else changes.
///
///     launcher(memory, agent::compute, update_kernel<Work, Factors>{parameter, state, factors, seed, limit});
///
/// Cost: the traffic of `update_parameter`; four elements at a time where all addresses are multiples of 16, else one
/// element at a time, with coalesced accesses. Random bits have one key for each four elements.
///
/// @tparam Work   arithmetic of one element, made from the factors
template <class Work, class Factors>
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
    return detail::row_place::rows_of(parameter_.elements);
  }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE auto prepared() const noexcept
  {
    return detail::prepared_update<Work, Factors>{parameter_, *state_, *factors_, seed_, limit_};
  }

 private:
  device_parameter parameter_;
  const device_step_state* state_;
  const Factors* factors_;
  std::uint64_t seed_;
  float limit_;
};

/// Converts elements between float32, bfloat16 and float16, to nearest or by the random bits of a key.
///
///     loop_launcher::run(cast_kernel{{master, dtype::float32}, {weight, dtype::bfloat16}, elements});
///
/// The bits of `to_float`, `round_to` and `round_stochastic`; from float32 to float32 it copies. Good for masters from
/// weights and weights from masters. Source and target may be the same bytes where their types have the same size.
class cast_kernel {
 public:
  struct run_of_elements {
    std::byte* data = nullptr;
    dtype type = dtype::float32;
  };

  cast_kernel(run_of_elements to, run_of_elements from, std::uint64_t elements) noexcept
      : cast_kernel{to, from, elements, {}, 0}
  {
    is_random_ = false;
  }

  /// @param first   number of the first element in its tensor
  cast_kernel(run_of_elements to, run_of_elements from, std::uint64_t elements, const rounding_key& key,
              std::uint64_t first) noexcept
      : to_{to.data},
        from_{from.data},
        elements_{elements},
        first_{first},
        key_{key},
        to_type_{to.type},
        from_type_{from.type}
  {
    is_aligned_ = (reinterpret_cast<std::uintptr_t>(to_) | reinterpret_cast<std::uintptr_t>(from_)) % 16 == 0;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return detail::row_place::rows_of(elements_);
  }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const cast_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const detail::row_place place{index, elements_};
    const bool is_wide = is_aligned_ && place.count == detail::row_length;
    const auto values = detail::widened(detail::load_row(from_, from_type_, place, is_wide), from_type_, is_wide);
    if (!is_random_) return detail::store_row(to_, to_type_, place, is_wide, values, detail::nearest_rounding{});
    using source_type = chunkmem::detail::rounding_hash;
    detail::store_row(to_, to_type_, place, is_wide, values,
                      detail::stochastic_rounding<source_type>{source_type{key_}, first_ + place.first});
  }

 private:
  std::byte* to_;
  const std::byte* from_;
  std::uint64_t elements_;
  std::uint64_t first_;
  rounding_key key_;
  dtype to_type_;
  dtype from_type_;
  bool is_random_ = true;
  bool is_aligned_ = false;
};

static_assert(element_kernel<cast_kernel>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
