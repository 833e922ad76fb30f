// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/split_rule.hpp>
#include <chunkmem/transfer/update_split.hpp>

namespace gpt {

/// The share of the updates on the device, the steps that led to it, and the rates of this rank.
struct measured_updates {
  chunkmem::optimizer::measured_split split;
  chunkmem::transfer::update_rates rates;
};

}  // namespace gpt
