// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation.hpp"

#include <string>

namespace schedule_example {

/// An SVG picture: a row for each stage, time to the right, a rectangle for each run and update, a number in it where
/// there is room. Transfers are not drawn. The same simulation gives the same bytes.
[[nodiscard]] std::string picture_of(const simulation& it);

}  // namespace schedule_example
