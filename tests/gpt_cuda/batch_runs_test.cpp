// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/batch_runs.hpp>

#include <gpt_cuda/small_training.hpp>
#include <support/catch.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace batch_runs_test {

namespace {

using namespace chunkmem::literals;
using namespace gpt_cuda_test;
using chunkmem::activation::activation_plan;
using chunkmem::activation::block_action;
using chunkmem::activation::chain_run;
using enum activation_mode;

constexpr gpt::extents size{.layers = 5, .width = 16, .heads = 2, .context = 17, .batch = 4, .micro_batches = 2};
constexpr std::size_t steps = 2;
constexpr std::uint64_t passes = steps * size.micro_batches;
/// Products, and the softmax of each window. Norms and GELU run again in either backward pass.
constexpr std::uint64_t kernels_of_a_layer_again = 3 + 3 * size.batch;
constexpr std::uint64_t saved_by_a_layer = 9 * 2 * size.batch * size.context * size.width;

/// With room for half of all activations, and a GPU so slow that a planner keeps, swaps and recomputes.
activation_plan plan_of(activation_mode choice)
{
  gpt::options chosen;
  chosen.size = size;
  chosen.device_rate = 1e12;
  const chunkmem::bytes most = gpt::cuda::plan_batch(keep, chosen, plenty).costs.device_peak;
  return gpt::cuda::plan_batch(choice, chosen, chunkmem::bytes{most.count() / 2});
}

std::uint64_t layers_that(const activation_plan& plan, block_action action)
{
  std::uint64_t count = 0;
  for (std::uint32_t layer = 0; layer < size.layers; ++layer) count += plan.action_of(layer) == action ? 1 : 0;
  return count;
}

/// A training on the smallest device that it works on.
struct capped_run {
  explicit capped_run(const variant& chosen, fake_schedule when = fake_schedule::latest)
      : smallest{world{plenty, chosen}.rehearse().smallest_device}
  {
    chunkmem::trace::chrome_trace trace;
    variant traced = chosen;
    traced.trace = &trace;
    world on{smallest, traced, when};
    result = train(on, steps);
    kernels = on.memory.runtime().calls("launch_kernel");
    const auto places = on.m.residency();
    for (const chunkmem::trace_event& each : trace.events())
      if (each.what == chunkmem::trace_event_kind::load || each.what == chunkmem::trace_event_kind::write_back)
        if (places.chunks[index_of(each.chunk)].part == chunkmem::role::activation) moved += each.bytes;
  }
  chunkmem::bytes smallest{};
  outcome result{};
  std::uint64_t kernels = 0;
  std::uint64_t moved = 0;  ///< bytes of chunks of activations, both ways
};

variant with(activation_mode choice, const activation_plan& plan)
{
  return {.size = size, .activations = choice, .plan = plan};
}

const outcome& expected()
{
  static const outcome unlimited = train(plenty, {.size = size}, fake_schedule::earliest, steps);
  return unlimited;
}

}  // namespace

TEST_CASE("activations are kept, swapped, computed again or planned on a GPU, and every bit stays the same",
          "[gpt_cuda]")
{
  CHECK(expected().faults.empty());
  const capped_run kept{with(keep, plan_of(keep))};
  const capped_run swapped{with(swap, plan_of(swap))};
  const capped_run again{with(recompute, plan_of(recompute))};
  for (const capped_run* const each : {&kept, &swapped, &again}) CHECK(each->result == expected());

  CHECK(swapped.kernels == kept.kernels);
  CHECK(again.kernels == kept.kernels + size.layers * passes * kernels_of_a_layer_again);
  CHECK(kept.moved == 0);
  CHECK(swapped.moved > 2 * (size.layers - 2) * passes * saved_by_a_layer);
  CHECK(again.moved < swapped.moved / 4);
  CHECK(swapped.smallest < kept.smallest);
  CHECK(again.smallest < kept.smallest);

  for (const activation_mode choice : {karma, planned}) {
    const activation_plan plan = plan_of(choice);
    const std::uint64_t layers_again =
        layers_that(plan, block_action::recompute) + layers_that(plan, block_action::recompute_from_host);
    CHECK(layers_again > 0);
    CHECK(layers_that(plan, block_action::swap) > 0);
    const capped_run mixed{with(choice, plan)};
    CHECK(mixed.result == expected());
    CHECK(mixed.kernels == kept.kernels + layers_again * passes * kernels_of_a_layer_again);
    CHECK(mixed.moved > 2 * passes * saved_by_a_layer);
    CHECK(mixed.moved < swapped.moved);
    CHECK(capped_run{with(choice, plan), fake_schedule::random}.result == expected());
  }
}

