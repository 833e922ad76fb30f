// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/split_updates.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/rate_meter.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/catch.hpp>
#include <support/fake_device.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

namespace split_updates_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using cm::optimizer::adam;
using cm::optimizer::rate_meter;
using cm::optimizer::split_stage;

namespace {

constexpr double limitless = std::numeric_limits<double>::max();
constexpr std::uint32_t count = 12;

/// A clock that the test sets.
struct told_time : cm::backend::host_arena {
  using cm::backend::host_arena::host_arena;
  [[nodiscard]] std::uint64_t now() const noexcept { return time; }
  std::uint64_t time = 0;  // [ns]
};

/// Twelve weights of 16 bits; the loop's gradients depend on the values of its weights.
struct training {
  using manager_type = cm::manager<cm::backend::host_arena, cm::placement::update_share, cm::transfer::planned>;
  using split_type =
      cm::optimizer::split_updates<manager_type, cm::optimizer::loop_launcher, cm::optimizer::thread_pool>;

  explicit training(bool is_split, bool is_late = false, cm::bytes device = 96_KiB)
      : memory{{.device_capacity = device, .host_capacity = 1_MiB, .async_compute = true}},
        m{memory, {.chunk_bytes = 4_KiB}}
  {
    m.use(kernel);
    for (std::uint32_t index = 0; index < count; ++index)
      weights.push_back(m.add<cm::bf16>({1000 + 8 * index}, cm::role::parameter));
    if (is_split) split.emplace(m, pool, cm::optimizer::split_options{.settling_steps = 4, .measured_steps = 2});
    if (is_split && is_late) late.emplace(m, kernel, *split);
  }
  void fill()
  {
    for (const auto weight : weights) {
      const auto pin = m.acquire(weight, cm::access::write);
      for (std::size_t i = 0; i < pin.size(); ++i)
        pin.span()[i] = cm::round_to<cm::bf16>(0.01F * static_cast<float>(i * 7 % 19));
    }
  }
  cm::optimizer::step_result step()
  {
    const auto scope = m.iteration();
    float sum = 0;
    for (const auto weight : weights) {
      const auto pin = m.acquire(weight, cm::access::read);
      if (!m.rehearsing()) sum += cm::to_float(pin.span()[17]);
    }
    for (std::uint32_t index = count; index-- > 0;) {
      const auto gradient = m.gradient(weights[index]);
      if (m.rehearsing()) continue;
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient.span()[i] = cm::round_to<cm::bf16>(is_spoilt ? std::numeric_limits<float>::infinity()
                                                              : 1e-3F * sum * static_cast<float>(i % 5));
    }
    const cm::optimizer::step_options options{.clip = {.norm = 1.0F}};
    if (late) return late->step(options);
    return split ? cm::optimizer::step(m, kernel, options, *split) : cm::optimizer::step(m, kernel, options);
  }
  /// Weights, states and masters.
  std::vector<float> everything()
  {
    if (late) late->finish();
    std::vector<float> all;
    for (const auto weight : weights) {
      const auto pin = m.acquire(weight, cm::access::read);
      for (const cm::bf16 it : pin.span()) all.push_back(cm::to_float(it));
      for (const cm::list_spec& spec : kernel.lists()) {
        const auto list = m.acquire<float>(weight, m.list(spec.name), cm::access::read, cm::memory_location::host);
        all.insert(all.end(), list.span().begin(), list.span().end());
      }
    }
    return all;
  }

  cm::backend::host_arena memory;
  cm::optimizer::thread_pool pool{2};
  adam kernel;
  manager_type m;
  std::optional<split_type> split;
  std::optional<cm::optimizer::late_updates<manager_type, adam, split_type>> late;
  std::vector<cm::tensor<cm::bf16>> weights;
  bool is_spoilt = false;
};

}  // namespace

