// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/update_session.hpp>

#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <support/catch.hpp>
#include <support/fake_device.hpp>
#include <support/kernel_launcher.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace captured_step_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using support::fake_device;

namespace {

constexpr std::uint32_t layers = 6;
constexpr std::uint64_t elements = 900;
using captured_manager = cm::manager<fake_device>;
using device_adam = cm::optimizer::device_optimizer<captured_manager, cm::optimizer::adam, support::kernel_launcher>;

/// A stack of weights on a device that holds few of them. Its gradients depend on the weights and on one input, which
/// lies where kernels read it anew in each step.
struct model {
  explicit model(support::fake_schedule when, cm::bytes capacity = 40_KiB)
      : memory{{.device_capacity = capacity, .host_capacity = 512_KiB, .when = when, .seed = 3}}
  {
    weights = m.add_stacked<cm::bf16>(layers, {elements}, cm::role::parameter);
    optimizer.emplace(m, cm::optimizer::adam{});
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::write, cm::memory_location::host);
      for (std::uint64_t i = 0; i < elements; ++i)
        pin.span()[i] = cm::round_to<cm::bf16>(static_cast<float>((i + index) % 17) * 0.125F);
    }
    optimizer->prepare();
  }
  ~model() { memory.drain(); }

  template <class Work>
  void launch(Work work)
  {
    if (!m.rehearsing()) memory.launch(cm::agent::compute, [&](auto stream) { support::launch_kernel(stream, work); });
  }

  void step()
  {
    const auto scope = m.iteration();
    for (std::uint32_t index = layers; index-- > 0;) {
      auto weight = m.acquire(weights.slice(index), cm::access::read, cm::agent::compute);
      const auto work = m.lease(cm::tier::device, bytes_of(elements), cm::agent::compute);
      launch([out = reinterpret_cast<float*>(work.data()), in = weight.data()] {
        for (std::uint64_t i = 0; i < elements; ++i) out[i] = cm::to_float(in[i]);
      });
      const auto gradient = m.gradient(std::move(weight));
      launch([out = gradient.data(), in = reinterpret_cast<const float*>(work.data()), with = &input] {
        for (std::uint64_t i = 0; i < elements; ++i) out[i] = cm::round_to<cm::bf16>(in[i] * 0.5F - *with);
      });
    }
    optimizer->step({.learning_rate = rate, .clip = {.norm = 3.0F}});
  }
  /// Steps until the next one would follow the plan of the last one.
  void settle(int count = 4)
  {
    for (int now = 0; now < count; ++now) next([this] { step(); });
  }
  /// Kernels read the input when they run: it changes only when all is over.
  template <class Work>
  void next(Work work)
  {
    memory.drain();
    input = 0.25F * static_cast<float>(steps++ % 5);
    work();
  }

  [[nodiscard]] std::vector<std::byte> everything()
  {
    std::vector<std::byte> all;
    for (std::uint32_t index = 0; index < layers; ++index)
      for (const cm::list_id list :
           {cm::value_list, m.list("master"), m.list("adam/momentum"), m.list("adam/variance")}) {
        const auto pin = m.acquire_bytes(weights.slice(index), list, cm::access::read, cm::memory_location::host);
        const auto bytes = std::as_bytes(pin.span());
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    REQUIRE(memory.faults().empty());
    return all;
  }

  static cm::bytes bytes_of(std::uint64_t floats) { return cm::bytes{floats * sizeof(float)}; }

  fake_device memory;
  captured_manager m{memory, {.chunk_bytes = 4_KiB, .error_details = true}};
  cm::stacked<cm::bf16> weights{};
  std::optional<device_adam> optimizer;
  float input = 0.0F;
  float rate = 0.125F;
  int steps = 0;
};

std::vector<std::byte> after_steps(int count)
{
  model it{support::fake_schedule::earliest};
  it.settle(count);
  return it.everything();
}

std::string refusal_of(model& it, const std::function<void()>& step)
{
  try {
    (void)it.m.capture(step);
  } catch (const cm::usage_error& refused) {
    return refused.what();
  }
  return "it was captured";
}

}  // namespace

