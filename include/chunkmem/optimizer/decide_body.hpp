// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/exact_compare.hpp>
#include <chunkmem/optimizer/clipping.hpp>
#include <chunkmem/optimizer/device_body.hpp>
#include <chunkmem/optimizer/device_step_state.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Adds up the measures of all tensors in their order and decides: update or skip, and by what gradients are
/// multiplied.
///
/// The rule of `step`, with the loss scale that lies in the state. Doing it again gives the same.
class decide_body {
 public:
  using total_type = gradient_measure;

  /// @param tensors    0: nothing asks for a norm
  /// @param may_skip   gradients that are not finite leave everything as it is
  decide_body(const gradient_measure* measures, std::uint64_t tensors, const clipping& clip, bool may_skip,
              device_step_state* state) noexcept
      : measures_{measures}, tensors_{tensors}, state_{state}, clip_{clip}, may_skip_{may_skip}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t length(std::uint64_t) const noexcept { return tensors_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE gradient_measure load(std::uint64_t, std::uint64_t at) const noexcept
  {
    return measures_[at];
  }

  CHUNKMEM_HOST_DEVICE void store(std::uint64_t, const gradient_measure& total) const noexcept
  {
    const double scale = exact::to_double(state_->loss.scale);
    const double norm = exact::quotient(norm_of(total, clip_.order), scale);
    const bool clips = total.finite && exact::is_less(0.0F, clip_.norm);
    const double factor = clips ? exact::to_double(clip_factor(norm, clip_.norm)) : 1.0;
    state_->total = total;
    state_->norm = norm;
    state_->factor = exact::to_single(exact::quotient(factor, scale));
    state_->decision = may_skip_ && !total.finite ? step_decision::skip : step_decision::update;
  }

 private:
  const gradient_measure* measures_;
  std::uint64_t tensors_;
  device_step_state* state_;
  clipping clip_;
  bool may_skip_;
};

static_assert(ordered_body<decide_body>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
