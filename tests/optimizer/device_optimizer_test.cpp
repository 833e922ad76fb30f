// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_optimizer.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/oracles/dice.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace device_optimizer_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = support::failing<cm::backend::host_arena>;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint32_t layers = 5;
constexpr std::uint64_t elements = 1'500;

/// A few parameters of each type, in two groups; gradients come from dice. Trains with `step` or with a
/// device_optimizer.
template <class Element, class Kernel, class Gradient>
struct model {
  using manager = cm::manager<arena, Gradient>;
  using device = cm::optimizer::device_optimizer<manager, Kernel, cm::optimizer::loop_launcher>;

  model(const Kernel& how, bool on_device, const cm::optimizer::loss_scale& scale_of_loss, cm::bytes capacity)
      : memory{support::failure_plan{},
               cm::backend::host_arena_options{
                   .device_capacity = capacity, .host_capacity = 1_MiB, .async_compute = true}},
        m{memory, {.chunk_bytes = 8_KiB}},
        kernel{how},
        scale{scale_of_loss}
  {
    weights = m.template add_stacked<Element>(layers, {elements}, cm::role::parameter);
    biases = m.template add_stacked<float>(layers, {7}, cm::role::parameter, cm::group_id{1});
    if (on_device)
      optimizer.emplace(m, kernel, cm::optimizer::loop_launcher{}, scale);
    else {
      m.use(kernel);
      m.use(scale);
    }
    support::dice dice{99};
    for (std::uint32_t index = 0; index < layers; ++index) {
      for (Element& value : m.acquire(weights.slice(index), cm::access::write, cm::memory_location::host).span())
        value = cm::round_to<Element>(random(dice));
      for (float& value : m.acquire(biases.slice(index), cm::access::write, cm::memory_location::host).span())
        value = random(dice);
    }
    if (on_device) optimizer->prepare();
  }

  static float random(support::dice& dice) { return static_cast<float>(dice.between(0, 2000)) / 1000.0F - 1.0F; }

  /// @param spoilt   the gradient of this layer gets an infinity
  void differentiate(std::uint64_t now, std::uint32_t spoilt)
  {
    support::dice dice{now};
    for (std::uint32_t index = 0; index < layers; ++index) {
      if (index == now % layers) continue;  // not every parameter has a gradient in every step
      auto weight = m.acquire(weights.slice(index), cm::access::read);
      const auto gradient = m.gradient(std::move(weight));
      for (Element& value : gradient.span()) value = cm::round_to<Element>(random(dice));
      if (index == spoilt)
        gradient.span()[elements / 2] = cm::round_to<Element>(std::numeric_limits<float>::infinity());
      for (float& value : m.gradient(biases.slice(index)).span()) value = random(dice);
    }
  }

  void step(const cm::optimizer::step_options& options)
  {
    if (optimizer) return optimizer->step(options);
    cm::optimizer::step_options with_scale = options;
    with_scale.loss_scale = &scale;
    cm::optimizer::step(m, kernel, with_scale);
  }

  /// Calls step again until it gets through. @return   how often it failed
  int step_stubbornly(const cm::optimizer::step_options& options)
  {
    for (int failures = 0;; ++failures) {
      try {
        step(options);
        return failures;
      } catch (const cm::device_error&) {
      }
    }
  }

  [[nodiscard]] std::vector<std::byte> everything()
  {
    std::vector<std::byte> all;
    m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info& info) {
      add(all, it, cm::value_list);
      for (const cm::list_spec& spec : kernel.lists())
        if (spec.use == cm::list_use::state || info.type != cm::dtype::float32) add(all, it, m.list(spec.name));
    });
    return all;
  }
  void add(std::vector<std::byte>& all, cm::tensor_handle it, cm::list_id list)
  {
    const auto pin = m.acquire_bytes(it, list, cm::access::read, cm::memory_location::host);
    const auto bytes = std::as_bytes(pin.span());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }

  arena memory;
  manager m;
  Kernel kernel;
  cm::optimizer::loss_scale scale;
  std::optional<device> optimizer;
  cm::stacked<Element> weights{};
  cm::stacked<float> biases{};
};

using cm::optimizer::adam;
using cm::optimizer::loss_scale;
using cm::optimizer::sgd;
using cm::optimizer::step_options;
constexpr std::uint32_t no_layer = layers;

/// Both ways of training, side by side. @return   whether every byte was the same after every step
template <class Element, class Gradient = cm::gradient::separate, class Kernel>
bool agree(const Kernel& kernel, const step_options& options, const loss_scale& scale, cm::bytes capacity = 64_KiB)
{
  model<Element, Kernel, Gradient> host{kernel, false, scale, capacity};
  model<Element, Kernel, Gradient> device{kernel, true, scale, capacity};
  for (std::uint64_t now = 1; now <= 6; ++now) {
    for (auto* it : {&host, &device}) {
      const auto scope = it->m.iteration();
      it->differentiate(now, now == 3 ? 1 : no_layer);
      it->step(options);
    }
    if (host.everything() != device.everything()) return false;
    const auto progress = device.optimizer->progress();
    if (progress.updates != host.scale.updates() || progress.skips != host.scale.skips()) return false;
    if (progress.loss_scale != host.scale.scale()) return false;
  }
  return host.scale.skips() == 1;
}

}  // namespace

