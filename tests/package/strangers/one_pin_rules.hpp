// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/tensor_rules.hpp>

#include <string_view>

/// The rules of training with one pin at a time for each tensor, the one that a gradient was made of included.
///
/// Good for a trainer on several streams, where a second pin of a tensor would be a mistake that shows late; poor where
/// kernels share weights. A weight whose gradient took its place is simply held afterwards: passes of it are not told
/// apart.
struct one_pin_rules {
  using policy_kind = chunkmem::rules_kind;
  static constexpr std::string_view name = "one_pin_rules";
  using enum chunkmem::tensor_state;
  using enum chunkmem::tensor_event;

  static constexpr chunkmem::transition table[] = {
      {free, materialize, hold},
      {hold, acquire, compute},
      {hold, drop, free},
      {compute, spend, gradient},
      {compute, release, hold},
      {compute, release_forward, hold_after_forward},
      {compute, release_backward, hold_after_backward},
      {gradient, release, hold},
      {gradient, release_forward, hold},
      {gradient, release_backward, hold},
      {hold_after_forward, acquire, compute},
      {hold_after_forward, reset, hold},
      {hold_after_forward, drop, free},
      {hold_after_backward, acquire, compute},
      {hold_after_backward, reset, hold},
      {hold_after_backward, drop, free},
  };
};

static_assert(chunkmem::tensor_rules<one_pin_rules>);