TEST_CASE("a meter takes the rates of the fastest update and copy, and the bytes of all", "[optimizer]")
{
  rate_meter meter;
  CHECK(meter.rates().host_updates_per_second == limitless);
  CHECK(meter.traffic().state_bytes == 12);  // the defaults
  cm::optimizer::parameter_bytes all;
  all.elements = 100;
  all.value_type = all.gradient_type = cm::dtype::bfloat16;
  for (int list = 0; list < 2; ++list) all.lists[all.list_count++] = {nullptr, cm::dtype::float32, cm::list_use::state};
  meter.add_update(false, all, 2);
  meter.add_update(false, all, 1);
  meter.add_update(true, all, 0.5);
  meter.add_copies(300_B, 2, 0_B, 3);
  meter.add_copies(0_B, 1, 800_B, 4);
  meter.add_copies(100_B, 1, 400_B, 4);
  CHECK(meter.rates().host_updates_per_second == 100);
  CHECK(meter.rates().device_updates_per_second == 200);
  CHECK(meter.rates().to_host_bytes_per_second == 150);
  CHECK(meter.rates().to_device_bytes_per_second == 200);
  CHECK(meter.traffic().state_bytes == 8);
  CHECK(meter.traffic().gradient_bytes == 2);
  CHECK(meter.traffic().value_bytes == 2);
  CHECK(meter.traffic().host_update_bytes == 20);
}

TEST_CASE("a search for a split ends with a share that holds, and changes no bit of the training", "[optimizer]")
{
  for (const bool is_late : {false, true}) {
    training plain{false};
    training split{true, is_late};
    (void)split.split->rehearse([&] { (void)split.step(); });
    plain.fill();
    split.fill();
    CHECK(split.split->split().stage == split_stage::all_on_host);
    int steps = 0;
    for (; split.split->split().stage != split_stage::held; ++steps) {
      REQUIRE(steps < 100);
      CHECK(plain.step() == split.step());
      split.split->end_step();
    }
    const auto tried = split.split->split().tried.size();
    CHECK((tried == 2 || tried == 5));
    CHECK(static_cast<std::size_t>(steps) == 6 * tried);  // 4 that settle and 2 that are measured, for each share
    CHECK(split.split->rates().host_updates_per_second < limitless);
    CHECK(split.split->rates().device_updates_per_second < limitless);
    for (const double share : {0.4, 1.0, 0.0, 0.7}) {  // whatever holds
      if (split.late) split.late->finish();
      split.m.use_placement({.device_share = share, .in_turn = true});
      CHECK(plain.step() == split.step());
      split.split->end_step();
    }
    CHECK(plain.everything() == split.everything());
  }
}

TEST_CASE("a skipped step is none of the steps that a split is measured by", "[optimizer]")
{
  training it{true};
  it.fill();
  const auto step = [&](bool is_spoilt) {
    it.is_spoilt = is_spoilt;
    CHECK((it.step() == cm::optimizer::step_result::updated) != is_spoilt);
    it.split->end_step();
  };
  for (int index = 0; index < 5; ++index) step(false);
  for (int index = 0; index < 9; ++index) step(true);
  step(false);
  CHECK(it.split->split().stage == split_stage::all_on_host);  // measured anew behind the skipped ones
  step(false);
  CHECK(it.split->split().stage == split_stage::all_on_device);
  it.split->measure_again();
  CHECK(it.split->split().stage == split_stage::all_on_host);
  CHECK(it.split->split().tried.empty());
  CHECK(it.m.placement().device_share == 0);
}

TEST_CASE("where a rehearsed step finds no room for updates on the device, all stay on the host", "[optimizer]")
{
  training small{true};
  const cm::memory_requirement both = small.split->rehearse([&] { (void)small.step(); });
  training plain{false};
  const cm::memory_requirement on_host = plain.m.rehearse([&] { (void)plain.step(); });
  CHECK(both.smallest_device > on_host.smallest_device);
  training it{true, false, on_host.smallest_device};
  CHECK(it.split->rehearse([&] { (void)it.step(); }).smallest_device == on_host.smallest_device);
  it.fill();
  for (int index = 0; index < 6; ++index) {
    (void)it.step();
    it.split->end_step();
  }
  CHECK(it.split->split().stage == split_stage::held);
  CHECK(it.split->split().device_share == 0);
  CHECK(it.split->split().tried.size() == 1);
}