TEMPLATE_TEST_CASE("a step on the device has the bits of a step on the host", "[optimizer]", float, cm::bf16, cm::fp16)
{
  const loss_scale dynamic = loss_scale::dynamic({.initial = 1024.0F, .window = 2});
  const step_options clips{.learning_rate = 0.01F, .clip = {.norm = 0.5F, .value = 0.02F}, .seed = 5};
  const float rates[] = {0.01F, 0.5F};
  CHECK(agree<TestType>(adam{{.weight_decay = 0.1F}}, {.learning_rate = 0.01F}, loss_scale::fixed(1.0F)));
  CHECK(agree<TestType>(adam{{.decoupled = false}}, {.group_rates = rates}, dynamic));
  CHECK(agree<TestType>(adam{{}, {.moments = cm::dtype::bfloat16, .masters = false}}, clips, loss_scale::fixed(8.0F)));
  CHECK(agree<TestType>(sgd{{.momentum = 0.9F, .nesterov = true}}, clips, dynamic));
  CHECK(agree<TestType>(sgd{{.momentum = 0.0F}, {.masters = false}},
                        {.clip = {.norm = 1.0F, .order = cm::optimizer::norm_order::l1}}, dynamic));
}

TEMPLATE_TEST_CASE("so it has on a small device, and with gradients in the places of weights", "[optimizer]", cm::bf16,
                   cm::fp16)
{
  const loss_scale dynamic = loss_scale::dynamic({.initial = 4.0F, .window = 2});
  CHECK(agree<TestType>(adam{}, {}, dynamic, 48_KiB));
  CHECK(agree<TestType, cm::gradient::in_place>(adam{}, {.clip = {.norm = 2.0F}}, dynamic, 48_KiB));
  CHECK(agree<TestType, cm::gradient::in_place>(sgd{{.momentum = 0.5F}, {.momentum = cm::dtype::bfloat16}}, {}, dynamic,
                                                64_KiB));
}

TEST_CASE("a norm that is not finite clips on the device as on the host, and rates are those of the call",
          "[optimizer]")
{
  const sgd kernel{{.momentum = 0.0F}};
  model<float, sgd, cm::gradient::separate> host{kernel, false, loss_scale::fixed(1.0F), 64_KiB};
  model<float, sgd, cm::gradient::separate> device{kernel, true, loss_scale::fixed(1.0F), 64_KiB};
  const std::vector<std::byte> before = device.everything();
  for (auto* it : {&host, &device}) {
    const auto scope = it->m.iteration();
    it->differentiate(2, 1);
    float rates[] = {0.5F, 0.25F};
    const step_options options{.group_rates = rates, .clip = {.norm = 1.0F}, .skip_nonfinite = false};
    it->optimizer ? it->optimizer->step(options) : static_cast<void>(cm::optimizer::step(it->m, it->kernel, options));
    rates[0] = rates[1] = 9.0F;  // what is enqueued has its own
  }
  const std::vector<std::byte> after = device.everything();
  const bool same = host.everything() == after;
  CHECK(same);
  std::size_t changed = 0, nans = 0;
  for (std::size_t at = 0; at + 4 <= after.size(); at += 4) {
    float value = 0;
    std::memcpy(&value, after.data() + at, 4);
    nans += std::isnan(value) ? 1 : 0;
    changed += std::memcmp(before.data() + at, after.data() + at, 4) != 0 ? 1 : 0;
  }
  CHECK(nans == 1);
  CHECK(changed == 1);
  CHECK(device.optimizer->progress().norm == std::numeric_limits<double>::infinity());
}

TEST_CASE("a step on the device that fails anywhere is finished by the next call", "[optimizer]")
{
  using small = model<cm::bf16, adam, cm::gradient::in_place>;
  const loss_scale scale = loss_scale::fixed(2.0F);
  const auto train = [&](std::optional<std::uint64_t> failing_copy, int& failures) {
    small it{adam{}, true, scale, 48_KiB};
    for (std::uint64_t now = 1; now <= 2; ++now) {
      const auto scope = it.m.iteration();
      it.differentiate(now, now == 2 ? 1 : no_layer);
      if (now == 2 && failing_copy) it.memory.set_plan({.copy = it.memory.copies() + *failing_copy});
      failures += it.step_stubbornly({.clip = {.norm = 1.0F}});
      it.memory.set_plan({});
    }
    return it.everything();
  };
  int failures = 0;
  const auto expected = train({}, failures);
  REQUIRE(failures == 0);
  int failed = 0;
  for (std::uint64_t copy = 0;; ++copy) {
    failures = 0;
    INFO("copy " << copy);
    REQUIRE(train(copy, failures) == expected);
    if (failures == 0) break;
    failed += failures;
  }
  CHECK(failed >= 10);
}

