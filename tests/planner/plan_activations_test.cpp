// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/plan_activations.hpp>

#include <chunkmem/planner/joint_step_bound.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>

#include "random_workload.hpp"
#include "tiny_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace plan_activations_test {

/// Layers that keep their activations, move them or run forward again, in the one budget of a rank.

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

layer_activations roll_activations(support::dice& dice, std::uint64_t layers)
{
  layer_activations made = layer_activations::all(layers, false, dice.one_in(2));
  for (std::uint8_t& again : made.again) again = dice.one_in(2) ? 1 : 0;
  return made;
}

/// The highest sum of leases.
bytes most_leased_by(const training_script& script)
{
  std::map<std::uint32_t, bytes> open;
  bytes now;
  bytes most;
  for (const act& it : script.acts()) {
    if (it.kind == act_kind::lease) {
      open[it.id] = it.size;
      now += it.size;
      most = std::max(most, now);
    } else if (it.kind == act_kind::give) {
      now -= open[it.id];
    }
  }
  return most;
}

rank_settings settings_of(double device_share)
{
  rank_settings made = tiny_plan::settings();
  made.chunk_elements = 2'048;
  made.device_update_share = device_share;
  return made;
}

}  // namespace

TEST_CASE("a script runs the layers forward again that it is told to, and no others", "[planner]")
{
  support::dice dice{21};
  for (int round = 0; round < 500; ++round) {
    const workload::transformer_shape shape = planner_test::random_shape(dice);
    workload::training_setup setup = planner_test::random_setup(dice);
    const std::uint64_t size = dice.between(1, static_cast<std::uint32_t>(workload::parameters_of(shape)));
    const layer_activations what = roll_activations(dice, shape.layers);
    const parameter_groups groups{shape, setup, size};
    const training_script script{groups, what, 1e9};  // a FLOP a nanosecond
    const workload::transformer_costs& costs = groups.costs();
    setup.recomputes_layers = false;
    const std::uint64_t once = workload::transformer_costs{shape, setup}.step_flops();
    CAPTURE(round, name_of(shape.style));
    CHECK(script.nanoseconds() == once + what.recomputed() * costs.layer().forward_flops);
    if (what.moves) continue;
    workload::training_setup again = setup;
    again.recomputes_layers = true;
    const bytes least = workload::transformer_costs{shape, again}.peak();
    CHECK(most_leased_by(script) >= least);
    CHECK(most_leased_by(script) <= workload::transformer_costs{shape, setup}.peak());
  }
}

TEST_CASE("activations that move are held while their layer works, and are dropped after it", "[planner]")
{
  support::dice dice{22};
  for (int round = 0; round < 200; ++round) {
    const workload::transformer_shape shape = planner_test::random_shape(dice);
    const workload::training_setup setup = planner_test::random_setup(dice);
    layer_activations what = roll_activations(dice, shape.layers);
    what.moves = true;
    const parameter_groups groups{shape, setup, workload::parameters_of(shape)};
    const training_script script{groups, what, 1e9};
    std::vector<int> state(shape.layers, 0);  // 0 dropped, 1 held in the forward pass, 2 let go of, 3 held again
    std::uint32_t last = 0;
    for (const act& it : script.acts()) {
      if (it.kind == act_kind::use && it.stage > 0 && it.stage <= shape.layers)
        REQUIRE((state[it.stage - 1] == 1 || state[it.stage - 1] == 3));
      if (it.kind == act_kind::save) REQUIRE(state[it.id]++ == 0);
      if (it.kind == act_kind::restore) REQUIRE(state[it.id]++ == 2);
      if (it.kind == act_kind::let_go) {
        REQUIRE(it.id == last);
        state[it.id] += state[it.id] == 1 ? 1 : 0;
      }
      if (it.kind == act_kind::drop) REQUIRE(std::exchange(state[it.id], 0) == 3);
      if (it.kind == act_kind::save || it.kind == act_kind::restore) {
        last = it.id;
        CHECK(it.size == (what.again[it.id] != 0 ? groups.costs().checkpoint() : groups.costs().layer().kept));
      }
    }
    CHECK(std::ranges::count(state, 0) == std::ssize(state));
  }
}

TEST_CASE("layers at equal distances are as many as were asked for", "[planner]")
{
  for (std::uint64_t layers = 1; layers <= 12; ++layers)
    for (std::uint64_t count = 0; count <= layers; ++count) {
      CHECK(layer_activations::spread(layers, count).recomputed() == count);
      CHECK(layer_activations::first(layers, count).recomputed() == count);
    }
  CHECK(layer_activations::spread(6, 3).again == std::vector<std::uint8_t>{0, 1, 0, 1, 0, 1});
  CHECK(layer_activations::first(4, 1).again == std::vector<std::uint8_t>{1, 0, 0, 0});
}

