// SPDX-License-Identifier: Apache-2.0
#include <conformance/activation_planner.hpp>

#include "verdict.hpp"

#include <chunkmem/activation/activation_planner.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace wrong_activations_test {

using namespace chunkmem;
using activation::activation_budget;
using activation::activation_plan;
using activation::layer_chain;

namespace {

/// Right: the first blocks leave, as few as need be. Each planner below has one mistake.
using prefix = activation::capacity_prefix;

/// Leaves the costs to others.
struct tells_no_costs : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    made.costs = {};
    return made;
  }
};
/// Hopes that copies take no time.
struct counts_runs_alone : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    if (made.costs.fits) made.costs.seconds = made.costs.unlimited_seconds + made.costs.recomputed_seconds;
    return made;
  }
};
/// Calls a plan that lacks little one that fits.
struct rounds_memory_up : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    made.costs.fits = made.costs.fits || made.costs.missing < bytes{5};
    return made;
  }
};
/// A plan that nobody signed.
struct has_no_name_in_plans : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    made.planner.clear();
    return made;
  }
};
/// Ends before the first block has run backward.
struct forgets_the_first_block : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    made.steps.pop_back();
    return made;
  }
};
/// Gives each later problem the plan of the first one.
struct remembers_the_first_plan : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    if (first_.steps.empty()) first_ = made;
    return first_;
  }
  mutable activation_plan first_;
};
/// Swaps every block from the fourth plan on, for safety.
struct becomes_careful : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    if (chain.size() < 2 || ++asked_ < 4) return prefix::plan(chain, budget);
    return activation::swap_all{}.plan(chain, budget);
  }
  mutable int asked_ = 0;
};
/// A copy begins with the default setting.
struct copies_no_setting : prefix {
  copies_no_setting() = default;
  explicit copies_no_setting(bool of_user) : recomputes{of_user} {}
  copies_no_setting(const copies_no_setting&) : copies_no_setting{} {}
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = activation::keep_all{}.plan(chain, budget);
    if (made.costs.fits || !recomputes) return made;
    return activation::recompute_all{}.plan(chain, budget);
  }
  bool recomputes = false;
};
/// Recomputes whatever the memory is.
struct recomputes_always : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return activation::recompute_all{}.plan(chain, budget);
  }
};
/// Throws where it should tell what is missing.
struct throws_where_nothing_fits : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    activation_plan made = prefix::plan(chain, budget);
    if (!made.costs.fits) throw usage_error{"the activations do not fit"};
    return made;
  }
};
/// A network without layers needs no memory.
struct plans_an_empty_chain : prefix {
  activation_plan plan(const layer_chain& chain, const activation_budget& budget) const
  {
    return chain.blocks.empty() ? activation_plan{} : prefix::plan(chain, budget);
  }
};
/// Looks at rates where copies are needed, and nowhere else.
struct takes_links_without_rates : prefix {
  activation_plan plan(const layer_chain& chain, activation_budget budget) const
  {
    if (!(budget.to_host_bytes_per_second > 0)) budget.to_host_bytes_per_second = 1;
    return prefix::plan(chain, budget);
  }
};
/// Takes a time that was not measured for 0.
struct takes_any_time : prefix {
  activation_plan plan(layer_chain chain, const activation_budget& budget) const
  {
    for (activation::chain_block& block : chain.blocks)
      if (!(block.forward_seconds >= 0)) block.forward_seconds = 0;
    return prefix::plan(chain, budget);
  }
};

template <class Planner>
laws::verdict judge(std::string_view law, const Planner& planner = {})
{
  return {laws::name_of<Planner>(), law, conformance::mistake_in_activation_planner(planner)};
}

}  // namespace

TEST_CASE("the laws of planners of activations hold for a prefix that leaves", "[laws][activation]")
{
  conformance::activation_planner_laws<prefix>();
}

}  // namespace wrong_activations_test

const laws::verdicts& laws::wrong_activations()
{
  using namespace wrong_activations_test;
  static const verdicts all{
      judge<tells_no_costs>("tells the contrary"),
      judge<counts_runs_alone>("costs are not those of the plan"),
      judge<rounds_memory_up>("a plan fits, or does not, and tells the contrary"),
      judge<has_no_name_in_plans>("a plan without the name of its planner"),
      judge<forgets_the_first_block>("a plan is not one of its chain"),
      judge<remembers_the_first_plan>("with all memory: costs are not those of the plan"),
      judge<becomes_careful>("two plans for one chain and one budget"),
      judge("a copy makes another plan", copies_no_setting{true}),
      judge<recomputes_always>("a plan with all memory is slower than a step with all memory"),
      judge<throws_where_nothing_fits>("a call threw what no law lets it throw"),
      judge<plans_an_empty_chain>("a chain without blocks was planned"),
      judge<takes_links_without_rates>("a link to the host without a rate was planned"),
      judge<takes_any_time>("a forward time that is no time was planned"),
  };
  return all;
}
