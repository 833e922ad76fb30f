// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/tensor_rules.hpp>

#include <string_view>

/// The rules of training with one pin at a time for each tensor, the one that a gradient was made of included.
///
/// Good for a trainer on several streams, where a second pin of a tensor would be a mistake that shows late; poor where
/// kernels share weights.
struct one_pin_rules {
  using policy_kind = chunkmem::rules_kind;
  static constexpr std::string_view name = "one_pin_rules";
  using enum chunkmem::tensor_state;
  using enum chunkmem::tensor_event;

  static constexpr chunkmem::transition table[] = {
      {free, materialize, hold},    {hold, acquire, compute}, {hold, drop, free},
      {compute, consume, gradient}, {compute, release, hold}, {gradient, release, hold},
  };
};

static_assert(chunkmem::tensor_rules<one_pin_rules>);
