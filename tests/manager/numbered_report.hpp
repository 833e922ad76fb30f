// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/report.hpp>

#include <cstdint>
#include <map>
#include <string>

namespace report_rig {

using namespace chunkmem;

/// A report in which every number is different, and the names of its fields. Times are in nanoseconds.
inline std::map<std::string, std::uint64_t> fill(report& it)
{
  std::map<std::string, std::uint64_t> expected;
  std::uint64_t next = 101;
  const auto number = [&](const char* name) { return expected[name] = next++; };
  it.capacity[tier::device] = bytes{number("capacity_device_bytes")};
  it.capacity[tier::host] = bytes{number("capacity_host_bytes")};
  it.in_use[tier::device] = bytes{number("in_use_device_bytes")};
  it.in_use[tier::host] = bytes{number("in_use_host_bytes")};
  it.peak[tier::device] = bytes{number("peak_device_bytes")};
  it.peak[tier::host] = bytes{number("peak_host_bytes")};
  it.external_peak = bytes{number("external_peak_bytes")};
  it.loaded = bytes{number("loaded_bytes")};
  it.written_back = bytes{number("written_back_bytes")};
  it.loads = number("loads");
  it.write_backs = number("write_backs");
  it.evictions = number("evictions");
  it.waits = {number("waits_demand_miss"), number("waits_optimizer_input"), number("waits_throttle"),
              number("waits_other")};
  it.stalls = {number("waited_demand_miss_seconds"), number("waited_optimizer_input_seconds"),
               number("waited_throttle_seconds"), number("waited_other_seconds")};
  it.iterations = number("iterations");
  it.divergences = number("divergences");
  it.replans = number("replans");
  it.abandoned_plans = number("abandoned_plans");
  it.clean_starts = number("clean_starts");
  it.skipped_moves = number("skipped_moves");
  return expected;
}

}  // namespace report_rig
