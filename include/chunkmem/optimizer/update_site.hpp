// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/missed_updates.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

template <real_element Element, executor Executor>
[[nodiscard]] gradient_measure measure_elements(std::span<const Element> all, Executor& workers)
{
  constexpr std::size_t blocks_at_once = 1024;  // their sums wait on the stack to be added in order
  constexpr std::size_t blocks_of_a_part = 8;
  const float_environment fixed;
  if (workers.threads() == 1 || all.size() <= blocks_of_a_part * measure_block) return measure(all);
  gradient_measure total;
  gradient_measure sums[blocks_at_once];
  for (std::size_t begin = 0; begin < all.size(); begin += blocks_at_once * measure_block) {
    const auto segment = all.subspan(begin, std::min(all.size() - begin, blocks_at_once * measure_block));
    const std::size_t blocks = (segment.size() + measure_block - 1) / measure_block;
    workers.run(static_cast<unsigned>((blocks + blocks_of_a_part - 1) / blocks_of_a_part), [&](unsigned part) {
      const float_environment same;
      for (std::size_t index = part * blocks_of_a_part; index < std::min(blocks, (part + 1) * blocks_of_a_part);
           ++index)
        sums[index] = measure_one_block(
            segment.subspan(index * measure_block, std::min(measure_block, segment.size() - index * measure_block)));
    });
    for (std::size_t index = 0; index < blocks; ++index) total.add(sums[index]);
  }
  return total;
}

}  // namespace detail

/// Norms of one gradient, block by block on all workers; block sums are added in order, so bits do not depend on the
/// workers.
///
/// @param type   float32, bfloat16 or float16
/// Cost: one pass over the gradient; 40 KiB of stack, no allocation.
template <executor Executor>
[[nodiscard]] gradient_measure measure_parameter(const std::byte* gradient, dtype type, std::uint64_t elements,
                                                 Executor& workers)
{
  const auto of = [&]<class Element>(Element) {
    return detail::measure_elements(
        std::span{reinterpret_cast<const Element*>(gradient), static_cast<std::size_t>(elements)}, workers);
  };
  if (type == dtype::bfloat16) return of(bf16{});
  if (type == dtype::float16) return of(fp16{});
  return of(float{});
}

namespace detail {

/// The settings that all elements of one parameter share in one update.
struct update_request {
  gradient_transform transform{};
  step_settings settings{};
  std::uint64_t seed = 0;                    ///< of stochastic rounding
  float_environment::settings callers = {};  ///< of the stepping thread, for kernels with `uses_callers_environment`
  const missed_updates* missed = nullptr;    ///< of all parameters, before this step; null where a device counts them

  /// The settings for one parameter. @param tensor   its number
  [[nodiscard]] step_settings settings_of(std::uint32_t tensor) const noexcept
  {
    step_settings own = settings;
    if (missed != nullptr) own.missed = missed->of(tensor);
    return own;
  }
};

/// Where the arithmetic of a step runs: on the calling thread, in virtual time without bytes, or on the device (see
/// device_optimizer). The concept requires three calls and three constants:
///
/// - `begin()` comes before the first access of a step.
/// - `overwrites(parameter)`: an update by its master writes every element of the value.
/// - `end(decision, options)` comes after the last parameter of a step that is no rehearsal.
/// - `has_bytes`: updates have bytes.
/// - `host_reaches`: the calling thread can read and write these bytes.
/// - `counts_in_kernel`: `kernel.progress.number` counts the updates; otherwise the site counts them.
///
/// A `step_driver` also makes these calls, whose argument types a concept cannot name:
///
/// - `at_place(planned, work)` calls `work(place)` with the place to pin at: a `memory_location` or an `agent`.
/// - `decide(driver)` decides and ends with `driver.take(verdict)`.
/// - `measure(kernel, gradient, type, elements, place)` returns the measure of one gradient.
/// - `update(kernel, bytes, request, place)` updates one parameter.
/// - `remake(bytes, place)` makes a value from its master without an update. A share is a parameter that is updated in
///   part: its gradient may have taken the bytes of the other part.
/// - `tensors(own)` gives the number of tensors whose updates are counted, where the manager of this rank has `own`.
/// - `for_each_missing(driver, visit)` calls `visit(number)` for each tensor that the step does not update, in the
///   numbers that `bytes` has at an update. It is called when all gradients are complete.
///
/// Where the calling thread decides, it first calls `await_measures()`, which returns when the measures of all
/// gradients are known.
template <class Site>
concept update_site =
    requires(Site site, tensor_handle parameter, step_decision decision, const step_options& options) {
      {
        Site::has_bytes
      } -> std::convertible_to<bool>;
      {
        Site::host_reaches
      } -> std::convertible_to<bool>;
      {
        Site::counts_in_kernel
      } -> std::convertible_to<bool>;
      site.begin();
      {
        site.overwrites(parameter)
      } -> std::convertible_to<bool>;
      site.end(decision, options);
    };

/// The calling thread decides, from the measures of all gradients, and each update overwrites its whole value. The
/// tensors of a manager that holds the whole model are counted as they are declared.
struct decided_by_caller {
  static constexpr bool counts_in_kernel = true;

