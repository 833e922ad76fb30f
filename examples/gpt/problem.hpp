// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace gpt {

/// An error that the user can correct: a wrong option, an unreadable text. The message is one sentence, with numbers.
class problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gpt
