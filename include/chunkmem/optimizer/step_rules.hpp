// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/clipping.hpp>
#include <chunkmem/optimizer/loss_scale.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// The decision about one step.
struct step_verdict {
  double norm = 0.0;    ///< of all gradients, unscaled, before clipping; 0 where nothing asked for it
  float factor = 1.0F;  ///< multiplies each gradient
  step_decision decision = step_decision::update;
};

/// The rules that decide a step: unscale, clip, skip. Pure: the answers depend on the options and the measures alone.
///
///     const step_rules rules{options};
///     if (rules.needs_measures()) all = <the measures of all gradients, added in the order of declaration>;
///     const step_verdict decided = rules.judge(all);
class step_rules {
 public:
  /// @param options   outlive this; the scale of the loss is read at each call
  explicit step_rules(const step_options& options) noexcept : options_{options} {}

  /// The decision depends on all gradients.
  [[nodiscard]] bool needs_measures() const noexcept { return may_skip() || clips(); }

  /// @param all   the measure of all gradients together, or an empty one where `needs_measures()` is false
  [[nodiscard]] step_verdict judge(const gradient_measure& all) const
  {
    const float_environment standard;
    const judged_gradients found = detail::judge(all, options_.clip, scale());
    return {found.norm, found.factor, may_skip() && !found.is_finite ? step_decision::skip : step_decision::update};
  }

  /// As far as these gradients say, the step will neither be clipped nor skipped.
  [[nodiscard]] bool is_usual(const gradient_measure& seen) const
  {
    const float_environment standard;
    const clipping none{.order = options_.clip.order};
    const judged_gradients found = detail::judge(seen, none, scale());
    return found.is_finite && !(clips() && found.norm > static_cast<double>(options_.clip.norm));
  }
  /// The factor of gradients in a step that is neither clipped nor skipped: 1 / loss scale.
  [[nodiscard]] float usual_factor() const
  {
    const float_environment standard;
    return static_cast<float>(1.0 / static_cast<double>(scale()));
  }

 private:
  [[nodiscard]] float scale() const { return options_.loss_scale != nullptr ? options_.loss_scale->scale() : 1.0F; }
  [[nodiscard]] bool may_skip() const noexcept { return options_.skip_nonfinite || options_.loss_scale != nullptr; }
  [[nodiscard]] bool clips() const noexcept { return options_.clip.norm > 0.0F; }

  const step_options& options_;
};

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
