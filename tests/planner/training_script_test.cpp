// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/training_script.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "random_workload.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace training_script_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

struct rolled {
  workload::transformer_shape shape;
  workload::training_setup setup;
  std::uint64_t size;
};

rolled roll(support::dice& dice)
{
  const workload::transformer_shape shape = planner_test::random_shape(dice);
  return {shape, planner_test::random_setup(dice),
          dice.between(1, static_cast<std::uint32_t>(workload::parameters_of(shape)))};
}

}  // namespace

TEST_CASE("leases are given back in reverse, and their highest sum is the peak of the costs", "[planner]")
{
  support::dice dice{11};
  for (int round = 0; round < 1'000; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script script{groups, it.setup.recomputes_layers, 1e9};
    std::vector<act> open;
    bytes now;
    bytes most;
    for (const act& each : script.acts()) {
      if (each.kind == act_kind::lease) {
        open.push_back(each);
        now += each.size;
        most = std::max(most, now);
      } else if (each.kind == act_kind::give) {
        REQUIRE(!open.empty());
        REQUIRE(open.back().id == each.id);
        now -= open.back().size;
        open.pop_back();
      }
    }
    CAPTURE(round, name_of(it.shape.style), it.setup.recomputes_layers, it.setup.has_logits);
    REQUIRE(open.empty());
    REQUIRE(most == groups.costs().peak());
  }
}

TEST_CASE("an iteration computes what the costs say, each use rounded up to a nanosecond", "[planner]")
{
  support::dice dice{12};
  for (int round = 0; round < 1'000; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script exact{groups, it.setup.recomputes_layers, 1e9};  // a FLOP a nanosecond
    REQUIRE(exact.nanoseconds() == groups.costs().step_flops());
    const training_script fast{groups, it.setup.recomputes_layers, 3e9};
    REQUIRE(fast.nanoseconds() >= groups.costs().step_flops() / 3);
    REQUIRE(fast.nanoseconds() <= groups.costs().step_flops() / 3 + 3 * fast.acts().size());
  }
}

TEST_CASE("each group has one last gradient, after all that reads it", "[planner]")
{
  support::dice dice{13};
  for (int round = 0; round < 1'000; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script script{groups, it.setup.recomputes_layers, 1e9};
    std::set<std::uint32_t> finished;
    bool is_back = false;
    for (const act& each : script.acts()) {
      is_back = is_back || each.kind == act_kind::backward;
      if (each.kind != act_kind::use) continue;
      REQUIRE(finished.count(each.id) == 0);
      REQUIRE((!each.makes_gradient || is_back));
      REQUIRE((!each.finishes_gradient || each.makes_gradient));
      if (each.finishes_gradient) finished.insert(each.id);
    }
    REQUIRE(finished.size() == groups.groups());
  }
}

TEST_CASE("what reads weights finds them in one of three units, gathered while the use before computes", "[planner]")
{
  support::dice dice{14};
  for (int round = 0; round < 1'000; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script script{groups, it.setup.recomputes_layers, 1e9,
                                 static_cast<std::uint32_t>(dice.between(3, 6))};
    const auto acts = script.acts();
    std::map<std::uint32_t, std::uint32_t> unit;  // what lies in each
    std::size_t next = 0;
    for (std::size_t index = 0; index < acts.size(); ++index) {
      for (; next < acts.size() && (!acts[next].gathers || acts[next].gathered_at <= index); ++next)
        if (acts[next].gathers) unit[acts[next].unit] = acts[next].id;
      REQUIRE(next >= index);
      const act& each = acts[index];
      if (!each.reads) continue;
      REQUIRE(each.unit < script.units());
      REQUIRE(unit[each.unit] == each.id);
      if (each.makes_gradient && (each.finishes_gradient || !script.keeps(each.id))) unit[each.unit] = UINT32_MAX;
    }
    // No gather waits for the use right before it, but for the first.
    std::size_t before = 0;
    for (std::size_t index = 0; index < acts.size(); ++index) {
      if (!acts[index].reads) continue;
      if (acts[index].gathers) REQUIRE(acts[index].gathered_at <= before);
      before = index;
    }
  }
}

