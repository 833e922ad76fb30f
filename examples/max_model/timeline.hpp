// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation.hpp"

#include <iosfwd>

namespace max_model {

/// One simulated iteration in the format of tools/plot.py: the place of chunks, and the times when links and device are
/// busy. Levels were recorded when work was enqueued, and are drawn at the time when it ran. @pre   it fits
void write_timeline(std::ostream& out, const planner::training_forecast& run);

}  // namespace max_model
