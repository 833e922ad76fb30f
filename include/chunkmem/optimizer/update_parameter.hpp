// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/element_pass.hpp>
#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace chunkmem::inline v0 {

namespace detail {

/// Bytes of the L2 cache of a core, as the system reports, read once; 1 MiB where it does not report.
///
///     const std::uint64_t elements = second_cache_bytes() / bytes_of_element;  // of a part of a pass
[[nodiscard]] inline std::uint64_t second_cache_bytes() noexcept
{
  static const std::uint64_t bytes = [] {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    if (const long said = ::sysconf(_SC_LEVEL2_CACHE_SIZE); said > 0) return static_cast<std::uint64_t>(said);
#endif
    return std::uint64_t{1} << 20;
  }();
  return bytes;
}

}  // namespace detail

namespace optimizer {

/// One list of one parameter.
///
///     all.lists[0] = list_bytes{.data = momentum, .type = dtype::bfloat16};
struct list_bytes {
  std::byte* data = nullptr;  ///< null for the master of a parameter without one
  dtype type = dtype::float32;
  list_use use = list_use::state;
};

/// One parameter's bytes in every list. The value and the gradient may be the same bytes where there is a master.
///
///     parameter_bytes all{.value = reinterpret_cast<std::byte*>(value),
///                         .gradient = reinterpret_cast<const std::byte*>(gradient),
///                         .elements = elements};
///     all.lists[0] = {reinterpret_cast<std::byte*>(momentum)};
///     all.list_count = 1;
struct parameter_bytes {
  std::byte* value = nullptr;  ///< written; read only without a master, or with a fresh one
  dtype value_type = dtype::float32;
  const std::byte* gradient = nullptr;
  dtype gradient_type = dtype::float32;  ///< type of the value, or float32
  list_bytes lists[max_lists] = {};      ///< in the order of the kernel's lists()
  std::size_t list_count = 0;
  bool fresh_master = false;  ///< the master is made from the value first
  std::uint64_t elements = 0;
  std::uint32_t tensor = 0;  ///< number of the parameter, for stochastic rounding
  std::uint64_t first = 0;   ///< index of the first of these elements, a multiple of 4,096; for stochastic rounding

  /// The master, or null.
  [[nodiscard]] std::byte* master() const noexcept
  {
    for (std::size_t index = 0; index < list_count; ++index)
      if (lists[index].use == list_use::master) return lists[index].data;
    return nullptr;
  }
  /// A run of these elements, as elements of the tensor `of` from `origin` on.
  [[nodiscard]] parameter_bytes run(std::uint64_t begin, std::uint64_t count, std::uint32_t of,
                                    std::uint64_t origin) const noexcept
  {
    parameter_bytes part = *this;
    part.value += begin * size_of(value_type);
    part.gradient += begin * size_of(gradient_type);
    for (std::size_t index = 0; index < list_count; ++index)
      if (lists[index].data != nullptr) part.lists[index].data += begin * size_of(lists[index].type);
    part.elements = count;
    part.tensor = of;
    part.first = origin;
    return part;
  }
};

namespace detail {

inline constexpr std::size_t update_block = 512;      ///< elements that stay in the L1 cache during their update
inline constexpr std::size_t update_grain = 4096;     ///< every part begins at a multiple of it
inline constexpr std::uint64_t update_alone = 32768;  ///< smaller parameters stay on the calling thread

/// The instruction set of a kernel that chooses one; else the best set.
template <class Kernel>
[[nodiscard]] instruction_set instructions_of(const Kernel& kernel) noexcept
{
  if constexpr (chooses_instructions<Kernel>)
    return kernel.instructions();
  else
    return best_instruction_set();
}

/// The update of one parameter, block by block: all bytes are read once and written once.
template <optimizer_kernel Kernel>
class fused_update {
 public:
  fused_update(const Kernel& kernel, const parameter_bytes& bytes, const gradient_transform& transform,
               const step_settings& settings, std::uint64_t seed, const float_environment::settings& callers) noexcept
      : kernel_{kernel},
        bytes_{bytes},
        transform_{transform},
        settings_{settings},
        seed_{seed},
        callers_{callers},
        set_{instructions_of(kernel)},
        master_{reinterpret_cast<float*>(bytes.master())}
  {
  }

