// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <support/catch.hpp>
#include <support/managed_weights.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include "schedule_runs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace managed_stages_test {

using namespace pipeline_test;
using chunkmem::pipeline::schedule;  // not that of a manager
using support::managed_recipe;
using support::train_managed_alone;
using support::vector_type;
using support::width;

namespace {

struct trained {
  std::vector<vector_type> weights;
  std::uint64_t evictions = 0;
  std::uint32_t skipped = 0;
};

/// Runs a schedule on threads, with a manager on each stage.
/// The device of a stage has room for fewer chunks than one part has.
template <class Element, class Kernel>
trained train(const schedule& plan, const Kernel& kernel, const managed_recipe& how)
{
  const std::uint32_t chunks = plan.versions == 1 ? 1 : 2;
  using weights_type = support::managed_weights<Element, Kernel, collective::local_threads>;
  trained found{.weights = std::vector<vector_type>(plan.part_count())};
  std::vector<std::uint64_t> evictions(plan.stage_count());
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + bytes{4'096}}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + bytes{1}),
                                          buffers.size().count()};
    auto links = here.links(memory);
    support::stage_of_layers<weights_type> stage{plan, here.stage(), here.all(), kernel, how, chunks};
    stage_runner runner{plan, links, memory, buffers, boundaries};
    runner.run(stage);
    if (!stage.is_clean()) throw std::logic_error{"something was left over"};
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) found.weights[part] = stage.weights().newest(part);
    evictions[here.stage()] = stage.weights().report().evictions;
    if (here.stage() == 0) found.skipped = stage.weights().skipped();
  });
  for (const std::uint64_t each : evictions) found.evictions += each;
  return found;
}

template <class Element, class Kernel>
void has_the_bits_of_one_device(const schedule& plan, const Kernel& kernel, const managed_recipe& how = {})
{
  CAPTURE(plan.name, plan.stage_count(), plan.micro_batches, plan.versions);
  const trained found = train<Element>(plan, kernel, how);
  CHECK(found.weights == train_managed_alone<Element>(plan, kernel, how));
  CHECK(found.skipped == (how.infinite_batch < plan.batches ? 1 : 0));
  CHECK((found.evictions > 0 || how.on_device));  // a lease of its kernels is larger than three weights
}

optimizer::adam adam(float decay, bool masters)
{
  return optimizer::adam{{.weight_decay = decay}, {.masters = masters}};
}

/// Every optimizer, for float32, and for bfloat16 with masters. Sanitizers see one of each type.
void every_optimizer(const schedule& plan, const managed_recipe& how = {})
{
  has_the_bits_of_one_device<bf16>(plan, adam(0.01F, true), how);
  has_the_bits_of_one_device<float>(plan, optimizer::sgd{{.momentum = 0.9F}, {.masters = false}}, how);
  if constexpr (!support::sanitized) {
    has_the_bits_of_one_device<float>(plan, adam(0, false), how);
    has_the_bits_of_one_device<bf16>(plan, optimizer::sgd{{.momentum = 0.0F}, {.masters = true}}, how);
  }
}

}  // namespace

TEST_CASE("stages with managers have the bits of delayed training on one device", "[pipeline][delayed]")
{
  struct shape {
    std::uint32_t d, m;
  };
  for (const auto [d, m] : {shape{1, 1}, {1, 4}, {2, 2}, {3, 3}, {4, 4}, {4, 7}, {8, 8}, {8, 16}}) {
    if (support::sanitized && d != 3) continue;
    every_optimizer(make_schedule(pipedream_2bw{}, {.stages = d, .micro_batches = m, .batches = 6}));
  }
  every_optimizer(make_schedule(pipedream_2bw{.versions = 4}, {.stages = 4, .micro_batches = 1, .batches = 9}));
}

