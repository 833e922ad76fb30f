// SPDX-License-Identifier: Apache-2.0
#include <conformance/schedule_generator.hpp>

#include "verdict.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace wrong_schedules_test {

using namespace chunkmem;
using pipeline::operation;
using pipeline::operation_kind;
using pipeline::pipeline_shape;
using pipeline::schedule;

namespace {

/// Right: 1F1B. Each generator below has one mistake.
using alternating = pipeline::one_f_one_b;

/// Changes the orders of `alternating`, for policies that differ in one thing.
template <class Change>
schedule changed(const pipeline_shape& shape, std::string_view name, const Change& change)
{
  schedule plan = alternating{}.orders(shape);
  plan.name = name;
  change(plan);
  return plan;
}

struct forgets_the_last_micro_batch : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, name, [](schedule& plan) {
      for (std::vector<operation>& steps : plan.stages)
        std::erase_if(steps, [&](const operation& step) {
          return step.kind != operation_kind::update && step.micro_batch + 1 == plan.all_micro_batches();
        });
    });
  }
};
struct updates_before_the_last_gradient : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, name, [](schedule& plan) {
      std::vector<operation>& steps = plan.stages[0];
      std::swap(steps[steps.size() - 2], steps.back());
    });
  }
};
struct never_updates : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, name, [](schedule& plan) { plan.stages.back().pop_back(); });
  }
};
struct reads_newer_weights : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, name, [](schedule& plan) { plan.stages[0][0].version = 1; });
  }
};
struct gives_a_part_to_another_stage : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, name, [](schedule& plan) { plan.stages[0][0].part = plan.part_count() - 1; });
  }
};
struct adds_up_backward : alternating {
  /// All forward runs, then the backward runs from the last micro-batch on.
  schedule orders(const pipeline_shape& shape) const
  {
    schedule plan = pipeline::empty_schedule(name, shape);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage)
      for (std::uint32_t batch = 0; batch < shape.batches; ++batch) {
        const std::uint32_t first = batch * shape.micro_batches;
        const std::uint32_t last = first + shape.micro_batches - 1;
        std::vector<operation>& steps = plan.stages[stage];
        for (std::uint32_t it = first; it <= last; ++it) steps.push_back({operation_kind::forward, stage, it, batch});
        for (std::uint32_t it = last + 1; it-- > first;) steps.push_back({operation_kind::backward, stage, it, batch});
        steps.push_back({operation_kind::update, stage, last, batch + 1});
      }
    return plan;
  }
};
struct has_no_name_in_schedules : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, "", [](schedule&) {});
  }
};
struct makes_one_batch : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    pipeline_shape one = shape;
    one.batches = 1;
    return changed(one, name, [](schedule&) {});
  }
};
struct remembers_the_first_schedule : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    if (first_.stages.empty()) first_ = changed(shape, name, [](schedule&) {});
    return first_;
  }
  mutable schedule first_;
};
struct copies_no_setting : alternating {
  copies_no_setting() = default;
  explicit copies_no_setting(bool of_user) : keeps_two_sets{of_user} {}
  copies_no_setting(const copies_no_setting&) : copies_no_setting{} {}
  schedule orders(const pipeline_shape& shape) const
  {
    return changed(shape, name, [&](schedule& plan) { plan.gradient_sets = keeps_two_sets ? 2 : 1; });
  }
  bool keeps_two_sets = false;
};
/// Runs ahead by one micro-batch more than the time before.
struct runs_ahead_each_time : alternating {
  schedule orders(const pipeline_shape& shape) const
  {
    const bool is_eager = ++asked_ % 2 == 0;
    return changed(shape, name, [&](schedule& plan) { plan.sends_in_flight = is_eager ? 3 : 2; });
  }
  mutable int asked_ = 0;
};

template <class Generator>
laws::verdict judge(std::string_view law, const Generator& generator = {})
{
  return {laws::name_of<Generator>(), law, conformance::mistake_in_schedule_generator(generator)};
}

}  // namespace

TEST_CASE("the laws of generators of schedules hold for 1F1B", "[laws][pipeline]")
{
  conformance::schedule_generator_laws<alternating>();
}

}  // namespace wrong_schedules_test

const laws::verdicts& laws::wrong_schedules()
{
  using namespace wrong_schedules_test;
  static const verdicts all{
      judge<forgets_the_last_micro_batch>("an update comes after all backward runs of its batch"),
      judge<updates_before_the_last_gradient>("an update comes after all backward runs of its batch"),
      judge<never_updates>("a batch ends without an update"),
      judge<reads_newer_weights>("its micro-batch reads another version of the weights"),
      judge<gives_a_part_to_another_stage>("its part belongs to another stage"),
      judge<adds_up_backward>("gradients of a part come in another order than the micro-batches"),
      judge<has_no_name_in_schedules>("a schedule without the name of its generator"),
      judge<makes_one_batch>("a schedule of another shape"),
      judge<remembers_the_first_schedule>("a schedule of another shape"),
      judge<copies_no_setting>("a copy makes another schedule", copies_no_setting{true}),
      judge<runs_ahead_each_time>("two schedules for one shape"),
  };
  return all;
}
