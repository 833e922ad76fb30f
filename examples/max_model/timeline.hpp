// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation.hpp"

#include <iosfwd>

namespace max_model {

/// One simulated iteration as tools/plot.py reads it: what lies where, and when links and device are busy.
/// Levels are those that were seen when work was enqueued, drawn at the time when it ran. @pre   it fits
void write_timeline(std::ostream& out, const planner::training_forecast& run);

}  // namespace max_model