  /// Elements [first, last). Not inlined: its operands come from memory, inside the environment.
  [[gnu::noinline]] void run(std::uint64_t first, std::uint64_t last) const noexcept
  {
    const float_environment fixed;
    if constexpr (updates_in_lanes<Kernel> && !uses_callers_environment<Kernel>)
      kernel_.with_lane_work(settings_, [&]<class Work>(const Work& work) {
        element_pass<Work>{work, streams<Work::states>(first), &transform_}.run(set_, last - first);
      });
    else
      run_in_blocks(first, last);
  }

 private:
  void run_in_blocks(std::uint64_t first, std::uint64_t last) const noexcept
  {
    const auto update = prepared();
    buffers scratch;
    for (std::uint64_t index = first; index < last; index += update_block)
      block(update, index, static_cast<std::size_t>(std::min<std::uint64_t>(update_block, last - index)), scratch);
  }

  template <std::size_t States>
  [[nodiscard]] update_streams<States> streams(std::uint64_t first) const noexcept
  {
    update_streams<States> all;
    const bool is_narrow = is_16_bit(bytes_.value_type);
    all.gradient = bytes_.gradient;
    all.gradient_type = bytes_.gradient_type;
    const bool from_master = master_ != nullptr && !bytes_.fresh_master;
    all.source = from_master ? reinterpret_cast<const std::byte*>(master_) : bytes_.value;
    all.source_type = from_master ? dtype::float32 : bytes_.value_type;
    all.master = reinterpret_cast<std::byte*>(master_);
    all.value = {bytes_.value, bytes_.value_type, is_narrow && master_ == nullptr};
    std::size_t next = 0;
    for (std::uint32_t index = 0; index < bytes_.list_count; ++index) {
      const list_bytes& list = bytes_.lists[index];
      if (list.use == list_use::state) all.states[next++] = {list.data, list.type, is_16_bit(list.type)};
    }
    all.key = {seed_, settings_.number, bytes_.tensor, 0};
    all.first = bytes_.first;
    all.advance(first);
    return all;
  }

  /// Single-precision copies of one block, for streams of other types.
  struct buffers {
    alignas(64) float gradient[update_block];
    alignas(64) float parameter[update_block];
    alignas(64) float lists[max_lists][update_block];
    alignas(64) std::uint16_t random[update_block];
  };

  /// The kernel's update; numbers that all blocks share may be computed once.
  [[nodiscard]] auto prepared() const noexcept
  {
    if constexpr (prepares_updates<Kernel> && uses_callers_environment<Kernel>)
      return prepared_as_caller();
    else if constexpr (prepares_updates<Kernel>)
      return kernel_.prepared(settings_);
    else
      return [this](const update_spans& spans) noexcept { kernel_.update(spans, settings_); };
  }

  template <class Update>
  void block(const Update& update, std::uint64_t first, std::size_t count, buffers& scratch) const noexcept
  {
    update_spans spans;
    spans.gradient = {gradient(first, count, scratch.gradient), count};
    spans.parameter = {parameter(first, count, scratch.parameter), count};
    std::size_t next = 0;
    for (std::size_t index = 0; index < bytes_.list_count; ++index) {
      const list_bytes& list = bytes_.lists[index];
      if (list.use == list_use::state)
        spans.lists[next++] = {widened(list.data, list.type, first, count, scratch.lists[index]), count};
    }
    if constexpr (uses_callers_environment<Kernel>)
      update_as_caller(update, spans);
    else
      update(spans);
    for (std::uint32_t index = 0; index < bytes_.list_count; ++index) {
      const list_bytes& list = bytes_.lists[index];
      if (is_16_bit(list.type))
        store_stochastic(list.data, list.type, index, first, count, scratch.lists[index], scratch.random);
    }
    store_value(first, count, spans.parameter.data(), scratch.random);
  }

