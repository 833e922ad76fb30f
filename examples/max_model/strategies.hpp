// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "elixir.hpp"
#include "gemini_auto.hpp"
#include "gemini_static.hpp"
#include "patrickstar.hpp"
#include "peak_formula.hpp"
#include "plain.hpp"
#include "planned.hpp"
#include "zero_offload.hpp"

#include <string_view>
#include <tuple>
#include <vector>

namespace max_model {

/// All strategies, in the order of the table.
using strategies =
    std::tuple<plain, zero_offload, patrickstar, gemini_static, gemini_auto, elixir, planned, peak_formula>;

/// Calls `visit` with each strategy.
template <class Visit>
void for_each_strategy(const Visit& visit)
{
  std::apply([&](const auto&... each) { (visit(each), ...); }, strategies{});
}

[[nodiscard]] inline std::vector<std::string_view> strategy_names()
{
  std::vector<std::string_view> names;
  for_each_strategy([&](const auto& it) { names.push_back(it.name); });
  return names;
}

}  // namespace max_model
