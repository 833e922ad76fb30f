// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline under checks::full. Checks look at bytes, so they wait for agents: a link's receive that began
// early would never end if they waited for it, since the other stage waits for this one.
#include "checked_stages.hpp"
#include "rank_mistakes.hpp"

#include <chunkmem/manager/manager.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace stages_test {

using namespace checked_stages;

TEST_CASE("a pipeline trains under checks::full, with links on the backend of its manager", "[checks]")
{
  using manager_type = cm::manager<arena, cm::checks::full>;
  for (const pl::schedule& plan : schedules())
    for (const runs where : {runs::on_the_host, runs::on_compute, runs::on_an_adopted_agent}) {
      CAPTURE(plan.name, static_cast<int>(where));
      std::vector<float> found(plan.part_count(), 0);
      std::vector<std::uint64_t> evictions(plan.stage_count(), 0);
      pl::thread_stages{plan, patience}.run([&](pl::thread_stages::place& here) {
        const cm::bytes boundaries =
            pl::boundary_buffers{plan, here.stage(),
                                 std::vector<cm::bytes>(plan.part_count(), cm::bytes{width * sizeof(float)})}
                .size();
        // Room for a weight and its gradient.
        arena memory{{.device_capacity = boundaries + 512_B, .host_capacity = 64_KiB, .async_compute = true}};
        manager_type m{memory, {.chunk_bytes = 256_B}};
        train_stage(m, memory, plan, here, 0, where, found);
        m.verify();
        evictions[here.stage()] = m.report().evictions;
      });
      CHECK(found == train_plainly(plan.part_count(), plan.micro_batches, plan.batches, 1));
      if (plan.part_count() > 2)
        for (const std::uint64_t each : evictions) CHECK(each > 0);
    }
}

TEST_CASE("micro-batches whose gradient a stage forgot are named on every stage", "[checks]")
{
  using manager_type = cm::manager<arena, cm::checks::full>;
  struct forgetful_stage : checked_stage<manager_type> {
    using checked_stage::checked_stage;
    void backward(const pl::backward_run& run)
    {
      if (run.step.part != 1 || run.step.micro_batch % 2 == 0) return checked_stage::backward(run);
      for (float& it : floats(run.input_gradient)) it = 1;  // and no gradient of the weight
    }
  };
  const pl::schedule plan = make_schedule(pl::one_f_one_b{}, {.stages = 2, .micro_batches = 4, .batches = 1});
  std::vector<std::string> found(2);
  pl::thread_stages{plan, patience}.run([&](pl::thread_stages::place& here) {
    arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
    manager_type m{memory, {.chunk_bytes = 256_B}};
    forgetful_stage stage{m, memory, plan, here.stage(), 0, here.all(), cm::agent::host};
    found[here.stage()] =
        support::refusal<cm::usage_error>([&] { run_stage(stage, m, memory, plan, here, cm::agent::host); });
  });
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    CAPTURE(stage);
    CHECK_THAT(found[stage], Catch::Matchers::ContainsSubstring("was opened in 2 of 4 micro-batches"));
  }
  CHECK_THAT(found[0], Catch::Matchers::ContainsSubstring("rank 1 (stage 1): an optimizer step: the gradient of"));
}

TEST_CASE("a flip says that no version was read, whatever runs their steps named", "[checks]")
{
  using manager_type = cm::manager<arena, cm::checks::full>;
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager_type m{memory, {.chunk_bytes = 256_B}};
  const auto weight = m.add<float>({width}, cm::role::parameter);
  pl::weight_versions<manager_type> versions{m, 2, cm::dtype::float32};
  for (float& it : m.acquire(weight, access::write).span()) it = 1;
  versions.start();
  const auto batch = [&](bool reads_version) {
    {
      const auto scope = m.iteration("batch");
      if (versions.newest() > 0) (void)versions.update([] { return cm::optimizer::step_outcome{}; });
      if (reads_version)
        (void)versions.acquire(weight, versions.newest());
      else
        (void)m.acquire(weight, access::read);
    }
    versions.flip();
  };
  CHECK_NOTHROW(batch(true));
  CHECK_NOTHROW(batch(true));
  CHECK_THROWS_WITH(batch(false), Catch::Matchers::ContainsSubstring("no version of the weights was read since"));
  (void)versions.acquire(weight, versions.newest());
  CHECK_NOTHROW(versions.flip());
}

TEST_CASE("a stage that trains no weight flips without a version that was read", "[checks]")
{
  using manager_type = cm::manager<arena, cm::checks::full>;
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager_type m{memory, {.chunk_bytes = 256_B}};
  const auto weight = m.add<float>({width}, cm::role::frozen);
  pl::weight_versions<manager_type> versions{m, 2, cm::dtype::float32};
  for (float& it : m.acquire(weight, access::write).span()) it = 1;
  versions.start();
  CHECK_NOTHROW(versions.flip());
  (void)versions.update([] { return cm::optimizer::step_outcome{}; });
  CHECK_NOTHROW(versions.flip());
}

TEST_CASE("a stage whose weights may all lack a gradient takes the step of the others, else no stage updates",
          "[checks]")
{
  using manager_type = cm::manager<arena, cm::checks::full>;
  const pl::schedule plan = make_schedule(pl::one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::vector<std::string> said(2);
  std::vector<float> found(2, 0);
  std::vector<int> updated(2, 0);
  pl::thread_stages{plan, patience}.run([&](pl::thread_stages::place& here) {
    arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
    manager_type m{memory, {.chunk_bytes = 256_B}};
    const auto weight = m.add<float>({width}, cm::role::parameter);
    cm::optimizer::sgd sgd{{.momentum = 0}, {.masters = false}};
    m.use(sgd);
    for (float& it : m.acquire(weight, access::write).span()) it = 1;
    pl::stage_step<ends_type> steps{here.all()};
    const auto scope = m.iteration("batch");
    if (here.stage() == 0) {
      const auto gradient = m.gradient<float>(weight);
      for (float& it : gradient.span()) it = gradient.beta() + 1;
    }
    const auto take = [&] {
      return steps.take(m, sgd, {.learning_rate = 0.5F}, cm::on_this_thread,
                        [&](cm::tensor_handle) { return here.stage(); });
    };
    said[here.stage()] = support::refusal<cm::usage_error>([&] { (void)take(); });
    found[here.stage()] = m.acquire(weight, access::read).span()[0];
    if (here.stage() == 1) m.without_gradient(weight);
    updated[here.stage()] = take() == cm::optimizer::step_result::updated ? 1 : 0;
  });
  for (const std::string& it : said)
    CHECK_THAT(it, Catch::Matchers::ContainsSubstring("1 of 1 parameters have no gradient"));
  CHECK(found == std::vector{1.0F, 1.0F});
  CHECK(updated == std::vector{1, 1});
}

}  // namespace stages_test

namespace user_mistakes {

std::span<const user_mistake> of_pipelines()
{
  return rank_mistakes::with_pipelines;
}
std::span<const user_mistake> of_ranks()
{
  return rank_mistakes::with_ranks;
}

}  // namespace user_mistakes
