// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/transfer_policy.hpp>

#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

namespace transfer_policy_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else: demand paging, written down.
struct on_demand {
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "on_demand";
  static constexpr bool plans = true;
  void schedule(const transfer::schedule_input& input, std::vector<transfer::move>& actions)
  {
    actions.clear();
    for (const transfer::move& it : input.demand)
      if (it.kind != transfer::move_kind::vacate) actions.push_back(it);
  }
};
static_assert(transfer_policy<on_demand>);

struct without_schedule : on_demand {
  void schedule(const transfer::schedule_input&, std::vector<transfer::move>&) = delete;
};
struct silent_about_plans : on_demand {
 private:
  using on_demand::plans;
};
struct of_another_kind : on_demand {
  using policy_kind = eviction_kind;
};
static_assert(!transfer_policy<without_schedule> && !transfer_policy<silent_about_plans> &&
              !transfer_policy<of_another_kind>);

/// Also stays and early loads: the functions of the refined concepts, one at a time.
struct keeps_nothing : on_demand {
  transfer::iteration_plan retain(const transfer::retention_request&) { return {}; }
};
struct knows_early_loads : keeps_nothing {
  static std::vector<transfer::early_load> early_of(const access_record&, std::span<const std::uint32_t>,
                                                    const transfer::iteration_plan&, bytes, bytes)
  {
    return {};
  }
};
struct needs_an_object : keeps_nothing {
  std::vector<transfer::early_load> early_of(const access_record&, std::span<const std::uint32_t>,
                                             const transfer::iteration_plan&, bytes, bytes);
};
static_assert(!retaining_transfer<on_demand> && retaining_transfer<keeps_nothing>);
static_assert(!early_loading_transfer<keeps_nothing> && early_loading_transfer<knows_early_loads>);
static_assert(!early_loading_transfer<needs_an_object>);

/// A run with at least one load and one eviction.
conformance::demand_run busy_run()
{
  conformance::demand_run run;
  for (std::uint64_t seed = 1;; ++seed) {
    if (!conformance::roll_demand(seed, {}, false, run)) continue;
    bool load = false;
    bool evict = false;
    for (const transfer::move& it : run.demand) {
      load = load || it.kind == transfer::move_kind::load;
      evict = evict || it.kind == transfer::move_kind::evict;
    }
    if (load && evict) return run;
  }
}

}  // namespace

TEST_CASE("the laws of a transfer policy hold for demand paging itself", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<on_demand>() == 0);
}

TEST_CASE("the laws of a transfer policy notice each kind of mistake", "[transfer]")
{
  const conformance::demand_run run = busy_run();
  conformance::moves good;
  on_demand{}.schedule(run.input(true), good);
  REQUIRE(conformance::mistake_in_times(run.demand, good, true).empty());
  REQUIRE(conformance::mistake_when_followed(run, good).empty());
  std::size_t load = 0;
  while (good[load].kind != transfer::move_kind::load) ++load;

  conformance::moves bad = good;
  bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(load));
  CHECK_FALSE(conformance::mistake_in_times(run.demand, bad, true).empty());
  CHECK_FALSE(conformance::mistake_when_followed(run, bad).empty());

  bad = good;
  bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(load), bad[load]);
  CHECK_FALSE(conformance::mistake_in_times(run.demand, bad, true).empty());
  CHECK_FALSE(conformance::mistake_when_followed(run, bad).empty());

  bad = good;
  for (transfer::move& it : bad) ++it.access_index;
  CHECK(conformance::mistake_in_times(run.demand, bad, true) == "a move comes later than it is needed");
  CHECK_FALSE(conformance::mistake_when_followed(run, bad).empty());

  bad = good;
  for (transfer::move& it : bad) it.access_index = 0;  // before what they depend on
  CHECK_FALSE(conformance::mistake_when_followed(run, bad).empty());
}

}  // namespace transfer_policy_test