TEST_CASE("replays of a captured step leave the bits of as many steps", "[manager]")
{
  for (const auto when :
       {support::fake_schedule::latest, support::fake_schedule::random, support::fake_schedule::earliest}) {
    for (const cm::bytes capacity : {40_KiB, 64_KiB, 256_KiB}) {
      INFO("schedule " << static_cast<int>(when) << ", device " << capacity.count());
      model it{when, capacity};
      it.settle();
      std::optional<decltype(it.m.capture([] {}))> captured;
      it.next([&] { captured.emplace(it.m.capture([&] { it.step(); })); });
      const cm::report before = it.m.report();
      const std::uint64_t allocated = it.memory.allocations();
      for (int now = 0; now < 5; ++now) {
        it.next([&] { REQUIRE(captured->replay()); });
      }
      CHECK(it.memory.allocations() == allocated);
      const cm::report after = it.m.report();
      CHECK(after.iterations == before.iterations + 5);
      CHECK((after.loads - before.loads) % 5 == 0);
      CHECK((capacity == 256_KiB) == (after.loads == before.loads));
      REQUIRE((it.everything() == after_steps(10)));
    }
  }
}

TEST_CASE("steps, replays and looks from the host may take turns", "[manager]")
{
  for (const cm::bytes capacity : {40_KiB, 256_KiB}) {
    INFO("device " << capacity.count());
    model it{support::fake_schedule::latest, capacity};
    it.settle();
    std::optional<decltype(it.m.capture([] {}))> captured;
    it.next([&] { captured.emplace(it.m.capture([&] { it.step(); })); });
    int replays = 0;
    for (int now = 0; now < 12; ++now) {
      if (now % 4 == 1) (void)it.everything();  // brings everything to the host
      it.next([&] {
        if (now % 4 != 3 && captured->replay())
          ++replays;
        else
          it.step();
      });
    }
    REQUIRE((it.everything() == after_steps(17)));
    CHECK(replays >= 3);
    CHECK(it.optimizer->progress().updates == 17);
  }
}

TEST_CASE("a step on a device whose kernels and optimizer are on streams never waits and makes nothing", "[manager]")
{
  for (const cm::bytes capacity : {40_KiB, 64_KiB, 256_KiB}) {
    model it{support::fake_schedule::random, capacity};
    it.settle();
    const std::uint64_t waits = it.memory.synchronizations();
    const std::uint64_t made = it.memory.allocations();
    it.settle(3);
    CHECK(it.memory.synchronizations() == waits);
    CHECK(it.memory.allocations() == made);
    CHECK(it.m.report().waits.demand_miss + it.m.report().waits.optimizer_input + it.m.report().waits.other == 0);
    (void)it.optimizer->progress();
    CHECK(it.memory.synchronizations() == waits + 1);
  }
}

TEST_CASE("learning rates change between replays", "[manager]")
{
  const auto run = [](bool replays) {
    model it{support::fake_schedule::latest};
    it.settle();
    std::optional<decltype(it.m.capture([] {}))> captured;
    if (replays)
      it.next([&] { captured.emplace(it.m.capture([&] { it.step(); })); });
    else
      it.settle(1);
    for (int now = 0; now < 3; ++now) {
      it.rate = 0.5F / static_cast<float>(now + 1);
      if (replays) it.optimizer->set_rates({&it.rate, 1});
      it.next([&] {
        if (replays)
          REQUIRE(captured->replay());
        else
          it.step();
      });
    }
    return it.everything();
  };
  REQUIRE((run(true) == run(false)));
}

TEST_CASE("what a graph cannot hold is refused with its reason, and nothing is lost", "[manager]")
{
  model it{support::fake_schedule::latest};
  CHECK(refusal_of(it, [&] { it.step(); }).find("does not repeat yet") != std::string::npos);
  it.settle();
  const auto weight = it.weights.slice(0);
  const auto with_host_work = [&] {
    const auto scope = it.m.iteration();
    (void)it.m.acquire(weight, cm::access::read, cm::memory_location::host);
  };
  CHECK(refusal_of(it, with_host_work).find("cannot be captured") != std::string::npos);
  const auto two_steps = [&] {
    it.step();
    it.step();
  };
  it.settle();
  CHECK(refusal_of(it, two_steps).find("not the recorded one") != std::string::npos);
  it.settle(1);
  CHECK(refusal_of(it, [] {}).find("not the recorded one") != std::string::npos);
  {
    const auto scope = it.m.iteration("other");
    CHECK_THROWS_AS(it.m.capture([] {}), cm::usage_error);
  }
  model other{support::fake_schedule::latest};
  other.settle();
  const auto with_rates = [&] {
    const auto scope = other.m.iteration();
    other.optimizer->set_rates({&other.rate, 1});
  };
  CHECK(refusal_of(other, with_rates).find("inside a capture") != std::string::npos);
  model plain{support::fake_schedule::latest};  // with the inputs of the steps that were done
  plain.settle(8);
  plain.step();
  plain.step();
  plain.settle(1);
  it.steps = plain.steps;
  REQUIRE((it.everything() == plain.everything()));
}