TEST_CASE("stages with managers have the bits of one device that adds up micro-batches", "[pipeline]")
{
  const pipeline_shape shape{.stages = 4, .micro_batches = 4, .batches = 3};
  for (const schedule& plan :
       {make_schedule(gpipe{}, shape), make_schedule(one_f_one_b{}, shape),
        make_schedule(interleaved{.parts = 2}, shape), make_schedule(zb_h1{}, shape), make_schedule(zb_v{}, shape)})
    has_the_bits_of_one_device<bf16>(plan, adam(0.01F, true));
}

TEST_CASE("updates that wait until their weights are read have the bits of one device", "[pipeline][delayed]")
{
  managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}, .is_late = true};
  const pipeline_shape shape{.stages = 3, .micro_batches = 4, .batches = 6};
  for (const schedule& plan :
       {make_schedule(one_f_one_b{}, shape), make_schedule(zb_v{}, shape), make_schedule(pipedream_2bw{}, shape),
        make_schedule(pipedream_2bw{.for_all_stages = true}, shape)})
    for (const std::uint32_t infinite : {UINT32_MAX, 2U}) {
      how.infinite_batch = infinite;
      every_optimizer(plan, how);
    }
}

TEST_CASE("updates on the device that stages decide have the bits of one device", "[pipeline][delayed]")
{
  managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}, .on_device = true};
  const pipeline_shape shape{.stages = 3, .micro_batches = 4, .batches = 5};
  for (const schedule& plan : {make_schedule(one_f_one_b{}, shape), make_schedule(pipedream_2bw{}, shape)})
    for (const std::uint32_t infinite : {UINT32_MAX, 2U}) {
      how.infinite_batch = infinite;
      every_optimizer(plan, how);
    }
}

TEST_CASE("all stages clip by one norm, and skip together", "[pipeline][delayed]")
{
  for (const std::uint32_t versions : {2U, 3U}) {
    const schedule plan =
        make_schedule(pipedream_2bw{.versions = versions}, {.stages = 3, .micro_batches = 4, .batches = 7});
    managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}};
    every_optimizer(plan, how);
    how.infinite_batch = 2;
    every_optimizer(plan, how);
  }
}

TEST_CASE("updates for all stages in the slack have the bits of delayed training on one device", "[pipeline][delayed]")
{
  managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}};
  for (const std::uint32_t delay : {0U, 1U, 3U}) {
    const schedule plan = make_schedule(pipedream_2bw{.update_delay = delay, .for_all_stages = true},
                                        {.stages = 4, .micro_batches = 7, .batches = 7});
    CHECK(plan.gradient_sets == 2);
    how.infinite_batch = UINT32_MAX;
    every_optimizer(plan, how);
    how.infinite_batch = 2;
    every_optimizer(plan, how);
  }
  how.infinite_batch = 1;
  every_optimizer(make_schedule(pipedream_2bw{.versions = 3, .for_all_stages = true},
                                {.stages = 3, .micro_batches = 3, .batches = 9}),
                  how);
}

TEST_CASE("batches that overlap have loss scales", "[pipeline][delayed]")
{
  managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}, .infinite_batch = 3, .scales = true};
  const pipeline_shape shape{.stages = 3, .micro_batches = 4, .batches = 9};
  every_optimizer(make_schedule(pipedream_2bw{}, shape), how);
  every_optimizer(make_schedule(pipedream_2bw{.for_all_stages = true}, shape), how);
  every_optimizer(make_schedule(pipedream_2bw{.versions = 3, .update_delay = 1, .for_all_stages = true}, shape), how);
}

