// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/exact_compare.hpp>
#include <chunkmem/optimizer/device_body.hpp>
#include <chunkmem/optimizer/device_step_state.hpp>
#include <chunkmem/optimizer/loss_scale.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// How a device goes on with a loss scale: `loss_scale_options`, or not at all.
struct loss_scale_rule {
  loss_scale_options options{};
  bool is_dynamic = false;
};

/// The rule of a loss scale; its state goes to the device as bytes.
[[nodiscard]] inline loss_scale_rule rule_of(const loss_scale& it) noexcept
{
  return {it.options(), it.is_dynamic()};
}

/// The end of a step: counts it, and what `loss_scale` does after an update or a skip.
class finish_body {
 public:
  finish_body(device_step_state* state, const loss_scale_rule& rule) noexcept : state_{state}, rule_{rule} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }

  /// To be used while this body lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const finish_body& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t) const noexcept
  {
    if (state_->decision == step_decision::skip)
      skipped(state_->loss);
    else if (state_->decision == step_decision::update)
      updated(*state_);
    state_->decision = step_decision::open;
  }

 private:
  CHUNKMEM_HOST_DEVICE void updated(device_step_state& state) const noexcept
  {
    loss_scale_state& loss = state.loss;
    ++state.number;
    ++loss.updates;
    if (!rule_.is_dynamic || ++loss.in_a_row < rule_.options.window) return;
    const float grown = exact::product(loss.scale, rule_.options.growth);
    loss.in_a_row = 0;
    loss.scale = exact::is_less(rule_.options.largest, grown) ? rule_.options.largest : grown;
  }

  CHUNKMEM_HOST_DEVICE void skipped(loss_scale_state& loss) const noexcept
  {
    ++loss.skips;
    loss.in_a_row = 0;
    if (!rule_.is_dynamic) return;
    const float shrunk = exact::product(loss.scale, rule_.options.backoff);
    loss.scale = exact::is_less(shrunk, rule_.options.smallest) ? rule_.options.smallest : shrunk;
  }

  device_step_state* state_;
  loss_scale_rule rule_;
};

static_assert(element_body<finish_body>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