  [[nodiscard]] static constexpr std::size_t tensors(std::size_t own) noexcept { return own; }
  template <class Driver, class Visit>
  static void for_each_missing(Driver& driver, Visit visit)
  {
    driver.for_each_missing([&](tensor_handle parameter, const auto&) { visit(index_of(parameter.id)); });
  }
  static void begin() noexcept {}
  template <class Driver>
  static void decide(Driver& driver)
  {
    driver.order_by_completion();
    if (driver.needs_measures() && !driver.knows_measure_of_all())
      driver.for_each_gradient([&](auto parameter, const auto& info) { driver.measure(parameter, info); });
    driver.take(driver.judge());
  }
  static void await_measures() noexcept {}
  [[nodiscard]] static constexpr bool overwrites(tensor_handle) noexcept { return true; }
  /// Updates the loss scale after an update or a skip.
  static void end(step_decision decision, const step_options& options)
  {
    if (options.loss_scale == nullptr) return;
    decision == step_decision::update ? options.loss_scale->updated() : options.loss_scale->skipped();
  }
};

/// The calling thread measures and updates, with its workers.
template <executor Executor>
class calling_thread_site : public decided_by_caller {
 public:
  static constexpr bool has_bytes = true;
  static constexpr bool host_reaches = true;

  /// @param workers   outlive this object
  template <class Backend>
  calling_thread_site(Backend&, Executor& workers) noexcept : workers_{workers}
  {
  }

  template <class Work>
  void at_place(memory_location planned, Work work) const
  {
    work(planned);
  }
  template <class Kernel>
  [[nodiscard]] gradient_measure measure(const Kernel&, const std::byte* gradient, dtype type, std::uint64_t elements,
                                         memory_location) const
  {
    return measure_parameter(gradient, type, elements, workers_);
  }
  template <class Kernel>
  void update(const Kernel& kernel, const parameter_bytes& all, const update_request& request, memory_location) const
  {
    update_parameter(kernel, all, request.transform, request.settings_of(all.tensor), request.seed, workers_,
                     request.callers);
  }
  static void remake(const parameter_bytes& all, memory_location) { round_from_master(all); }

 private:
  Executor& workers_;
};

/// For a backend without bytes: the time of a `timed_kernel` passes, on the calling thread or on the device.
template <class Backend>
class virtual_time_site : public decided_by_caller {
 public:
  static constexpr bool has_bytes = false;
  static constexpr bool host_reaches = false;

  /// @param backend   outlives this object
  template <class Executor>
  virtual_time_site(Backend& backend, Executor&) noexcept : backend_{backend}
  {
  }

  /// No byte is read here, so the device itself updates where the plan has the update there.
  template <class Work>
  void at_place(memory_location planned, Work work) const
  {
    planned == memory_location::device ? work(agent::compute) : work(planned);
  }
  /// The device measures gradients too, and the last measure decides.
  void await_measures() const { backend_.wait(agent::host, backend_.record(agent::compute)); }
  template <class Kernel, class Place>
  gradient_measure measure(Kernel& kernel, const std::byte*, dtype, std::uint64_t elements, Place place) const
  {
    if constexpr (timed_kernel<Kernel>) pass(place, kernel.measure_takes(place_of(place), elements));
    return {};
  }
  template <class Kernel, class Place>
  void update(Kernel& kernel, const parameter_bytes& all, const update_request&, Place place) const
  {
    if constexpr (timed_kernel<Kernel>) pass(place, kernel.update_takes(place_of(place), all.elements));
  }

 private:
  [[nodiscard]] static constexpr memory_location place_of(memory_location place) noexcept { return place; }
  [[nodiscard]] static constexpr memory_location place_of(agent) noexcept { return memory_location::device; }
  void pass(memory_location, const work_cost& it) const
  {
    backend_.advance(agent::host, it.nanoseconds, it.host_memory);
  }
  void pass(agent stream, const work_cost& it) const { backend_.advance(stream, it.nanoseconds, it.host_memory); }

  Backend& backend_;
};

/// The site of steps that the calling thread decides: the site of the executor, or the calling thread.
template <class Manager, class Executor>
struct site_of_caller {
  using backend_type = std::remove_reference_t<decltype(std::declval<Manager&>().backend())>;
  using type =
      std::conditional_t<has_bytes<backend_type>(), calling_thread_site<Executor>, virtual_time_site<backend_type>>;
};
template <class Manager, class Executor>
  requires requires { typename Executor::update_site; }
struct site_of_caller<Manager, Executor> {
  static_assert(!std::is_const_v<Executor>,
                "chunkmem: a step was given const device_updates (they hold the "
                "memory of the step: pass them without const)");
  using type = typename Executor::update_site;
};
template <class Manager, class Executor>
using caller_site = typename site_of_caller<Manager, Executor>::type;

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
