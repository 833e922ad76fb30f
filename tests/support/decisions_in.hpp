// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/report.hpp>

#include <string>

namespace support {

/// What a report says of decisions: all but the waits, which threads make longer or shorter from run to run.
[[nodiscard]] inline std::string decisions_in(chunkmem::report report)
{
  report.waits = {};
  report.stalls = {};
  return report.json();
}

}  // namespace support
