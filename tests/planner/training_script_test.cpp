#include <chunkmem/planner/training_script.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "random_workload.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
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
  return {shape, planner_test::random_setup(dice), dice.between(1, static_cast<std::uint32_t>(workload::parameters_of(shape)))};
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

TEST_CASE("what reads weights finds them in one of three units, gathered one use ahead", "[planner]")
{
  support::dice dice{14};
  for (int round = 0; round < 1'000; ++round) {
    const rolled it = roll(dice);
    const parameter_groups groups{it.shape, it.setup, it.size};
    const training_script script{groups, it.setup.recomputes_layers, 1e9};
    std::vector<std::uint32_t> gathered;  // groups, in the order of gathers
    for (const act& each : script.acts())
      if (each.gathers) gathered.push_back(each.id);
    std::map<std::uint32_t, std::uint32_t> unit;  // what lies in each
    std::uint32_t started = 0;
    for (const act& each : script.acts()) {
      if (each.kind != act_kind::use) continue;
      if (each.reads) {
        for (; started <= each.gather + 1 && started < gathered.size(); ++started)
          unit[started % training_script::gather_units] = gathered[started];
        REQUIRE(unit[each.gather % training_script::gather_units] == each.id);
      }
      if (each.makes_gradient && each.reads) unit[each.gather % training_script::gather_units] = UINT32_MAX;
    }
  }
}

}  // namespace training_script_test
