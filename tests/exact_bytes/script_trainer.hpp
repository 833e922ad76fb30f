// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/planner/training_script.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace exact_bytes {

namespace cm = chunkmem;

/// A trainer on real memory: reads every weight, writes every gradient, and takes steps of an optimizer. A script gives
/// the order of its work and the bytes of its activations.
template <class Manager, cm::optimizer_kernel Kernel>
class script_trainer {
 public:
  /// All but the kernel outlive this. @param owner   nothing is declared yet
  script_trainer(Manager& owner, const cm::planner::parameter_groups& groups,
                 const cm::planner::training_script& script, const cm::planner::rank_settings& settings,
                 const Kernel& kernel)
      : m_{owner}, script_{script}, settings_{settings}, leases_(script.leases()), kernel_{kernel}
  {
    for (std::uint32_t group = 0; group < groups.groups(); ++group)
      weights_.push_back(m_.template add<cm::bf16>({groups.elements_of(group)}, cm::role::parameter));
    m_.use(kernel_);
  }

  void fill()
  {
    for (const auto weight : weights_) {
      const auto pin = m_.acquire(weight, cm::access::write, cm::memory_location::host);
      std::fill_n(pin.data(), pin.size(), cm::bf16{0.5F});
    }
  }
  void step()
  {
    auto scope = m_.iteration();
    scope.pass(cm::pass::forward);
    for (const cm::planner::act& it : script_.acts()) switch (it.kind) {
        case cm::planner::act_kind::lease: leases_[it.id] = m_.lease(cm::tier::device, it.size, stream); break;
        case cm::planner::act_kind::give: leases_[it.id].release(); break;
        case cm::planner::act_kind::backward: scope.pass(cm::pass::backward); break;
        default: use(it);
      }
    cm::optimizer::step_options options;
    options.skip_nonfinite = false;
    if (settings_.takes_norm) options.clip.norm = 1.0F;
    if (settings_.updates_late)
      late_.step(options);
    else if constexpr (requires { m_.shares(); })
      m_.step(kernel_, options);
    else
      cm::optimizer::step(m_, kernel_, options);
  }
  /// Of the weights that were read so far.
  [[nodiscard]] float sum() const noexcept { return sum_; }

 private:
  static constexpr cm::agent stream = cm::agent::compute;  // norms are taken in the step, as behind a GPU
  using lease_type = decltype(std::declval<Manager&>().lease(cm::tier::device, cm::bytes{}));

  void use(const cm::planner::act& it)
  {
    const auto weight = weights_[it.id];
    const bool is_wide = settings_.has_wide_gradients();
    if (!it.reads) {
      if (it.makes_gradient) is_wide ? add<float>(it, weight, stream) : add<cm::bf16>(it, weight, stream);
      return;
    }
    auto pin = m_.acquire(weight, cm::access::read, stream);
    if (!m_.rehearsing()) {
      const cm::bf16* const values = std::as_const(pin).data();
      for (std::uint64_t index = 0; index < pin.size(); index += 64) sum_ += static_cast<float>(values[index]);
    }
    if (!it.makes_gradient) return;
    is_wide ? add<float>(it, std::move(pin)) : add<cm::bf16>(it, std::move(pin));
  }
  template <class Kind, class... Weight>
  void add(const cm::planner::act& it, Weight&&... weight)
  {
    auto gradient = m_.template gradient<Kind>(std::forward<Weight>(weight)...);
    if (!m_.rehearsing())
      for (std::uint64_t index = 0; index < gradient.size(); ++index) {
        Kind& element = gradient.data()[index];
        element = Kind{gradient.beta() == 0 ? 0.25F : static_cast<float>(element) + 0.25F};
      }
    if (it.finishes_gradient) m_.gradient_done(std::move(gradient));
  }

  Manager& m_;
  const cm::planner::training_script& script_;
  const cm::planner::rank_settings& settings_;
  std::vector<cm::tensor<cm::bf16>> weights_;
  std::vector<lease_type> leases_;
  Kernel kernel_;
  cm::optimizer::late_updates<Manager, Kernel> late_{m_, kernel_};
  float sum_ = 0;
};

}  // namespace exact_bytes