TEST_CASE("kernels read the loss scale where the device keeps it", "[optimizer]")
{
  model<cm::bf16, adam, cm::gradient::separate> it{adam{}, true, loss_scale::dynamic({.initial = 64.0F, .window = 1}),
                                                   64_KiB};
  float seen[2] = {};
  for (float& now : seen) {
    const auto scope = it.m.iteration();
    const auto scale = it.optimizer->scale_on();
    it.memory.launch(cm::agent::compute, [to = &now, from = scale.data()] { *to = *from; });
    it.differentiate(1, no_layer);
    it.optimizer->step({});
  }
  CHECK(it.optimizer->progress().loss_scale == 256.0F);
  CHECK((seen[0] == 64.0F && seen[1] == 128.0F));
}

TEST_CASE("an optimizer on the device says what it cannot do", "[optimizer]")
{
  using plain = model<float, adam, cm::gradient::separate>;
  plain it{adam{}, true, loss_scale::fixed(1.0F), 64_KiB};
  loss_scale other = loss_scale::fixed(2.0F);
  CHECK_THROWS_AS(it.optimizer->step({.loss_scale = &other}), cm::usage_error);
  const float one_rate[] = {1.0F};
  CHECK_THROWS_AS(it.optimizer->set_rates(one_rate), cm::usage_error);
  it.differentiate(1, no_layer);
  const std::vector<std::byte> before = it.everything();
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0.5F}) {
    const float rates[] = {0.5F, wrong};
    CHECK_THROWS_AS(it.optimizer->step({.learning_rate = wrong}), cm::usage_error);
    CHECK_THROWS_AS(it.optimizer->step({.group_rates = rates}), cm::usage_error);
    CHECK_THROWS_WITH(it.optimizer->set_rates(rates), ContainsSubstring("a learning rate of "));
  }
  CHECK(it.everything() == before);
  it.optimizer->step({});
  CHECK(it.optimizer->progress().updates == 1);
  cm::backend::host_arena memory{{.device_capacity = 4_KiB, .host_capacity = 4_KiB}};
  cm::manager<cm::backend::host_arena> empty{memory, {.chunk_bytes = 4_KiB}};
  using device =
      cm::optimizer::device_optimizer<cm::manager<cm::backend::host_arena>, adam, cm::optimizer::loop_launcher>;
  CHECK_THROWS_AS((device{empty, adam{}}), cm::usage_error);
}

TEST_CASE("a number of updates on the device that a checkpoint cannot have is refused before the first step",
          "[optimizer]")
{
  cm::backend::host_arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({100}, cm::role::parameter);
  cm::optimizer::device_optimizer<cm::manager<cm::backend::host_arena>, adam, cm::optimizer::loop_launcher> device{
      m, adam{}};
  std::optional<cm::tensor<std::uint8_t>> buffer;  // of the optimizer
  m.for_each_tensor([&](cm::tensor_handle handle, const cm::tensor_info& info) {
    if (info.part == cm::role::buffer) buffer = cm::tensor<std::uint8_t>{handle};
  });
  REQUIRE(buffer);
  const auto load = [&](std::uint64_t number) {
    const auto pin = m.acquire(*buffer, cm::access::write, cm::memory_location::host);
    cm::optimizer::device_step_state state;
    state.number = number;
    std::memset(pin.data(), 0, pin.size());
    std::memcpy(pin.data(), &state, sizeof state);
  };
  for (float& value : m.acquire(weight, cm::access::write).span()) value = 1.0F;
  load(UINT64_MAX);
  CHECK_THROWS_WITH(device.prepare(), ContainsSubstring("an optimizer step after 18446744073709551615 updates"));
  CHECK_THROWS_AS(device.step(), cm::usage_error);
  load(7);
  for (float& value : m.gradient(weight).span()) value = 1.0F;
  device.step();
  CHECK(m.acquire(weight, cm::access::read).span()[0] < 1.0F);
}

TEST_CASE("a rehearsed step on the device needs what the real one needs", "[optimizer]")
{
  model<cm::bf16, adam, cm::gradient::separate> it{adam{}, true, loss_scale::fixed(1.0F), 64_KiB};
  const auto need = it.m.rehearse([&] {
    const auto scope = it.m.iteration();
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto gradient = it.m.gradient(it.weights.slice(index));
    }
    it.optimizer->step({});
  });
  // Gradient, two moments, master, value and the optimizer's buffer at once, in chunks of 8 KiB.
  CHECK(need.smallest_device >= 48_KiB);
  CHECK(need.smallest_device <= 64_KiB);
  CHECK(it.optimizer->kernel().progress.reached == 0);
}

}  // namespace device_optimizer_test