TEST_CASE("batches with two sets of gradients follow their plans", "[pipeline]")
{
  using weights_type = support::managed_weights<bf16, optimizer::adam, collective::local_threads>;
  struct watched_stage : support::stage_of_layers<weights_type> {
    using stage_of_layers::stage_of_layers;
    void update(const operation& step)
    {
      stage_of_layers::update(step);
      reports.push_back(weights().report());
    }
    std::vector<chunkmem::report> reports{};
  };
  const schedule plan =
      make_schedule(pipedream_2bw{.for_all_stages = true}, {.stages = 3, .micro_batches = 4, .batches = 16});
  const managed_recipe how{.options = {.learning_rate = 0.05F, .clip = {.norm = 0.3F}}};
  const optimizer::adam kernel = adam(0.01F, true);
  std::vector<std::vector<chunkmem::report>> reports(plan.stage_count());
  const std::vector<bytes> inputs(plan.part_count(), bytes{width * sizeof(float)});
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const boundary_buffers buffers{plan, here.stage(), inputs};
    backend::host_arena memory{{.device_capacity = buffers.size() + bytes{4'096}}};
    const std::span<std::byte> boundaries{memory.allocate(tier::device, buffers.size() + bytes{1}),
                                          buffers.size().count()};
    auto links = here.links(memory);
    watched_stage stage{plan, here.stage(), here.all(), kernel, how, 2U};
    stage_runner runner{plan, links, memory, buffers, boundaries};
    runner.run(stage);
    reports[here.stage()] = stage.reports;
  });
  for (const std::vector<chunkmem::report>& of_stage : reports) {
    REQUIRE(of_stage.size() == plan.batches);
    const chunkmem::report& early = of_stage[6];
    const chunkmem::report& late = of_stage[13];  // behind it batches have no other one behind them
    CHECK(late.divergences == early.divergences);
    CHECK(late.replans == early.replans);
    CHECK(late.abandoned_plans == early.abandoned_plans);
    CHECK(late.evictions > early.evictions);
  }
}

TEST_CASE("a rehearsal of a step reads the gradients that the step measures", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  for (const bool begins : {false, true}) {
    std::vector<std::uint32_t> rehearsed(2), recorded(2);
    thread_stages{plan}.run([&](thread_stages::place& here) {
      support::managed_layers<float> layers{3};
      layers.declare(here.stage());
      layers.declare(2 + here.stage());
      optimizer::sgd sgd{{}, {.masters = false}};
      layers.m().use(sgd);
      layers.fill();
      stage_step steps{here.all()};
      const optimizer::step_options options{.learning_rate = 0.1F, .clip = {.norm = 1}};
      const auto number = [&](tensor_handle it) { return layers.part_of(it); };
      const auto train = [&] {
        const auto scope = layers.m().iteration();
        for (const auto& [part, weight] : layers.parts()) {
          const auto pin = layers.m().gradient<float>(weight);
          if (!layers.m().rehearsing()) std::ranges::fill(pin.span(), 1.0F);
        }
        if (begins) steps.begin(layers.m(), sgd, options, number);
        (void)steps.take(layers.m(), sgd, options, on_this_thread, number);
      };
      (void)layers.m().rehearse(train);
      rehearsed[here.stage()] = layers.m().rehearsed().size();
      train();
      recorded[here.stage()] = layers.m().profile()->size();
    });
    CHECK(rehearsed == recorded);
    CHECK(rehearsed[0] > 0);
  }
}

TEST_CASE("stages clip by a norm that is not finite as PyTorch does, and take a step with the options of its begin",
          "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::vector<std::string> wrong(2);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    support::managed_layers<float> layers{8};
    layers.declare(here.stage());
    optimizer::sgd sgd{{.momentum = 0.0F}, {.masters = false}};
    layers.m().use(sgd);
    layers.fill();
    stage_step steps{here.all()};
    const auto number = [&](tensor_handle) { return here.stage(); };
    const auto values = [&] {
      const auto pin = layers.m().acquire(layers.parts().begin()->second, access::read);
      return std::vector<float>(pin.span().begin(), pin.span().end());
    };
    const auto differentiate = [&](float first) {
      vector_type gradient(width * width, 1);
      gradient[0] = first;
      layers.set_gradient(here.stage(), gradient);
    };
    const std::vector<float> before = values();
    {
      const auto scope = layers.m().iteration();
      differentiate(here.stage() == 0 ? std::numeric_limits<float>::infinity() : 1.0F);
      const optimizer::step_options options{.learning_rate = 0.5F, .clip = {.norm = 1}, .skip_nonfinite = false};
      if (steps.take(layers.m(), sgd, options, on_this_thread, number).norm != std::numeric_limits<double>::infinity())
        wrong[here.stage()] += "another norm ";
    }
    std::vector<float> after = values();
    if (here.stage() == 0 && !std::isnan(after[0])) wrong[0] += "no NaN where the gradient was infinite ";
    after[0] = before[0];
    if (after != before) wrong[here.stage()] += "clipped to something ";
    const optimizer::step_options options{.learning_rate = 0.5F};
    const auto scope = layers.m().iteration();
    differentiate(1.0F);
    steps.begin(layers.m(), sgd, options, number);
    sgd.group(group_id{0}, {.momentum = 0.0F, .weight_decay = 9.0F});
    try {
      (void)steps.take(layers.m(), sgd, options, on_this_thread, number);
      wrong[here.stage()] += "other options of a group were taken ";
    } catch (const usage_error&) {
    }
    sgd.group(group_id{0}, {.momentum = 0.0F});
    (void)steps.take(layers.m(), sgd, options, on_this_thread, number);
    if (values()[1] != before[1] - 0.5F) wrong[here.stage()] += "another update";
  });
  for (const std::string& it : wrong) CHECK(it == "");
}

