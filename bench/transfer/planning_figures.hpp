// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../tests/support/figures.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace transfer_bench {

using support::figure;

/// Writes the figures of a program if the environment names a folder. @return   0 if all bounds are met
inline int write_figures(const std::string& program, const std::vector<figure>& figures)
{
  support::write_figures(program, "build/bench/bin/" + program, figures);
  return std::ranges::all_of(figures, &figure::is_met) ? 0 : 1;
}

}  // namespace transfer_bench