TEST_CASE("a call of a split that throws leaves its share and its stage", "[optimizer]")
{
  training it{true};
  CHECK_THROWS_AS(it.split->rehearse([] { throw std::runtime_error{"of the step"}; }), std::runtime_error);
  CHECK(it.m.placement().device_share == 0);
  (void)it.split->rehearse([&] {
    (void)it.step();
    it.split->end_step();  // no step is rehearsed and counted
  });
  it.fill();
  for (int index = 0; index < 6; ++index) {
    CHECK(it.split->split().stage == split_stage::all_on_host);
    (void)it.step();
    it.split->end_step();
  }
  CHECK(it.split->split().stage == split_stage::all_on_device);
  {
    const auto scope = it.m.iteration();
    CHECK_THROWS_AS(it.split->measure_again(), cm::usage_error);
  }
  CHECK(it.split->split().stage == split_stage::all_on_device);
  CHECK(it.split->split().tried.size() == 1);
  CHECK(it.m.placement().device_share == 1);
}

TEST_CASE("a pause behind one of the measured steps has no part in the seconds of a share", "[optimizer]")
{
  told_time memory{{.device_capacity = 96_KiB, .host_capacity = 1_MiB}};
  cm::manager<told_time, cm::placement::update_share> m{memory, {.chunk_bytes = 4_KiB}};
  adam kernel;
  m.use(kernel);
  const auto weight = m.add<float>({64}, cm::role::parameter);
  cm::optimizer::split_updates<decltype(m), cm::optimizer::loop_launcher> updates{m, cm::on_this_thread};
  {
    const auto pin = m.acquire(weight, cm::access::write);
    std::ranges::fill(pin.span(), 0.0F);
  }
  for (int index = 0; updates.split().stage != split_stage::held; ++index) {
    {
      const auto scope = m.iteration();
      {
        const auto gradient = m.gradient(weight);
        std::ranges::fill(gradient.span(), 1.0F);
      }
      (void)cm::optimizer::step(m, kernel, {}, updates);
    }
    memory.time += updates.split().device_share == 0 ? 3'000'000'000 : 2'000'000'000;
    if (index == 6) memory.time += 60'000'000'000;  // a checkpoint is saved
    updates.end_step();
  }
  CHECK(updates.split().tried[0].seconds == 3);
  CHECK(updates.split().tried[1].seconds == 2);
  CHECK(updates.split().device_share == 1);
}

TEST_CASE("a split is measured between iterations, by at least some steps", "[optimizer]")
{
  training it{true};
  it.fill();
  {
    const auto scope = it.m.iteration();
    CHECK_THROWS_WITH(it.split->end_step(), ContainsSubstring("in an iteration"));
    CHECK_THROWS_WITH(it.m.use_placement({}), ContainsSubstring("in an iteration"));
  }
  using split_type = training::split_type;
  CHECK_THROWS_AS((split_type{it.m, it.pool, {.settling_steps = 3}}), cm::usage_error);
  CHECK_THROWS_AS((split_type{it.m, it.pool, {.measured_steps = 0}}), cm::usage_error);
  CHECK_THROWS_AS((split_type{it.m, it.pool, {.least_gain = 2}}), cm::usage_error);
}

TEST_CASE("a step of the calling thread refuses states on a device that the thread cannot read", "[optimizer]")
{
  support::fake_cuda runtime{support::fake_cuda_options{}};
  support::fake_device memory{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}, runtime};
  cm::manager<support::fake_device, cm::placement::update_share> m{memory, {.chunk_bytes = 4_KiB}};
  adam kernel;
  m.use(kernel);
  const auto weight = m.add<float>({64}, cm::role::parameter);
  {
    const auto pin = m.acquire(weight, cm::access::write, cm::agent::compute);
  }
  const auto step = [&] {
    const auto scope = m.iteration();
    m.gradient_done(m.gradient(weight, cm::agent::compute));
    return cm::optimizer::step(m, kernel, {.skip_nonfinite = false});
  };
  CHECK(step() == cm::optimizer::step_result::updated);
  m.use_placement({.device_share = 1});
  CHECK_THROWS_WITH(step(), ContainsSubstring("update states on the device"));
}

}  // namespace split_updates_test
