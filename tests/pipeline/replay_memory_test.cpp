// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/schedules.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/random_schedule.hpp>
#include <support/sanitized.hpp>

#include "schedule_runs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace replay_memory_test {

using namespace pipeline_test;

namespace {

/// The bytes of a stage at each half step: during a step, and after it. Each buffer is a stretch of half steps, found
/// from the list as a whole, not by taking steps in turn.
class stretches {
 public:
  stretches(const schedule& plan, const std::vector<part_memory>& parts, std::uint32_t stage)
      : plan_{plan}, parts_{parts}, steps_{plan.stages[stage]}, device_(2 * steps_.size() + 1, 0), host_(device_)
  {
    for (std::uint32_t part = 0; part < plan.part_count(); ++part) {
      if (plan.owners[part] != stage) continue;
      const part_memory& it = parts[part];
      add(device_, 0, device_.size(),
          plan.versions * it.weights.count() + plan.gradient_sets * it.gradients.count() + it.states.count());
      for (std::uint32_t micro_batch = 0; micro_batch < plan.all_micro_batches(); ++micro_batch)
        add_micro_batch(part, micro_batch);
    }
    for (std::size_t index = 0; index < steps_.size(); ++index) add_working(index);
    add_sends();
  }

  [[nodiscard]] std::uint64_t device() const { return *std::ranges::max_element(device_); }
  [[nodiscard]] std::uint64_t host() const { return *std::ranges::max_element(host_); }

 private:
  using enum operation_kind;
  static constexpr std::size_t none = SIZE_MAX;

  static void add(std::vector<std::uint64_t>& line, std::size_t from, std::size_t end, std::uint64_t size)
  {
    for (std::size_t half = from; half < std::min(end, line.size()); ++half) line[half] += size;
  }
  [[nodiscard]] std::size_t find(operation_kind kind, std::uint32_t part, std::uint32_t micro_batch) const
  {
    for (std::size_t index = 0; index < steps_.size(); ++index)
      if (steps_[index].kind == kind && steps_[index].part == part && steps_[index].micro_batch == micro_batch)
        return index;
    return none;
  }
  [[nodiscard]] std::size_t find_back(std::uint32_t part, std::uint32_t micro_batch) const
  {
    return std::min(find(backward, part, micro_batch), find(backward_input, part, micro_batch));
  }
  [[nodiscard]] bool crosses(std::uint32_t part) const
  {
    return part + 1 < plan_.part_count() && plan_.crosses_after(part);
  }

  void add_micro_batch(std::uint32_t part, std::uint32_t micro_batch)
  {
    const part_memory& it = parts_[part];
    const std::size_t back = 2 * find_back(part, micro_batch);
    const std::size_t there = part == 0           ? find(forward, 0, micro_batch)
                              : crosses(part - 1) ? find(receive_activation, part, micro_batch)
                                                  : find(forward, part - 1, micro_batch);
    add(device_, 2 * there, back + 1, it.input.count());
    const std::size_t again = find(recompute, part, micro_batch);
    const std::size_t saved = 2 * std::min(again, find(forward, part, micro_batch));
    const std::size_t made = again == none ? saved : 2 * again;
    const std::size_t out = find(offload, part, micro_batch);
    if (out == none) {
      add(device_, made, back + 1, it.saved.count());
    } else {
      const std::size_t in = 2 * find(reload, part, micro_batch);
      add(device_, made, 2 * second_run_after(out), it.saved.count());
      add(device_, in, back + 1, it.saved.count());
      add(host_, 2 * out, in, it.saved.count());
    }
    const std::size_t weights = find(backward_weight, part, micro_batch);
    if (weights != none) add(device_, back + 1, 2 * weights + 1, it.kept_for_weights.count());
    if (part + 1 < plan_.part_count()) {
      const std::size_t gradient =
          crosses(part) ? find(receive_gradient, part, micro_batch) : find_back(part + 1, micro_batch);
      add(device_, 2 * gradient, back + 1, parts_[part + 1].input.count());
    }
  }
  [[nodiscard]] std::size_t second_run_after(std::size_t index) const
  {
    int runs = 0;
    for (std::size_t next = index + 1; next < steps_.size(); ++next)
      if (computes(steps_[next].kind) && ++runs == 2) return next;
    return steps_.size() + 1;
  }

  void add_working(std::size_t index)
  {
    const part_memory& it = parts_[steps_[index].part];
    switch (steps_[index].kind) {
      case forward:
      case recompute: device_[2 * index] += it.forward_working.count(); break;
      case backward:
      case backward_input:
      case backward_weight: device_[2 * index] += it.backward_working.count(); break;
      case update: device_[2 * index] += it.update_working.count(); break;
      default: break;
    }
  }

