// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/tensor_rules.hpp>

namespace chunkmem::inline v0 {

/// The rules of training: a weight is held, in use, or overwritten by its gradient.
///
///     manager<backend::host_arena, training_rules> m{memory};  // the same type as manager<backend::host_arena>
///
/// `gradient` is a weight whose slot its own gradient has taken: reading the weight there is an error.
/// A tensor without bytes may be dropped: nothing happens, so that a step need not know whether it wrote the tensor.
/// Source: PatrickStar (Fang et al. 2021, arXiv 2108.05818), with `consume` added for gradients in place.
struct training_rules {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "training_rules";
  using enum tensor_state;
  using enum tensor_event;

  static constexpr transition table[] = {
      {free, materialize, hold},
      {free, drop, free},
      {hold, tensor_event::acquire, compute},
      {hold, drop, free},
      {compute, tensor_event::acquire, compute},
      {compute, consume, tensor_state::gradient},
      {compute, release, hold},
      {tensor_state::gradient, release, hold},
  };
};

static_assert(is_deterministic(training_rules::table), "training_rules: two rows share a state and an event");
static_assert(tensor_rules<training_rules>);

}  // namespace chunkmem::inline v0