TEST_CASE("with room for everything, activations that may move stay, and a step takes as long", "[planner]")
{
  const workload::rank_share share = tiny_plan::share_of(4_MiB, 4_MiB);
  for (const bool again : {false, true}) {
    const auto forecast = [&](bool moves) {
      return forecast_training(tiny_plan::shape, {}, share, settings_of(1), layer_activations::all(3, again, moves));
    };
    const training_forecast still = forecast(false);
    const training_forecast moving = forecast(true);
    REQUIRE((still.fits && moving.fits));
    CHECK(moving.step.nanoseconds == still.step.nanoseconds);
    CHECK(moving.step.loaded_bytes == still.step.loaded_bytes);
  }
}

TEST_CASE("the chosen activations are no slower than running each layer again, and fit wherever that fits", "[planner]")
{
  int mixed = 0;
  int fitted = 0;
  for (const bytes device : {60_KiB, 90_KiB, 160_KiB, 1_MiB}) {
    const double share_on_device = device > 100_KiB ? 0.5 : 0;
    const workload::rank_share share = tiny_plan::share_of(device, 4_MiB);
    const rank_settings settings = settings_of(share_on_device);
    const workload::training_setup setup{.micro_batch = 2};
    std::size_t heard = 0;
    const activation_choice choice =
        plan_activations(tiny_plan::shape, setup, share, settings, [&](const activation_trial&) { ++heard; });
    CAPTURE(device.count(), share_on_device, choice.why_not);
    CHECK(heard == choice.trials.size());
    CHECK(choice.trials.size() <= most_activation_trials);
    CHECK(choice.fits == choice.why_not.empty());
    fitted += choice.fits ? 1 : 0;
    for (const bool moves : {false, true}) {
      const training_forecast all =
          forecast_training(tiny_plan::shape, setup, share, settings, layer_activations::all(3, true, moves));
      if (!all.fits) continue;
      REQUIRE(choice.fits);
      CHECK(choice.forecast.step.nanoseconds <= all.step.nanoseconds);
    }
    if (!choice.fits) continue;
    const std::uint64_t again = choice.activations.recomputed();
    mixed += again < 3 ? 1 : 0;
    const training_forecast same = forecast_training(tiny_plan::shape, setup, share, settings, choice.activations);
    CHECK(same.step.nanoseconds == choice.forecast.step.nanoseconds);
  }
  CHECK(fitted > 2);
  CHECK(mixed > 0);
}

TEST_CASE("no simulated step is shorter than the joint bound, whatever runs again or moves", "[planner]")
{
  int compared = 0;
  for (const bool norm : {false, true})
    for (const bytes device : {90_KiB, 300_KiB}) {
      if (support::sanitized && norm) continue;
      const double device_share = norm ? 0.6 : 0;
      rank_settings settings = settings_of(device_share);
      settings.takes_norm = norm;
      workload::training_setup setup{.micro_batch = 2};
      if (norm) setup.sampled = {.projection = 0.3, .mlp_up = 0.5, .mlp_down = 0.1};
      const workload::rank_share share = tiny_plan::share_of(device, 2_MiB);
      const joint_step_bound bound = joint_step_bound_of(tiny_plan::shape, setup, share, settings);
      for (std::uint32_t pattern = 0; pattern < 16; ++pattern) {
        layer_activations what = layer_activations::all(3, false, pattern >= 8);
        for (std::uint32_t layer = 0; layer < 3; ++layer) what.again[layer] = (pattern >> layer & 1U) != 0 ? 1 : 0;
        const training_forecast found = forecast_training(tiny_plan::shape, setup, share, settings, what);
        if (!found.fits) continue;
        CAPTURE(norm, device_share, device.count(), pattern, bound.recomputed, bound.swapped);
        REQUIRE(bound.step.fits);
        CHECK(bound.step.seconds <= static_cast<double>(found.step.nanoseconds) * 1e-9);
        ++compared;
      }
    }
  CHECK(compared > 20);
}

