// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/activation/pofo.hpp>
#include <chunkmem/activation/rotor.hpp>

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

namespace support {

/// Every planner of activations, chosen when the program runs, so that a matrix of tests needs one type of network.
struct chosen_planner {
  using policy_kind = chunkmem::activation_kind;
  static constexpr std::string_view name = "chosen_planner";
  static constexpr std::string_view names[] = {"keep_all", "swap_all", "recompute_all", "capacity_prefix",
                                               "karma",    "rotor",    "pofo",          "planned"};

  std::string_view choice = "planned";

  /// Where no plan of the chosen planner fits, the budget is that of keep_all: the manager's plan evicts chunks. Each
  /// plan of a program is made once. @threads   any
  [[nodiscard]] chunkmem::activation::activation_plan plan(const chunkmem::activation::layer_chain& chain,
                                                           const chunkmem::activation::activation_budget& budget) const
  {
    static std::mutex one_at_a_time;
    static std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t>, chunkmem::activation::activation_plan>
        made;
    const std::lock_guard lock{one_at_a_time};
    const auto key = std::tuple{choice, chunkmem::activation::chain_fingerprint(chain), budget.device.count()};
    if (const auto found = made.find(key); found != made.end()) return found->second;
    return made[key] = fresh_plan(chain, budget);
  }

 private:
  [[nodiscard]] chunkmem::activation::activation_plan fresh_plan(
      const chunkmem::activation::layer_chain& chain, const chunkmem::activation::activation_budget& budget) const
  {
    using namespace chunkmem::activation;
    const auto by = [&](const activation_budget& room) {
      if (choice == "keep_all") return keep_all{}.plan(chain, room);
      if (choice == "swap_all") return swap_all{}.plan(chain, room);
      if (choice == "recompute_all") return recompute_all{}.plan(chain, room);
      if (choice == "capacity_prefix") return capacity_prefix{}.plan(chain, room);
      if (choice == "karma") return karma{}.plan(chain, room);
      if (choice == "rotor") return rotor{}.plan(chain, room);
      if (choice == "pofo") return pofo{36}.plan(chain, room);  // a 27th of the time with its default slots
      return planned{}.plan(chain, room);
    };
    activation_plan made = by(budget);
    if (made.costs.fits) return made;
    activation_budget room = budget;
    room.device = chain.saved() * 4;
    return by(room);
  }
};

static_assert(chunkmem::activation::activation_planner<chosen_planner>);

}  // namespace support
