// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

namespace chunkmem::inline v0 {

namespace activation {

/// A plan in words and numbers, for people: its costs, then a letter for each block: K keep, S swap, R recompute.
///
///     std::cout << report_of(planned{}.plan(chain, budget));
///
/// ```
/// plan of karma: 0.412 s, 1.031 of a step with enough memory, 1.012 of the bound
/// moved 3.2 GB, recomputed 0.010 s, peak on the device 13.9 GB, on the host 1.6 GB
/// blocks SSRKKKKK
/// ```
/// Cost: O(blocks steps).
[[nodiscard]] inline std::string report_of(const activation_plan& plan)
{
  const auto giga = [](bytes size) { return static_cast<double>(size.count()) * 1e-9; };
  const auto over = [](double seconds, double base) { return base > 0 ? seconds / base : 0; };
  const plan_costs& costs = plan.costs;
  char line[512];
  std::string text = "plan of " + plan.planner + ": ";
  if (!costs.fits) {
    std::snprintf(line, sizeof line, "does not fit, %.6g GB are missing\n", giga(costs.missing));
    return text + line;
  }
  std::snprintf(line, sizeof line, "%.6g s, %.3f of a step with enough memory, %.3f of the bound\n", costs.seconds,
                over(costs.seconds, costs.unlimited_seconds), over(costs.seconds, costs.bound_seconds));
  text += line;
  std::snprintf(line, sizeof line,
                "moved %.6g GB, recomputed %.6g s, peak on the device %.6g GB, on the host %.6g GB\n",
                giga(costs.moved), costs.recomputed_seconds, giga(costs.device_peak), giga(costs.host_peak));
  text += line;
  text += "blocks ";
  for (std::uint32_t block = 0; block < plan.inner_leaves.size(); ++block)
    text += "KSR"[static_cast<std::size_t>(plan.action_of(block))];
  return text + '\n';
}

}  // namespace activation

}  // namespace chunkmem::inline v0