TEST_CASE("stages refuse a step with other options, and none of them waits", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::vector<int> refused(2, 0);
  std::vector<int> updated(2, 0);
  std::vector<std::string> said(2);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    support::managed_layers<float> layers{8};
    layers.declare(here.stage());
    optimizer::sgd sgd{{}, {.masters = false}};
    layers.m().use(sgd);
    layers.fill();
    stage_step steps{here.all()};
    auto scope = layers.m().iteration();
    layers.set_gradient(here.stage(), vector_type(width * width, 1 + static_cast<float>(here.stage())));
    const auto number = [&](tensor_handle) { return here.stage(); };
    const auto step_by = [&](float rate) {
      return steps.take(layers.m(), sgd, {.learning_rate = rate}, on_this_thread, number);
    };
    try {
      (void)step_by(here.stage() == 0 ? 0.1F : 0.2F);
    } catch (const usage_error&) {
      ++refused[here.stage()];
    }
    try {
      (void)step_by(here.stage() == 0 ? 0.1F : -1.0F);  // one stage cannot take it
    } catch (const usage_error&) {
      ++refused[here.stage()];
    }
    try {
      (void)steps.take(layers.m(), sgd, {.learning_rate = 0.1F, .clip = {.norm = here.stage() == 0 ? 1.0F : -1.0F}},
                       on_this_thread, number);
    } catch (const usage_error&) {
      ++refused[here.stage()];
    }
    try {  // two weights with one number
      (void)steps.take(layers.m(), sgd, {.learning_rate = 0.1F, .clip = {.norm = 1}}, on_this_thread,
                       [](tensor_handle) { return 0U; });
    } catch (const usage_error&) {
      ++refused[here.stage()];
    }
    sgd.group(group_id{0}, {.weight_decay = here.stage() == 0 ? 0.0F : 0.5F});
    try {  // kernels with other options
      (void)step_by(0.1F);
    } catch (const usage_error& other) {
      said[here.stage()] = other.what();
    }
    if (here.stage() == 1) sgd.group(group_id{0}, {});  // which are the common ones
    updated[here.stage()] = step_by(0.1F) == optimizer::step_result::updated ? 1 : 0;
  });
  CHECK(updated == std::vector{1, 1});
  CHECK(refused == std::vector{4, 4});
  for (const std::string& it : said)
    CHECK_THAT(it,
               Catch::Matchers::ContainsSubstring("stages take different steps: weight_decay of group 0 = 0.5 on stage "
                                                  "1, and other settings of this group on stage 0 ("));
}

