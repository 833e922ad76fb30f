// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/clipping.hpp>
#include <chunkmem/optimizer/learning_rates.hpp>
#include <chunkmem/optimizer/loss_scale.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of one call of `step`.
///
///     step(m, adam, {.learning_rate = 1e-4F, .clip = {.norm = 1.0F}, .loss_scale = &scale});
struct step_options {
  float learning_rate = 1e-3F;           ///< finite, 0 or above
  std::span<const float> group_rates{};  ///< learning rates by group instead; empty: one for all
  /// of the unscaled gradients: by the norm of all of them first, then value by value
  clipping clip{};
  /// by which the loss was multiplied, given to use(); hears what became of the step
  optimizer::loss_scale* loss_scale = nullptr;
  /// an infinity or NaN in any gradient leaves everything as it is; always so with a loss scale
  bool skip_nonfinite = true;
  std::uint64_t seed = 0;  ///< of stochastic rounding, where something is stored in 16 bits without a master
};

/// @throws usage_error   a learning rate that the step would use is no number, infinite or negative
inline void check_rates(const step_options& options)
{
  if (options.group_rates.empty()) check_learning_rate(options.learning_rate);
  for (const float rate : options.group_rates) check_learning_rate(rate);
}

/// What a step did.
enum class step_result : std::uint8_t { updated, skipped_nonfinite };

/// What a step did, and the norm that its gradients had.
///
///     const step_outcome done = step(m, adam);
///     if (done == step_result::skipped_nonfinite) std::cerr << "a gradient was not finite\n";
struct step_outcome {
  step_result result = step_result::updated;
  double norm = 0.0;  ///< unscaled, before clipping, in the order of the clipping; 0 where nothing asked for it
  constexpr operator step_result() const noexcept { return result; }
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
