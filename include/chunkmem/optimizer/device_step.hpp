// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/optimizer/decision_kernels.hpp>
#include <chunkmem/optimizer/device_step_memory.hpp>
#include <chunkmem/optimizer/measure_kernels.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

/// What a device step is told once: a captured one repeats it. Learning rates and the loss scale lie in device memory.
///
///     const device_step_options options{.clip = {.norm = 1.0F}, .loss = {.options = {}, .is_dynamic = true}};
struct device_step_options {
  clipping clip{};
  bool may_skip = true;  ///< an infinity or NaN in any gradient leaves everything as it is
  std::uint64_t seed = 0;
  loss_scale_rule loss{};  ///< what becomes of the scale after the step

  /// Whether a step has to look at the gradients before it updates.
  [[nodiscard]] constexpr bool measures() const noexcept { return may_skip || clip.norm > 0.0F; }
};

/// Enqueues one optimizer step on one agent, part by part; its decisions are taken on the device.
///
/// In this order: `begin`; `measure` for each gradient, in any order, if `options.measures()`; `decide`; `update` for
/// each parameter that has a gradient; `finish`. The bits are those of `step`. Nothing is allocated, awaited or asked
/// of the device, so all of it can be captured once and repeated.
///
/// @tparam Launcher   `launcher(backend, stream, kernel)` enqueues a `device_kernel`
template <device_optimizer_kernel Kernel, class Backend, class Launcher>
class device_step {
 public:
  /// All that is passed is used until the last call.
  /// @throws usage_error   a limit is negative or no number
  device_step(const Kernel& kernel, const device_step_memory<Kernel>& memory, const device_step_options& options,
              Backend& backend, agent stream, const Launcher& launcher)
      : kernel_{kernel}, memory_{memory}, options_{options}, backend_{backend}, stream_{stream}, launcher_{launcher}
  {
    check(options.clip);
  }

  /// Forgets what was measured, and works out the factors of the next update of every group.
  /// @throws device_error   may be called again
  void begin()
  {
    blocks_ = 0;
    launch(clear_ranges_kernel{memory_.ranges(), memory_.sizes().parameters});
    for (std::uint64_t index = 0; index < memory_.sizes().groups; ++index) {
      const auto& options = kernel_.options(group_id{static_cast<std::uint32_t>(index)});
      launch(factors_kernel<options_type, factors_type>{options, memory_.state(), memory_.rates() + index,
                                                        memory_.factors() + index});
    }
  }

  /// Takes the measure of a gradient.
  /// @param index   of the parameter, in the order of declaration
  /// @throws usage_error    the memory was made for less
  /// @throws device_error   may be called again
  void measure(std::uint64_t index, const std::byte* gradient, dtype type, std::uint64_t elements)
  {
    const std::uint64_t blocks = blocks_of(elements);
    expects(index < memory_.sizes().parameters && blocks <= memory_.sizes().blocks - blocks_,
            "a gradient that the memory of a device step has no room for (count its parameters and blocks in "
            "device_step_sizes)");
    launch(measure_kernel{gradient, type, elements, memory_.sums(), memory_.ranges() + index, blocks_});
    blocks_ += blocks;
  }

  /// Update or skip, and the factor of all gradients.
  /// @throws device_error   may be called again
  void decide()
  {
    const std::uint64_t tensors = options_.measures() ? memory_.sizes().parameters : 0;
    launch(sum_blocks_kernel{memory_.sums(), memory_.ranges(), memory_.measures(), tensors});
    launch(decide_kernel{memory_.measures(), tensors, options_.clip, options_.may_skip, memory_.state()});
  }

  /// Updates one parameter, or leaves it alone where the device decided so.
  ///
  /// @param all              as `update_parameter` takes it, with pointers into device memory
  /// @param is_overwritten   the gradient lies in the value's bytes: a skipped step makes the value anew
  /// @throws usage_error     the bytes do not fit the kernel, or the memory has no such group
  /// @throws device_error    nothing was enqueued: may be called again
  void update(const parameter_bytes& all, group_id group, bool is_overwritten)
  {
    detail::check(kernel_, all);
    expects(index_of(group) < memory_.sizes().groups,
            "an update of a group that the memory of a device step has no room for");
    const device_parameter it = on_device(all, is_overwritten);
    kernel_.with_arithmetic(group, [&]<class Work>(std::type_identity<Work>) {
      if (rounds_stochastically(it))
        launch(kernel_of<Work, row_order::by_counter>(it, group));
      else
        launch(kernel_of<Work, row_order::neighbours>(it, group));
    });
  }

  /// Counts the step and goes on with the loss scale. Not to be called again for the same step.
  /// @throws device_error   nothing was enqueued
  void finish() { launch(finish_kernel{memory_.state(), options_.loss}); }

 private:
  using factors_type = typename Kernel::device_factors;
  using options_type = std::remove_cvref_t<decltype(std::declval<const Kernel&>().options(group_id{0}))>;

  template <class Work, row_order Order>
  [[nodiscard]] update_kernel<Work, factors_type, Order> kernel_of(const device_parameter& it,
                                                                   group_id group) const noexcept
  {
    return {it, memory_.state(), memory_.factors() + index_of(group), options_.seed, options_.clip.value};
  }

  template <device_kernel Part>
  void launch(const Part& part)
  {
    launcher_(backend_, stream_, part);
  }

  const Kernel& kernel_;
  device_step_memory<Kernel> memory_;
  device_step_options options_;
  Backend& backend_;
  agent stream_;
  const Launcher& launcher_;
  std::uint64_t blocks_ = 0;  ///< whose sums have a place
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