TEST_CASE("groups spread over a pass are there before it, where three units are left for the others", "[planner]")
{
  support::dice dice{17};
  std::uint32_t seen = 0;
  for (int round = 0; round < 400; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const std::uint32_t units = 4 + dice.below(8);
    const std::uint32_t wanted = 1 + dice.below(8);
    const training_script script{groups, it.setup.recomputes_layers, 1e9, units, wanted};
    std::vector<std::uint32_t> unit_has(units, UINT32_MAX);
    std::vector<std::uint32_t> order;  // groups, by their first uses
    std::set<std::uint32_t> ahead;
    for (const act& each : script.acts()) {
      if (!each.is_ahead) continue;
      REQUIRE(ahead.insert(each.id).second);
      REQUIRE(std::exchange(unit_has[each.unit], each.id) == UINT32_MAX);
      REQUIRE(script.ahead(each.id) == &each);
    }
    REQUIRE(script.gathers_ahead() == ahead.size());
    for (const act& each : script.acts()) {
      if (each.kind == act_kind::backward) break;
      if (each.reads && std::ranges::find(order, each.id) == order.end()) order.push_back(each.id);
    }
    const std::size_t room = units > 3 + script.kept() ? units - 3 - script.kept() : 0;
    REQUIRE(ahead.size() == std::min({std::size_t{wanted}, room, order.size()}));
    std::set<std::uint32_t> spread;  // the last group of each of equal parts, rounded up
    for (std::size_t part = 1; part <= ahead.size(); ++part)
      spread.insert(order[(part * order.size() + ahead.size() - 1) / ahead.size() - 1]);
    REQUIRE(spread == ahead);
    for (const act& each : script.acts()) {
      if (!each.reads) continue;
      if (each.gathers) {
        REQUIRE(!each.is_ahead);
        unit_has[each.unit] = each.id;
      }
      REQUIRE(unit_has[each.unit] == each.id);
    }
    seen += static_cast<std::uint32_t>(ahead.size());
  }
  CHECK(seen > 400);
}

TEST_CASE("the gradient of a tied table stays in its units, where there are three more", "[planner]")
{
  support::dice dice{16};
  int kept = 0;
  int scattered = 0;
  for (int round = 0; round < 1'000; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script script{groups, it.setup.recomputes_layers, 1e9,
                                 static_cast<std::uint32_t>(dice.between(1, 12))};
    std::map<std::uint32_t, std::uint32_t> held;  // the unit of a gradient that has begun, by group
    std::set<std::uint32_t> tied;
    for (const act& each : script.acts()) {
      if (each.kind != act_kind::use) continue;
      for (const auto& [group, unit] : held)
        REQUIRE((each.id == group ? !each.gathers && each.unit == unit : !each.reads || each.unit != unit));
      if (each.makes_gradient && !each.finishes_gradient) {
        tied.insert(each.id);
        if (script.keeps(each.id)) held[each.id] = each.unit;
      }
      if (each.finishes_gradient) held.erase(each.id);
    }
    REQUIRE(held.empty());
    for (std::uint32_t group = 0; group < groups.groups(); ++group)
      REQUIRE(script.keeps(group) == (tied.contains(group) && script.units() >= tied.size() + 3));
    REQUIRE(script.kept() == (script.units() >= tied.size() + 3 ? tied.size() : 0));
    kept += script.kept() > 0 ? 1 : 0;
    scattered += !tied.empty() && script.kept() == 0 ? 1 : 0;
  }
  CHECK(kept > 50);
  CHECK(scattered > 50);
}

TEST_CASE("what fits three units is gathered once for each pass", "[planner]")
{
  support::dice dice{15};
  for (int round = 0; round < 300; ++round) {
    rolled it = roll(dice);
    it.shape.ties_embedding = false;
    const std::uint64_t all = workload::parameters_of(it.shape);
    it.size = (all + 2) / 3;
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script script{groups, it.setup.recomputes_layers, 1e9};
    std::size_t gathers = 0;
    for (const act& each : script.acts()) gathers += each.gathers ? 1 : 0;
    REQUIRE(gathers <= groups.groups());
  }
}

}  // namespace training_script_test
