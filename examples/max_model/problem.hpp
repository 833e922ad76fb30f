// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace max_model {

/// An error that the user can correct: a wrong option, an unknown name. The text is one sentence.
class problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace max_model
