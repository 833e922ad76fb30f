// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation.hpp"

#include <string>

namespace schedule_example {

/// A trace in Chrome's JSON format, which ui.perfetto.dev and chrome://tracing read. Each stage has a track for its
/// runs, one for its sends, and one for concurrent updates. Steps without length are left out.
[[nodiscard]] std::string trace_of(const simulation& it);

}  // namespace schedule_example
