// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/trainer.hpp>

#include <gpt_cuda/small_training.hpp>
#include <support/catch.hpp>
#include <support/sanitized.hpp>

#include <cstddef>
#include <vector>

namespace trainer_test {

using namespace chunkmem::literals;
using namespace gpt_cuda_test;

TEST_CASE("the GPT of the GPU has the same bits on any device, wherever it is updated", "[gpt_cuda]")
{
  using enum support::fake_schedule;
  const outcome unlimited = train(plenty, {}, earliest);
  CHECK(unlimited.faults.empty());
  for (const update_choice update : {update_choice::cpu, update_choice::gpu}) {
    for (const gradient_choice gradient : {gradient_choice::separate, gradient_choice::in_place}) {
      const variant chosen{.update = update, .gradient = gradient};
      INFO((update == update_choice::cpu ? "cpu " : "gpu ")
           << (gradient == gradient_choice::in_place ? "in place" : "separate"));
      const chunkmem::bytes smallest = world{plenty, chosen}.rehearse().smallest_device;
      CHECK(train(smallest, chosen, latest) == unlimited);
      if (!support::sanitized) CHECK(train(smallest + 32_KiB, chosen, random) == unlimited);
    }
  }
}

TEST_CASE(
    "the GPT of the GPU samples projections' inputs with the same bits on any device, and exactly at a ratio of 1",
    "[gpt_cuda]")
{
  using enum support::fake_schedule;
  variant chosen{.activations = activation_mode::swap};
  chunkmem::activation::set_actions(chosen.plan,
                                    std::vector(chosen.size.layers, chunkmem::activation::block_action::keep));
  const outcome exact = train(plenty, chosen, earliest);
  chosen.sample_ratio = 1;
  CHECK(train(plenty, chosen, earliest) == exact);
  chosen.sample_ratio = 0.3;
  const outcome sampled = train(plenty, chosen, earliest);
  CHECK(sampled.faults.empty());
  CHECK(sampled.parameters != exact.parameters);
  CHECK(sampled.losses.front() == exact.losses.front());
  CHECK(train(plenty, {.sample_ratio = 0.3}, earliest) == sampled);  // each layer is computed again
  for (const gradient_choice gradient : {gradient_choice::separate, gradient_choice::in_place}) {
    chosen.gradient = gradient;
    CHECK(train(world{plenty, chosen}.rehearse().smallest_device, chosen, latest) == sampled);
  }
}

TEST_CASE("the GPT of the GPU learns, and its capped run moves bytes", "[gpt_cuda]")
{
  world w{world{plenty}.rehearse().smallest_device};
  (void)w.rehearse();
  gpt::fill(w.m, w.net, 3);
  const float before = w.it.evaluate();
  for (std::size_t i = 0; i < 15; ++i) (void)w.it.step(i);
  CHECK(w.it.evaluate() < before - 1.0f);
  CHECK(w.m.report().loaded.count() > 0);
  CHECK(w.m.report().peak[chunkmem::tier::device] <= w.m.report().capacity[chunkmem::tier::device]);
}

}  // namespace trainer_test