  /// The gradient as the kernel gets it.
  [[nodiscard]] const float* gradient(std::uint64_t first, std::size_t count, float* scratch) const noexcept
  {
    if constexpr (uses_callers_environment<Kernel>) {
      widen(bytes_.gradient, bytes_.gradient_type, first, count, scratch);
      if (transform_.factor != 1.0F || transform_.limit > 0.0F) transform_as_caller(count, scratch);
    } else {
      with_elements(bytes_.gradient, bytes_.gradient_type, first,
                    [&](const auto* stored) { transform(set_, transform_, count, scratch, stored); });
    }
    return scratch;
  }
  // Code in the caller's environment is not inlined: no arithmetic moves in or out.
  template <class Update>
  [[gnu::noinline]] void update_as_caller(const Update& update, const update_spans& spans) const noexcept
  {
    const float_environment of_caller{callers_};
    call(update, spans);
  }
  template <class Update>
  [[gnu::noinline]] static void call(const Update& update, const update_spans& spans) noexcept
  {
    update(spans);
  }
  [[gnu::noinline]] auto prepared_as_caller() const noexcept
  {
    const float_environment of_caller{callers_};
    return kernel_.prepared(settings_);
  }
  [[gnu::noinline]] void transform_as_caller(std::size_t count, float* all) const noexcept
  {
    const float_environment of_caller{callers_};
    for (std::size_t index = 0; index < count; ++index) {
      all[index] *= transform_.factor;
      if (transform_.limit > 0.0F && all[index] > transform_.limit) all[index] = transform_.limit;
      if (transform_.limit > 0.0F && all[index] < -transform_.limit) all[index] = -transform_.limit;
    }
  }

  /// The parameter in single precision.
  [[nodiscard]] float* parameter(std::uint64_t first, std::size_t count, float* scratch) const noexcept
  {
    if (master_ == nullptr) return widened(bytes_.value, bytes_.value_type, first, count, scratch);
    if (bytes_.fresh_master) widen(bytes_.value, bytes_.value_type, first, count, master_ + first);
    return master_ + first;
  }

  [[nodiscard]] float* widened(std::byte* data, dtype type, std::uint64_t first, std::size_t count,
                               float* scratch) const noexcept
  {
    if (type == dtype::float32) return reinterpret_cast<float*>(data) + first;
    widen(data, type, first, count, scratch);
    return scratch;
  }

  void widen(const std::byte* data, dtype type, std::uint64_t first, std::size_t count, float* wide) const noexcept
  {
    with_elements(data, type, first,
                  [&](const auto* stored) { for_elements(set_, widen_work{}, count, wide, stored); });
  }

  void store_value(std::uint64_t first, std::size_t count, const float* wide, std::uint16_t* random) const noexcept
  {
    if (!is_16_bit(bytes_.value_type)) return;
    if (master_ == nullptr)
      return store_stochastic(bytes_.value, bytes_.value_type, value_stream, first, count, wide, random);
    with_elements(bytes_.value, bytes_.value_type, first,
                  [&](auto* stored) { for_elements(set_, narrow_work{}, count, stored, wide); });
  }

  void store_stochastic(std::byte* data, dtype type, std::uint32_t stream, std::uint64_t first, std::size_t count,
                        const float* wide, std::uint16_t* random) const noexcept
  {
    const random_work<numerics_of<Kernel>> bits{{seed_, settings_.number, bytes_.tensor, stream}, bytes_.first + first};
    const std::size_t whole = (count + elements_per_block - 1) / elements_per_block * elements_per_block;
    for_elements(set_, bits, whole, random);
    with_elements(data, type, first, [&](auto* stored) {
      for_elements(set_, stochastic_work{}, count, stored, wide, static_cast<const std::uint16_t*>(random));
    });
  }