TEST_CASE("an exception in the middle of a captured step leaves what was done by then", "[manager]")
{
  struct interruption {};
  const auto run = [](bool captures) {
    model it{support::fake_schedule::latest};
    it.settle();
    const auto interrupted = [&] {
      const auto scope = it.m.iteration();
      for (std::uint32_t index = 0; index < layers; ++index) {
        const auto gradient = it.m.gradient(it.weights.slice(index), cm::agent::compute);
        it.launch([out = gradient.data()] {
          for (std::uint64_t i = 0; i < elements; ++i) out[i] = cm::bf16::from_bits(0x3f80);
        });
      }
      throw interruption{};
    };
    if (captures)
      CHECK_THROWS_AS(it.m.capture(interrupted), interruption);
    else
      CHECK_THROWS_AS(interrupted(), interruption);
    it.optimizer->step({});
    it.settle(2);
    return it.everything();
  };
  REQUIRE((run(true) == run(false)));
}

TEST_CASE("a captured step may outlive its manager, but not be used then", "[manager]")
{
  std::optional<decltype(std::declval<captured_manager&>().capture([] {}))> captured;
  {
    model it{support::fake_schedule::random};
    it.settle();
    captured.emplace(it.m.capture([&] { it.step(); }));
    auto moved = std::move(*captured);
    CHECK_THROWS_AS((void)captured->replay(), cm::usage_error);
    CHECK(moved.replay());
    captured.reset();
    captured.emplace(std::move(moved));
    {
      const auto scope = it.m.iteration();
      CHECK_THROWS_AS((void)captured->replay(), cm::usage_error);
    }
  }
  CHECK_THROWS_AS((void)captured->replay(), cm::usage_error);
}

TEST_CASE("a graph that cannot be started in passing is started by the next call", "[manager]")
{
  model it{support::fake_schedule::random};
  it.settle();
  std::optional<decltype(it.m.capture([] {}))> captured;
  it.next([&] { captured.emplace(it.m.capture([&] { it.step(); })); });
  const std::uint64_t launches = it.memory.runtime().calls("launch_graph");
  for (const std::uint64_t later : {1U, 2U}) it.memory.runtime().fail_call_of("launch_graph", launches + later, 2);
  CHECK_THROWS_AS((void)captured->replay(), cm::device_error);
  it.next([&] { REQUIRE(captured->replay()); });
  REQUIRE((it.everything() == after_steps(6)));
}

TEST_CASE("a graph that ends the device ends the manager", "[manager]")
{
  model it{support::fake_schedule::random};
  it.settle();
  auto captured = it.m.capture([&] { it.step(); });
  it.memory.runtime().fail_call_of("launch_graph", it.memory.runtime().calls("launch_graph") + 1, 719);
  CHECK_THROWS_AS((void)captured.replay(), cm::device_error);
  CHECK_THROWS_AS((void)captured.replay(), cm::device_error);
  CHECK_THROWS_AS(it.m.iteration(), cm::device_error);
}

TEST_CASE("a capture and a replay that are refused are told where everything lies", "[manager]")
{
  model it{support::fake_schedule::latest};
  it.settle();
  std::optional<decltype(it.m.capture([] {}))> captured;
  it.next([&] { captured.emplace(it.m.capture([&] { it.step(); })); });
  const auto details_of = [](auto call) {
    try {
      (void)call();
    } catch (const cm::error& refused) {
      return std::string{refused.details()};
    }
    return std::string{"nothing was thrown"};
  };
  const auto scope = it.m.iteration();
  CHECK_THAT(details_of([&] { return captured->replay(); }),
             ContainsSubstring("residency at access 0 of an iteration"));
  CHECK_THAT(details_of([&] { return static_cast<void>(it.m.capture([] {})), 0; }),
             ContainsSubstring("residency at access 0 of an iteration"));
}

}  // namespace captured_step_test