  /// From the run that makes the bytes until so many further sends have begun.
  void add_sends()
  {
    std::vector<std::size_t> sends;
    for (std::size_t index = 0; index < steps_.size(); ++index)
      if (pipeline::sends(steps_[index].kind)) sends.push_back(index);
    for (std::size_t which = 0; which < sends.size(); ++which) {
      const operation& step = steps_[sends[which]];
      const bool is_gradient = step.kind == send_gradient;
      const std::size_t made =
          is_gradient ? find_back(step.part, step.micro_batch) : find(forward, step.part, step.micro_batch);
      const std::size_t later = which + plan_.sends_in_flight;
      add(device_, 2 * made, later < sends.size() ? 2 * sends[later] : device_.size(),
          parts_[is_gradient ? step.part : step.part + 1].input.count());
    }
  }

  const schedule& plan_;
  const std::vector<part_memory>& parts_;
  const std::vector<operation>& steps_;
  std::vector<std::uint64_t> device_;
  std::vector<std::uint64_t> host_;
};

std::vector<part_memory> roll_parts(const schedule& plan, support::dice& dice)
{
  const auto size = [&] { return bytes{dice.below(50)}; };
  std::vector<part_memory> parts;
  for (std::uint32_t part = 0; part < plan.part_count(); ++part)
    parts.push_back({size(), size(), size(), size(), size(), size(), size(), size(), size()});
  return parts;
}

void equal_oracle(std::uint64_t seeds)
{
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    support::dice dice{seed};
    const schedule plan = support::random_schedule{dice}.plan();
    const std::vector<part_memory> parts = roll_parts(plan, dice);
    const std::vector<stage_peak> peaks = replay_memory(plan, parts);
    for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) {
      const stretches oracle{plan, parts, stage};
      CAPTURE(seed, stage);
      REQUIRE(peaks[stage].device.count() == oracle.device());
      REQUIRE(peaks[stage].host.count() == oracle.host());
      REQUIRE(peaks[stage].lines.all() == peaks[stage].device);
    }
  }
}

}  // namespace

TEST_CASE("a replay has the peaks of the stretches of all buffers", "[pipeline]")
{
  equal_oracle(support::sanitized ? 25 : 300);
}

TEST_CASE("a replay has the peaks of many random schedules", "[pipeline][.slow]")
{
  equal_oracle(10'000);
}

TEST_CASE("memory follows the published formulas of weights, activations and inputs", "[pipeline]")
{
  // PipeDream-2BW's paper, in units of a stage's share: two versions of weights, d micro-batches in flight on stage 0.
  const part_memory part{.weights = bytes{1'000}, .input = bytes{10}, .saved = bytes{100}};
  const std::vector<part_memory> parts(4, part);
  const pipeline_shape shape{.stages = 4, .micro_batches = 8, .batches = 4};
  const schedule endless = make_schedule(pipedream_2bw{}, shape);
  const schedule flushed = make_schedule(one_f_one_b{}, shape);
  const auto two = replay_memory(endless, parts);
  const auto one = replay_memory(flushed, parts);
  CHECK(two[0].lines.weights == bytes{2'000});
  CHECK(one[0].lines.weights == bytes{1'000});
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    CHECK(two[stage].lines.saved == bytes{(4 - stage) * 100});
    CHECK(two[stage].lines.inputs >= bytes{(4 - stage) * 10});
    CHECK(two[stage].lines.inputs <= bytes{(5 - stage) * 10});  // one may be on its way
    // The second version is all that differs, but for boundaries that cross at other moments.
    CHECK(two[stage].device + bytes{20} >= one[stage].device + bytes{1'000});
    CHECK(two[stage].device <= one[stage].device + bytes{1'020});
  }
}

TEST_CASE("computing again leaves the inputs in flight, and one micro-batch's activations", "[pipeline]")
{
  const std::vector<part_memory> parts(4, part_memory{.input = bytes{10}, .saved = bytes{100}});
  schedule plan = make_schedule(one_f_one_b{}, {.stages = 4, .micro_batches = 8});
  for (std::vector<operation>& steps : plan.stages)
    for (std::size_t index = 0; index < steps.size(); ++index)
      if (steps[index].kind == operation_kind::backward) {
        operation again = steps[index];
        again.kind = operation_kind::recompute;
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(index), again);
        ++index;
      }
  REQUIRE(!find_fault(plan));
  const auto peaks = replay_memory(plan, parts);
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    CHECK(peaks[stage].lines.saved == bytes{100});
    CHECK(peaks[stage].device <= bytes{100 + (4 - stage) * 10 + 50});
  }
}

TEST_CASE("memory of another number of parts is refused", "[pipeline]")
{
  const schedule plan = make_schedule(gpipe{}, {.stages = 2, .micro_batches = 2});
  CHECK_THROWS_AS(replay_memory(plan, std::vector<part_memory>(1)), config_error);
}

}  // namespace replay_memory_test