  const Kernel& kernel_;
  const parameter_bytes& bytes_;
  gradient_transform transform_;
  step_settings settings_;
  std::uint64_t seed_;
  float_environment::settings callers_;
  instruction_set set_;
  float* master_;
};

/// Makes a 16-bit value from its master, rounded as an update rounds it. @pre it has a master, which is not fresh
inline void round_from_master(const parameter_bytes& all)
{
  const float_environment fixed;
  const auto* const master = reinterpret_cast<const float*>(all.master());
  with_elements(all.value, all.value_type, 0, [&](auto* stored) {
    for_elements(best_instruction_set(), narrow_work{}, static_cast<std::size_t>(all.elements), stored, master);
  });
}

template <class Kernel>
void check(const Kernel& kernel, const parameter_bytes& bytes)
{
  const auto is_real = [](dtype type) { return type == dtype::float32 || is_16_bit(type); };
  const bool is_fitting = bytes.gradient_type == bytes.value_type || bytes.gradient_type == dtype::float32;
  expects(is_real(bytes.value_type) && is_fitting,
          "an update of a parameter whose gradient is neither of its type nor float32");
  expects(bytes.list_count <= max_lists, "an update with more lists than a kernel may keep");
  std::size_t masters = 0;
  std::size_t states = 0;
  for (std::size_t index = 0; index < bytes.list_count; ++index) {
    const list_bytes& list = bytes.lists[index];
    const bool is_state = list.use == list_use::state;
    states += is_state ? 1 : 0;
    masters += !is_state && list.data != nullptr ? 1 : 0;
    expects(is_state ? is_real(list.type) : list.type == dtype::float32,
            "an update with a list that holds no real numbers, or a master that is not float32");
    // The pass takes the number of a state for that of its list: a part of the keys of random bits.
    expects(!updates_in_lanes<Kernel> || !is_state || states == index + 1,
            "an update in lanes with a master before a state (masters are the last list)");
  }
  std::size_t wanted = 0;
  for (const list_spec& spec : kernel.lists()) wanted += spec.use == list_use::state ? 1 : 0;
  expects(states == wanted, "an update with other lists than the kernel's");
  expects(masters == 0 || (masters == 1 && is_16_bit(bytes.value_type)),
          "an update with a master of a parameter that is float32, or with two");
  expects(bytes.elements == 0 || bytes.value != bytes.gradient || (masters == 1 && !bytes.fresh_master),
          "an update of a parameter whose gradient has overwritten it, without a master");
}

/// Elements that a thread takes at a time, a multiple of the grain. Their bytes fit the L2 cache: a slow thread delays
/// the others by the time of one part. Each thread gets some.
[[nodiscard]] inline std::uint64_t elements_of_part(const parameter_bytes& bytes, std::uint64_t threads) noexcept
{
  std::uint64_t width = size_of(bytes.value_type) + size_of(bytes.gradient_type);
  for (std::size_t index = 0; index < bytes.list_count; ++index)
    if (bytes.lists[index].data != nullptr) width += size_of(bytes.lists[index].type);
  const std::uint64_t grains = (bytes.elements + update_grain - 1) / update_grain;
  const std::uint64_t of_cache = chunkmem::detail::second_cache_bytes() / (width * update_grain);
  return std::clamp<std::uint64_t>(of_cache, 1, (grains + threads - 1) / threads) * update_grain;
}

}  // namespace detail

/// Updates one parameter in one pass over its bytes: gradient, states, value.
///
/// Gradients are widened, flushed, multiplied by `factor` and clamped to `limit`; then the kernel works in single
/// precision; then the value is rounded to nearest from its master. A 16-bit value without a master and 16-bit lists
/// are rounded stochastically, by bits that depend on the seed, the step, the tensor, the list and the element alone.
/// All of it runs in the default floating-point environment, on every thread: the caller's flags have no effect, unless
/// the kernel has `uses_callers_environment`. The bits do not depend on the executor, the parts or the instruction set.
/// Cost: with Adam and float32 states 28 B of memory traffic for each element; no allocation. Kernels in lanes, such as
/// Adam and SGD, need 6 KiB of stack. Others work block by block, on 13 KiB of stack.
///
/// @param seed   of the stochastic rounding
/// @param callers   the environment of a kernel with `uses_callers_environment`
/// @throws usage_error   the bytes do not fit the kernel; nothing was changed
template <optimizer_kernel Kernel, executor Executor>
void update_parameter(const Kernel& kernel, const parameter_bytes& bytes, const gradient_transform& transform,
                      const step_settings& settings, std::uint64_t seed, Executor& workers,
                      const float_environment::settings& callers = float_environment::settings::of_this_thread())
{
  detail::check(kernel, bytes);
  const detail::fused_update<Kernel> update{kernel, bytes, transform, settings, seed, callers};
  const std::uint64_t threads = workers.threads();
  if (threads <= 1 || bytes.elements < detail::update_alone) return update.run(0, bytes.elements);
  const std::uint64_t part = detail::elements_of_part(bytes, threads);
  const std::uint64_t parts = (bytes.elements + part - 1) / part;
  // Each thread has a region of neighbouring parts, and the regions take turns: two threads that go through memory side
  // by side take 1 to 3 % longer. This is for executors that take parts in order; the bits are those of any order.
  const std::uint64_t whole_turns = parts / threads;
  const std::uint64_t longer_regions = parts % threads;  // by one part: the first ones
  workers.run(static_cast<unsigned>(parts), [&](unsigned turn) noexcept {
    const std::uint64_t region = turn % threads;
    const std::uint64_t which = region * whole_turns + std::min(region, longer_regions) + turn / threads;
    update.run(which * part, std::min(bytes.elements, (which + 1) * part));
  });
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
