#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of one call of `step`.
struct step_options {
  float learning_rate = 1e-3F;
};

/// What a step did.
enum class step_result : std::uint8_t { updated };

namespace detail {

/// One parameter: pins all that belongs to it, updates it, and gives its gradient's bytes back.
template <class Manager, optimizer_kernel Kernel>
class parameter_update {
 public:
  parameter_update(Manager& owner, Kernel& kernel, const step_settings& settings)
      : manager_{owner}, kernel_{kernel}, settings_{settings}
  {
    for (const list_spec& spec : kernel.lists()) lists_[list_count_++] = owner.list(spec.name);
    owner.for_each_parameter([](tensor_handle, const tensor_info& info) {
      expects(info.type == dtype::float32, "an optimizer step over a parameter that is not float32");
    });
  }

  void run(tensor_handle parameter, const tensor_info& info)
  {
    const bytes size = bytes{info.extents.elements()} * size_of(info.type);
    const at place = manager_.placement().home_of(role::optimizer_state, size) == tier::host ? at::host : at::device;
    {
      const auto gradient = manager_.template acquire<float>(parameter, gradient_list, access::read, place);
      typename Manager::template pin_type<float> pins[max_lists];
      for (std::size_t at = 0; at < list_count_; ++at)
        pins[at] = manager_.template acquire<float>(parameter, lists_[at], access::read_write, place);
      const auto weight = manager_.template acquire<float>(parameter, value_list, access::read_write, place);
      if (!manager_.rehearsing()) {
        update_spans spans{weight.span(), gradient.span(), {}};
        for (std::size_t at = 0; at < list_count_; ++at) spans.lists[at] = pins[at].span();
        kernel_.update(spans, settings_);
        ++kernel_.progress.reached;
        kernel_.progress.undropped = 1;
      }
    }
    manager_.drop_gradient(parameter);
    kernel_.progress.undropped = 0;
  }

 private:
  Manager& manager_;
  Kernel& kernel_;
  step_settings settings_;
  list_id lists_[max_lists] = {};
  std::size_t list_count_ = 0;
};

}  // namespace detail

/// Updates every parameter from its gradient, then forgets the gradients.
///
/// Runs where the placement keeps the optimizer's states, one parameter at a time in the order of declaration. A
/// parameter without a gradient in this step keeps its value and its states.
/// Guarantee: safe to take again. Where it throws, some parameters have the update and the others their gradients; the
/// next call goes on with the others, and the final bits are those of an undisturbed step.
///
/// @throws out_of_memory, device_error   a parameter could not be brought; call again
/// @throws usage_error    the last step is half done and a new gradient of a finished parameter is there
/// @complexity            O(parameters) and one pass over their bytes; no allocation
template <class Manager, optimizer_kernel Kernel>
step_result step(Manager& owner, Kernel& kernel, const step_options& options = {})
{
  step_progress& progress = kernel.progress;
  const step_settings settings{options.learning_rate, progress.number + 1};
  detail::parameter_update<Manager, Kernel> update{owner, kernel, settings};
  std::uint32_t ordinal = 0;
  owner.for_each_parameter([&](tensor_handle parameter, const tensor_info& info) {
    const std::uint32_t at = ordinal++;
    if (!owner.has_gradient(parameter)) {
      if (at == progress.reached && !owner.rehearsing()) ++progress.reached;
      return;
    }
    if (at >= progress.reached) return update.run(parameter, info);
    expects(progress.undropped != 0 && at + 1 == progress.reached,
            "the last optimizer step was cut short: call step again before new gradients are made, then go on");
    owner.drop_gradient(parameter);
    progress.undropped = 0;
  });
  if (!owner.rehearsing()) progress = {progress.number + 1, 0, 0};
  return step_result::updated;
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