TEST_CASE("sampled inputs take the bytes and the time of their kept rows in the plan of a rank", "[planner]")
{
  const workload::training_setup exact{.micro_batch = 2};
  workload::training_setup sampled = exact;
  sampled.sampled = {.projection = 0.5, .mlp_down = 0.25};
  // 32 tokens, width 32, 64 inside the MLP: 16 and 8 rows stay, of 2 bytes a number, with an index and a scale each.
  constexpr std::uint64_t saved = (2 * 32 * 32 - 16 * (2 * 32 + 8)) + (2 * 32 * 64 - 8 * (2 * 64 + 8));
  const workload::transformer_costs of_exact{tiny_plan::shape, exact}, of_sampled{tiny_plan::shape, sampled};
  CHECK(of_exact.layer().kept - of_sampled.layer().kept == bytes{saved});
  // FLOP of a layer: the weights' products take 16 and 8 of 32 rows. Norms of rows, then of gradients, and scales.
  constexpr std::uint64_t spared = 2 * 16 * 32 * 32 + 2 * 24 * 64 * 32;
  constexpr std::uint64_t spent = 2 * 32 * (32 + 64) + 2 * 32 * (32 + 32) + (16 + 8) * 32;
  const workload::rank_share share = tiny_plan::share_of(4_MiB, 4_MiB);
  for (const bool moves : {false, true}) {
    const layer_activations what = layer_activations::all(3, false, moves);
    const training_forecast all = forecast_training(tiny_plan::shape, exact, share, settings_of(1), what);
    const training_forecast some = forecast_training(tiny_plan::shape, sampled, share, settings_of(1), what);
    REQUIRE((all.fits && some.fits));
    CHECK(all.step.computing - some.step.computing == 3 * (spared - spent));
    CHECK(all.need.smallest_device >= some.need.smallest_device);
    if (moves) {  // what layers keep are tensors of the manager
      const bytes saved_by_all = all.need.by_role[role::activation] - some.need.by_role[role::activation];
      CHECK(saved_by_all.count() == 3 * saved);
      continue;
    }
    const parameter_groups groups{tiny_plan::shape, sampled, 2'048};
    const training_script script{groups, what, 1e9};
    CHECK(some.need.largest_leases >= most_leased_by(script));
    CHECK(some.need.largest_leases <= most_leased_by(script) + bytes{256 * 8});  // as many are open at once, at most
  }
  // Where layers run again, they choose their rows again.
  const layer_activations again = layer_activations::all(3, true, true);
  const training_forecast twice = forecast_training(tiny_plan::shape, exact, share, settings_of(1), again);
  const training_forecast rows = forecast_training(tiny_plan::shape, sampled, share, settings_of(1), again);
  CHECK(twice.step.computing - rows.step.computing == 3 * (spared - spent - 2 * 32 * (32 + 64)));
  CHECK(twice.need.by_role[role::activation] == rows.need.by_role[role::activation]);
  for (const double wrong : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    sampled.sampled.mlp_up = wrong;
    CHECK_THROWS_WITH(plan_activations(tiny_plan::shape, sampled, share, settings_of(1)),
                      Catch::Matchers::ContainsSubstring("the input of mlp_up is sampled at a ratio of"));
  }
}

TEST_CASE("activations of another model are refused, and a choice that does not fit tells the least need", "[planner]")
{
  const workload::rank_share share = tiny_plan::share_of(4_MiB, 4_MiB);
  CHECK_THROWS_AS(forecast_training(tiny_plan::shape, {}, share, settings_of(1), layer_activations{}), config_error);
  CHECK_THROWS_AS(step_needs_of(tiny_plan::shape, {}, share, settings_of(1), layer_activations::all(4, true)),
                  config_error);
  const workload::rank_share small = tiny_plan::share_of(8_KiB, 4_MiB);
  const activation_choice none = plan_activations(tiny_plan::shape, {}, small, settings_of(0));
  const training_forecast least =
      forecast_training(tiny_plan::shape, {}, small, settings_of(0), layer_activations::all(3, true, true));
  CHECK_FALSE(none.fits);
  CHECK(none.why_not == least.why_not);
  CHECK(none.forecast.need.smallest_device == least.need.smallest_device);
}

TEST_CASE("the joint bound swaps over fast links and computes again beside slow ones", "[planner]")
{
  constexpr double endless = std::numeric_limits<double>::infinity();
  step_needs needs;
  needs.parameters = 1e3;
  needs.forward_seconds = 10, needs.backward_seconds = 20;
  needs.device_at_peak = needs.device_between = 1e6, needs.device_at_turn = 1e6;
  needs.host = endless;
  needs.rates = {endless, 1e12, 1e12, 0, 0, endless, endless, endless};
  const activation_needs activations{.layers = 10, .kept = 4e5, .input = 1e4, .again_seconds = 1};
  const joint_step_bound fast = joint_step_bound_of(needs, activations);
  CHECK(fast.recomputed == 0);
  CHECK(fast.step.seconds == Catch::Approx(30).epsilon(1e-4));
  needs.rates.to_device_bytes_per_second = needs.rates.to_host_bytes_per_second = 1;
  const joint_step_bound slow = joint_step_bound_of(needs, activations);
  // A million bytes hold two layers whole and eight inputs: 0.8e6 + 0.08e6.
  CHECK(slow.recomputed == 8);
  needs.device_at_turn = 10e6;
  CHECK(joint_step_bound_of(needs, activations).recomputed == 0);
}

}  // namespace plan_activations_test
