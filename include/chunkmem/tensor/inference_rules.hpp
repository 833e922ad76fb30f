// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/tensor_rules.hpp>

namespace chunkmem::inline v0 {

/// The rules of inference: weights are held or in use; a gradient is an error.
///
///     manager<backend::host_arena, inference_rules> m{memory};
///
/// A tensor without bytes may be dropped, and nothing happens.
struct inference_rules {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "inference_rules";
  using enum tensor_state;
  using enum tensor_event;

  static constexpr transition table[] = {
      {free, materialize, hold}, {free, drop, free},          {hold, acquire, compute},
      {hold, drop, free},        {compute, acquire, compute}, {compute, release, hold},
  };
};

static_assert(is_deterministic(inference_rules::table), "inference_rules: two rows share a state and an event");
static_assert(tensor_rules<inference_rules>);

}  // namespace chunkmem::inline v0
