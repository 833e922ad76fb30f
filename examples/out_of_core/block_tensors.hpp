// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_shape.hpp"
#include "memory.hpp"

namespace out_of_core {

/// The tensors that a block works on, apart from its weights.
///
/// A slope is the gradient of the loss with respect to an output. A backward callback takes the slope of the output and
/// leaves the slope of the input. A residual block has one tensor for both slopes.
struct block_tensors {
  manager& m;
  block_shape shape{};
  index batch = 0;
  tensor input{};
  tensor hidden{};  ///< of a residual block
  tensor output{};
  tensor slope{};           ///< of the output
  tensor slope_of_input{};  ///< unused in the first block
  bool is_first = false;
};

}  // namespace out_of_core
