// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace gpt {

/// Something the user can change: a wrong option, a text that cannot be read. The text is one sentence, with numbers.
class problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gpt
