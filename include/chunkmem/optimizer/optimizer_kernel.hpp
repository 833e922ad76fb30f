#pragma once

#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/list_spec.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace optimizer {

/// What is the same for all parameters of one update.
struct step_settings {
  float learning_rate = 1e-3F;
  std::uint64_t number = 1;  ///< of this update, counted from 1; bias corrections depend on it
};

/// How far the updates of a kernel are: what makes a step safe to take again. Plain bytes, fit to survive a restart.
/// It counts the updates of one manager: give each manager a kernel object of its own.
struct step_progress {
  std::uint64_t number = 0;    ///< of the last whole update
  std::uint32_t reached = 0;   ///< parameters that have the next update already, in the order of declaration
  std::uint32_t undropped = 0; ///< 1: the gradient of the last of them is used up but still there
};

/// The most lists that one kernel may keep beside each parameter.
inline constexpr std::size_t max_lists = 4;

/// One parameter and all that belongs to it: runs of equal length, element by element.
struct update_spans {
  std::span<float> parameter;
  std::span<const float> gradient;
  std::span<float> lists[max_lists];  ///< in the order of the kernel's lists()
};

}  // namespace optimizer

/// The arithmetic of an optimizer, for runs of elements.
///
/// Laws: `lists()` names what the kernel keeps beside each parameter, at most `max_lists`, and never changes; `update`
/// treats every element alike and by itself, so that the bits do not depend on how a parameter is cut into runs; it reads
/// and writes nothing but its spans and settings; a fresh list is zero; it does not throw. `progress` is a member that
/// `step` alone changes.
template <class Kernel>
concept optimizer_kernel = requires(Kernel kernel, const optimizer::update_spans& spans, const optimizer::step_settings& settings) {
  { Kernel::name } -> std::convertible_to<std::string_view>;
  { kernel.lists() } -> std::convertible_to<std::span<const list_spec>>;
  { kernel.update(spans, settings) } noexcept;
  { kernel.progress } -> std::same_as<optimizer::step_progress&>;
};

}  // namespace chunkmem::inline v0