TEST_CASE("stages compare the options that all groups share, and of groups that own weights on several stages",
          "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 3});
  std::vector<std::vector<std::string>> said(3);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    const std::uint32_t stage = here.stage();
    support::managed_layers<float> layers{8};
    const auto weight = layers.m().add<float>({4}, role::parameter, group_id{stage == 0 ? 0U : 1U});
    optimizer::sgd sgd{{}, {.masters = false}};
    layers.m().use(sgd);
    std::ranges::fill(layers.m().acquire(weight, access::write).span(), 1.0F);
    stage_step steps{here.all()};
    const auto step_by = [&](const optimizer::step_options& options) {
      const auto scope = layers.m().iteration();
      std::ranges::fill(layers.m().gradient<float>(weight).span(), 1.0F);
      std::string& found = said[stage].emplace_back();
      try {
        (void)steps.take(layers.m(), sgd, options, on_this_thread, [&](tensor_handle) { return stage; });
      } catch (const usage_error& refused) {
        found = refused.what();
        steps.forget();
        layers.m().drop_gradients();
      }
    };
    const std::vector<float> few{0.5F}, rates{0.5F, 0.25F}, others{0.5F, 0.125F};
    for (const bool needs_norm : {false, true}) {
      optimizer::step_options options{.learning_rate = 0.5F, .skip_nonfinite = needs_norm};
      sgd.group(group_id{0}, {}).group(group_id{1}, {});
      if (stage > 0) sgd.group(group_id{1}, {.rate_factor = 0.5F});
      step_by(options);
      sgd.group(group_id{1}, {.rate_factor = stage == 0 ? 9.0F : 0.5F});  // stage 0 owns no weight of it
      step_by(options);
      options.group_rates = stage == 0 ? few : rates;
      step_by(options);
      options.group_rates = stage == 0 ? few : stage == 1 ? rates : others;
      step_by(options);
      options.group_rates = {};
      if (stage == 2) sgd.group(group_id{1}, {.momentum = 0.5F});
      step_by(options);
      if (stage == 2) sgd.group(group_id{1}, {});
      step_by(options);
    }
  });
  for (const std::vector<std::string>& of_stage : said) {
    REQUIRE(of_stage.size() == 12);
    for (const std::size_t first : {0U, 6U}) {
      for (const std::size_t same : {0U, 1U, 2U}) CHECK(of_stage[first + same] == "");
      CHECK_THAT(of_stage[first + 3],
                 Catch::Matchers::ContainsSubstring("learning rate of group 1 = 0.25, rate_factor of group 1 = 0.5 on "
                                                    "stage 1, and other settings of this group on stage 2 ("));
      CHECK_THAT(of_stage[first + 4],
                 Catch::Matchers::ContainsSubstring("rate_factor of group 1 = 0.5 on stage 1, and"));
      CHECK_THAT(of_stage[first + 5],
                 Catch::Matchers::ContainsSubstring("rate_factor of group 1 = 0.5 on stage 1, and"));
    }
  }
}

TEST_CASE("a stage without a gradient takes the step of the others, and one without any gradient is refused",
          "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 2, .micro_batches = 2});
  std::vector<std::string> said(2);
  std::vector<int> updated(2, 0);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    support::managed_layers<float> layers{8};
    layers.declare(here.stage());
    optimizer::sgd sgd{{}, {.masters = false}};
    layers.m().use(sgd);
    layers.fill();
    stage_step steps{here.all()};
    const auto number = [&](tensor_handle) { return here.stage(); };
    for (const bool needs_norm : {false, true}) {
      const auto scope = layers.m().iteration();
      const optimizer::step_options options{.learning_rate = 0.5F, .skip_nonfinite = needs_norm};
      const auto take = [&] { return steps.take(layers.m(), sgd, options, on_this_thread, number); };
      said[here.stage()] += support::refusal<usage_error>([&] { (void)take(); });
      if (here.stage() == 0) layers.set_gradient(0, vector_type(width * width, 1));
      if (needs_norm) steps.begin(layers.m(), sgd, options, number);
      updated[here.stage()] += take() == optimizer::step_result::updated ? 1 : 0;
    }
  });
  CHECK(updated == std::vector{2, 2});
  for (const std::string& it : said) {
    constexpr std::string_view sentence = "a step of all stages, and none of them has a gradient";
    const std::size_t first = it.find(sentence);
    REQUIRE(first != std::string::npos);
    CHECK(it.find(sentence, first + 1) != std::string::npos);
  }
}

