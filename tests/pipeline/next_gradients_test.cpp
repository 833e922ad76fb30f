// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/pipeline/next_gradients.hpp>

#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

#include <support/catch.hpp>
#include <support/managed_weights.hpp>
#include <support/refusal.hpp>

#include "schedule_runs.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace next_gradients_test {

using namespace pipeline_test;
using Catch::Matchers::ContainsSubstring;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::managed_layers;
using support::manager_of_layers;
using support::width;

namespace {

const optimizer::step_options clipped{.learning_rate = 0.1F, .clip = {.norm = 1}};

/// One weight with a second set of gradients, and SGD.
struct one_weight {
  managed_layers<float> layers{8};
  next_gradients<manager_of_layers> gradients{layers.m()};
  optimizer::sgd sgd{{.momentum = 0}, {.masters = false}};

  one_weight()
  {
    layers.declare(0);
    layers.m().use(sgd);
    layers.fill();
  }
  /// @return   the sum in the end
  float add(std::uint32_t batch, float value)
  {
    float sum = 0;
    gradients.add<float>(layers[0], batch, [&](std::span<float> all, float beta) {
      if (layers.m().rehearsing()) return;
      for (float& it : all) it = (beta == 0 ? 0 : it) + value;
      sum = all[0];
    });
    return sum;
  }
  float gradient()
  {
    return layers.m().acquire<float>(layers[0], gradient_list, access::read, memory_location::device).span()[0];
  }
};

using support::refusal;

/// Two stages, each with one weight. @param work   `work(place, weight, steps)`
using work_of_stage = call_ref<void(thread_stages::place&, one_weight&, stage_step<collective::local_threads>&)>;
void on_two_stages(work_of_stage work)
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  thread_stages{plan, {.deadline = 5'000'000'000}}.run([&](thread_stages::place& here) {
    one_weight weight;
    stage_step steps{here.all()};
    const auto scope = weight.layers.m().iteration();
    work(here, weight, steps);
  });
}

}  // namespace

TEST_CASE("gradients of the batch behind the due one add up apart, and are adopted behind its update", "[pipeline]")
{
  one_weight it;
  const auto scope = it.layers.m().iteration();
  it.add(0, 1);
  CHECK(it.add(1, 10) == 10);
  CHECK(it.add(1, 5) == 15);
  CHECK(it.gradient() == 1);
  CHECK_THAT(refusal([&] { it.add(2, 1); }),
             ContainsSubstring("a gradient of batch 2 came, and the next update is that of "
                               "batch 0"));
  CHECK_THAT(refusal([&] { it.gradients.adopt<float>(); }), ContainsSubstring("take the step first"));
  CHECK(it.gradient() == 1);
  optimizer::step(it.layers.m(), it.sgd, clipped);
  it.gradients.adopt<float>();
  CHECK(it.gradients.due() == 1);
  CHECK(it.gradient() == 15);
  CHECK(it.add(1, 2) == 17);
  CHECK(it.add(2, 3) == 3);
  it.gradients.start(2);  // as behind a load
  it.layers.m().drop_gradients();
  CHECK(it.add(2, 4) == 4);
  CHECK(it.add(3, 5) == 5);
}

TEST_CASE("a rehearsal leaves the sets of gradients as they were", "[pipeline]")
{
  one_weight it;
  it.layers.m().rehearse([&] {
    for (std::uint32_t batch = 0; batch < 2; ++batch) {
      const auto scope = it.layers.m().iteration();
      it.add(batch, 1);
      it.add(batch + 1, 1);
      optimizer::step(it.layers.m(), it.sgd, clipped);
      it.gradients.adopt<float>();
    }
  });
  CHECK(it.gradients.due() == 0);
  const auto scope = it.layers.m().iteration();
  it.add(0, 1);
  CHECK(it.add(1, 10) == 10);
}

TEST_CASE("a step is not taken with other gradients or options than it was begun with", "[pipeline]")
{
  std::vector<std::vector<std::string>> said(2);
  std::vector<float> norms(2);
  on_two_stages([&](auto& here, one_weight& it, auto& steps) {
    manager_of_layers& m = it.layers.m();
    const std::uint32_t stage = here.stage();
    const auto number = [stage](tensor_handle) { return stage; };
    const auto take = [&](const optimizer::step_options& how) {
      return refusal([&] { (void)steps.take(m, it.sgd, how, on_this_thread, number); });
    };
    it.add(0, 1);
    steps.begin(m, it.sgd, clipped, number);
    said[stage].push_back(refusal([&] { steps.begin(m, it.sgd, clipped, number); }));
    said[stage].push_back(take({.learning_rate = 0.2F, .clip = {.norm = 1}}));
    it.add(0, std::numeric_limits<float>::infinity());
    said[stage].push_back(take(clipped));
    steps.forget();
    m.drop_gradients();
    it.add(0, 2);
    steps.begin(m, it.sgd, clipped, number);
    norms[stage] = static_cast<float>(steps.take(m, it.sgd, clipped, on_this_thread, number).norm);
  });
  for (const std::vector<std::string>& of_stage : said) {
    CHECK_THAT(of_stage.at(0), ContainsSubstring("begun twice"));
    CHECK_THAT(of_stage.at(1), ContainsSubstring("begun with other gradients or options"));
    CHECK_THAT(of_stage.at(2), ContainsSubstring("begun with other gradients or options"));
    CHECK(of_stage.size() == 3);
  }
  const float norm = 2 * std::sqrt(2.0F * width * width);
  CHECK(norms == std::vector{norm, norm});
}

TEST_CASE("an error that stages cannot tell each other ends their talk at once", "[pipeline]")
{
  std::vector<std::string> said(2);
  CHECK_THROWS_AS(on_two_stages([&](auto& here, one_weight& it, auto& steps) {
                    const std::uint32_t stage = here.stage();
                    it.add(0, 1);
                    const auto number = [stage](tensor_handle) {
                      if (stage == 1) throw std::domain_error{"no such weight"};
                      return stage;
                    };
                    steps.begin(it.layers.m(), it.sgd, clipped, number);
                    try {
                      (void)steps.take(it.layers.m(), it.sgd, clipped, on_this_thread, number);
                    } catch (const comm_error& gone) {
                      said[stage] = gone.what();
                      throw;
                    }
                  }),
                  std::domain_error);
  CHECK_THAT(said[0], ContainsSubstring("rank 1"));
  CHECK_THAT(said[0], !ContainsSubstring("did not come"));
  CHECK(said[1].empty());
}

}  // namespace next_gradients_test