TEST_CASE("a trainer of the GPU without a plan keeps the input of each layer alone", "[gpt_cuda]")
{
  const capped_run without{with(swap, {})};
  const capped_run again{with(recompute, plan_of(recompute))};
  CHECK(without.result == expected());
  CHECK(without.smallest == again.smallest);
  CHECK(without.kernels == again.kernels);
  CHECK(without.moved == again.moved);
}

TEST_CASE("layers of a GPU run as often as a plan says, and save where it says so", "[gpt_cuda]")
{
  using enum chain_run;
  activation_plan plan;
  plan.inner_leaves.assign(size.layers, 0);
  plan.input_leaves.assign(size.layers, 0);
  plan.steps = {{passing, 0},  {passing, 1}, {passing, 2},  {passing, 3},  {saving, 4},
                {backward, 4}, {saving, 0},  {saving, 1},   {passing, 2},  {saving, 3},
                {backward, 3}, {saving, 2},  {backward, 2}, {backward, 1}, {backward, 0}};
  chunkmem::activation::expect_plan_fits(plan, size.layers);
  const capped_run run{with(planned, plan), fake_schedule::random};
  CHECK(run.result == expected());
  const capped_run kept{with(keep, plan_of(keep))};
  // Two layers run again in their backward runs; three more are whole, with norms, GELU and the last product.
  CHECK(run.kernels == kept.kernels + passes * (5 * kernels_of_a_layer_again + 3 * 4));
}

TEST_CASE("a plan for a GPU that keeps the first input alone moves fewer bytes than a plan that keeps each",
          "[gpt_cuda]")
{
  variant chosen = with(planned, plan_of(recompute));
  chosen.chunk = 2_KiB;
  const capped_run each_kept{chosen};
  chosen.plan.steps.clear();
  for (std::uint32_t layer = 0; layer < size.layers; ++layer) chosen.plan.steps.push_back({chain_run::passing, layer});
  for (std::uint32_t layer = size.layers; layer-- > 0;) {
    for (std::uint32_t before = 0; before < layer; ++before) chosen.plan.steps.push_back({chain_run::passing, before});
    chosen.plan.steps.push_back({chain_run::saving, layer});
    chosen.plan.steps.push_back({chain_run::backward, layer});
  }
  const capped_run first_kept{chosen};
  CHECK(first_kept.result == expected());
  CHECK(first_kept.moved < each_kept.moved);
}

TEST_CASE("a step of a GPU that was interrupted is tried again, and keeps nothing of the first time", "[gpt_cuda]")
{
  for (const activation_mode choice : {keep, swap, recompute, karma}) {
    world on{plenty, with(choice, plan_of(choice))};
    (void)on.rehearse();
    gpt::fill(on.m, on.net, 3);
    const float first = on.it.evaluate();
    const std::uint64_t begun = on.memory.runtime().calls("launch_kernel");
    on.memory.runtime().fail_call_of("launch_kernel", begun + 100, 1);
    CHECK_THROWS_AS(on.it.step(0), chunkmem::device_error);
    on.m.drop_gradients();
    CHECK(on.it.evaluate() == first);
    std::vector<std::uint32_t> losses{std::bit_cast<std::uint32_t>(first)};
    for (std::size_t number = 0; number < steps; ++number)
      losses.push_back(std::bit_cast<std::uint32_t>(on.it.step(number)));
    losses.push_back(std::bit_cast<std::uint32_t>(on.it.evaluate()));
    CHECK(losses == expected().losses);
    CHECK(on.it.parameter_hash() == expected().parameters);
  }
}

}  // namespace batch_runs_test