TEST_CASE("copies of a weight that have missed other numbers of updates are found, and named", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 3});
  std::vector<std::vector<std::string>> said(3);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    support::managed_layers<float> layers{8};
    layers.declare(here.stage());
    optimizer::adam adam{{}, {.masters = false}};
    layers.m().use(adam);
    layers.fill();
    adam.progress.number = 3;
    adam.progress.missed.make_room(1);
    stage_step steps{here.all()};
    const auto number = [&](tensor_handle) { return here.stage() == 1 ? 1U : 0U; };  // stage 2 has a copy of part 0
    const auto miss = [&] {
      adam.progress.missed.note(0);
      adam.progress.missed.end();
    };
    const auto take = [&](bool needs_norm, bool begins) -> std::string {
      const auto scope = layers.m().iteration();
      layers.set_gradient(here.stage(), vector_type(width * width, here.stage() == 1 ? 2.0F : 1.0F));
      const optimizer::step_options options{.skip_nonfinite = needs_norm};
      std::string result;
      try {
        if (begins) steps.begin(layers.m(), adam, options, number);
        (void)steps.take(layers.m(), adam, options, on_this_thread, number);
      } catch (const usage_error& refused) {
        result = refused.what();
        steps.forget();
        layers.m().drop_gradients();
      }
      return result;
    };
    for (const bool needs_norm : {false, true})
      for (const bool begins : {false, true}) {
        said[here.stage()].push_back(take(needs_norm, begins));
        if (here.stage() == 2) miss();
        said[here.stage()].push_back(take(needs_norm, begins));
        if (here.stage() == 0) miss();
        if (here.stage() == 1 && begins) miss();  // nobody has a copy of it
      }
  });
  for (const std::vector<std::string>& of_stage : said) {
    REQUIRE(of_stage.size() == 8);
    for (std::uint64_t turn = 0; turn < 4; ++turn) {
      CHECK(of_stage[2 * turn] == "");
      CHECK_THAT(of_stage[2 * turn + 1], Catch::Matchers::ContainsSubstring(
                                             "stages take different steps: part 0 has missed " + std::to_string(turn) +
                                             " updates on stage 0, and its copy on stage 2 has "
                                             "missed " +
                                             std::to_string(turn + 1)));
    }
  }
}

TEST_CASE("copies of a weight that stages filled with other values are found", "[pipeline]")
{
  const schedule plan = make_schedule(one_f_one_b{}, {.stages = 3, .micro_batches = 3});
  std::vector<std::string> said(3);
  std::vector<int> passed(3, 0);
  thread_stages{plan}.run([&](thread_stages::place& here) {
    support::managed_layers<float> layers{8};
    layers.declare(here.stage());
    layers.fill();  // with values of the stage
    stage_step steps{here.all()};
    const bool has_copy = here.stage() != 1;
    const auto copy = has_copy ? std::optional{layers[here.stage()]} : std::nullopt;
    for (const float last : {-0.0F, 0.0F}) {
      if (has_copy)
        for (float& it : layers.m().acquire(*copy, access::write).span()) it = here.stage() == 2 ? last : 0.0F;
      said[here.stage()] += support::refusal<usage_error>([&] {
        steps.expect_equal_copies(layers.m(), copy);
        ++passed[here.stage()];
      });
    }
  });
  for (const std::string& it : said)
    CHECK_THAT(it,
               Catch::Matchers::StartsWith("chunkmem: copies of a weight have other values on stage 2 than on stage "
                                           "0 ("));
  CHECK(passed == std::vector{1, 1, 1});
}

}  // namespace managed_stages_test
