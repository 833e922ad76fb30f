// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/report.hpp>

#include <string>

namespace support {

/// The decisions in a report: everything but the waits, which depend on the timing of threads.
[[nodiscard]] inline std::string decisions_in(chunkmem::report report)
{
  report.waits = {};
  report.stalls = {};
  return report.json();
}

}  // namespace support
