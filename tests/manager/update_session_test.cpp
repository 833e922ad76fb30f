// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/update_session.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>

#include <support/catch.hpp>
#include <support/fake_device.hpp>
#include <support/kernel_launcher.hpp>
#include <support/refusal.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "parts_rig.hpp"

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

  /// @param frozen   the first so many layers have no gradient
  void step(std::uint32_t frozen = 0)
  {
    const auto scope = m.iteration(frozen == 0 ? "train" : "train with frozen layers");
    for (std::uint32_t index = layers; index-- > frozen;) {
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
    input = spoils ? std::numeric_limits<float>::infinity() : 0.25F * static_cast<float>(steps % 5);
    ++steps;
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
  cm::tensor<float> beside = m.add<float>({elements}, cm::role::activation);  // which no step uses
  std::optional<device_adam> optimizer;
  float input = 0.0F;
  float rate = 0.125F;
  int steps = 0;
  bool spoils = false;  ///< the next input
};

std::vector<std::byte> after_steps(int count)
{
  model it{support::fake_schedule::earliest};
  it.settle(count);
  return it.everything();
}

std::string refusal_of(model& it, const std::function<void()>& step)
{
  return support::refusal<cm::usage_error>([&] { (void)it.m.capture(step); });
}

}  // namespace

TEST_CASE("replays of a captured step leave the bits of as many steps", "[manager]")
{
  const std::vector<std::byte> expected = after_steps(10);
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
      REQUIRE((it.everything() == expected));
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

TEST_CASE("a captured step is not replayed while activations have other sizes than at its capture", "[manager]")
{
  model it{support::fake_schedule::latest, 256_KiB};
  it.settle();
  std::optional<decltype(it.m.capture([] {}))> captured;
  it.next([&] { captured.emplace(it.m.capture([&] { it.step(); })); });
  const auto resize = [&](std::uint64_t floats) {
    it.m.resize_activations([&](auto set) { set(it.beside, model::bytes_of(floats)); });
  };
  resize(elements / 2);
  CHECK_FALSE(captured->replay());
  it.next([&] { it.step(); });
  CHECK_FALSE(captured->replay());
  resize(elements);
  it.next([&] { REQUIRE(captured->replay()); });
  REQUIRE((it.everything() == after_steps(7)));
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

TEST_CASE("replays count the steps that weights miss, and of these none that the device skips", "[manager]")
{
  const auto run = [](bool replays) {
    model it{support::fake_schedule::latest, 512_KiB};
    std::optional<decltype(it.m.capture([] {}))> graphs[2];
    int replayed[2] = {};
    const auto train = [&](std::uint32_t frozen) {
      it.next([&] {
        if (auto& graph = graphs[frozen == 0 ? 0 : 1]; graph && graph->replay())
          ++replayed[frozen == 0 ? 0 : 1];
        else
          it.step(frozen);
      });
    };
    for (const std::uint32_t frozen : {0U, 2U}) {  // the first graph is captured before anything has missed a step
      for (int now = 0; now < 4; ++now) train(frozen);
      it.next([&] {
        replays ? static_cast<void>(graphs[frozen == 0 ? 0 : 1].emplace(it.m.capture([&] { it.step(frozen); })))
                : it.step(frozen);
      });
    }
    const std::uint64_t before = it.m.report().iterations;
    for (const std::uint32_t frozen : {2U, 0U, 2U, 2U, 0U, 0U, 2U, 0U}) {
      it.spoils = it.steps % 3 == 0;
      train(frozen);
    }
    CHECK(it.m.report().iterations == before + 8);
    const auto progress = it.optimizer->progress();
    CHECK((progress.updates == 16 && progress.skips == 2));
    CHECK((replayed[0] == (replays ? 4 : 0) && replayed[1] == (replays ? 4 : 0)));
    return it.everything();
  };
  const auto replayed = run(true);
  REQUIRE((replayed == run(false)));
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

namespace content_session_test {

using namespace chunkmem;

namespace {

constexpr slot_id weight{0}, neighbour{1};

/// Two weights of 16 bits with their masters, and what a save or a load sees of them.
template <class Gradient = gradient::separate>
struct fixture {
  using rig_type = manager_parts::parts_rig<placement::optimizer_on_host, Gradient>;
  using engine_type = typename rig_type::engine_type;
  using builder_type = typename rig_type::builder_type;

  void declare()
  {
    for (int index = 0; index < 2; ++index) rig.template add<bf16>(1024);
    rig.builder.add_lists(manager_parts::momentum_and_master);
  }
  void fill()
  {
    rig.builder.prepare();
    for (const slot_id each : {weight, neighbour}) {
      rig.template fill<bf16>(each, 1.5F);
      rig.template fill<float>(rig.master_of(each), 1.5F, memory_location::host);
    }
  }
  void differentiate(slot_id value)
  {
    gradients.template expect<bf16>(value, 0);
    rig.engine.release(gradients.open(value, entry_kind::write, agent::host, false));
  }

  rig_type rig;
  gradient_store<engine_type, builder_type> gradients{rig.engine, rig.builder, *rig.link};
  content_session<engine_type, builder_type> content{rig.engine, rig.builder, gradients, rig.states};
};

/// An object with one state.
struct stateful {
  registration registered;
  std::uint32_t count = 3;

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"count", std::as_writable_bytes(std::span{&count, 1})});
  }
};

}  // namespace

TEST_CASE("a load drops gradients and voids a step that is half done, and nothing is saved before its end", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  it.differentiate(weight);
  it.rig.engine.gradients().begin_update();
  CHECK_THROWS_AS(it.rig.engine.gradients().expect_no_update("a save"), usage_error);
  it.rig.engine.gradients().expect_no_load("a save");
  it.content.begin_load();
  CHECK(it.gradients.is_fresh(weight));
  CHECK(it.rig.engine.gradients().forgotten() == 1);
  it.rig.engine.gradients().expect_no_update("a save");
  CHECK_THROWS_AS(it.rig.engine.gradients().expect_no_load("a save"), usage_error);
  it.content.begin_load();  // tried again
  it.content.end_load();
  it.rig.engine.gradients().expect_no_load("a save");
  CHECK(it.rig.first_of<bf16>(weight) == 1.5F);  // it was not written yet
}

TEST_CASE("updates that wait for a load are never done, and weights that were lent to gradients can be written",
          "[manager]")
{
  fixture<gradient::in_place> it;
  it.declare();
  it.fill();
  it.rig.lend_weights();
  it.differentiate(weight);
  it.differentiate(neighbour);
  manager_parts::numbers updated;
  auto& waiting = it.rig.engine.pending();
  waiting.prepare();
  waiting.add(weight);
  waiting.serve(manager_parts::note_update, &updated);
  REQUIRE(it.rig.state_of(weight) == tensor_state::gradient);
  it.content.begin_load();
  CHECK(updated.empty());
  CHECK_FALSE(waiting.any());
  for (const slot_id each : {weight, neighbour}) {
    CHECK(it.rig.state_of(each) == tensor_state::hold);
    it.rig.fill<bf16>(each, 2.5F, memory_location::host);
  }
  it.content.end_load();
  CHECK(it.rig.first_of<bf16>(neighbour) == 2.5F);
}

TEST_CASE("who takes bytes from where they lie is told of a load, and not of a rehearsed one", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  int told = 0;
  it.content.changes().begin(manager_parts::count_call, nullptr, &told);
  it.rig.engine.rehearsing().begin(it.rig.engine.tensors());
  it.rig.engine.gradients().begin_rehearsal();
  it.content.begin_load();
  it.content.end_load();
  it.rig.engine.rehearsing().end();
  it.rig.engine.gradients().end_rehearsal();
  CHECK(told == 0);
  it.content.begin_load();
  it.content.end_load();
  CHECK(told == 1);
}

TEST_CASE("a load ends the declarations of a model that has parameters", "[manager]")
{
  fixture without;
  without.rig.add<float>(100, role::buffer);
  without.content.begin_load();
  CHECK_FALSE(without.rig.engine.tensors().is_sealed());
  without.rig.add<float>(100, role::buffer);
  fixture with;
  with.declare();
  with.content.begin_load();
  CHECK(with.rig.engine.tensors().is_sealed());
  CHECK_THROWS_AS(with.rig.add<float>(100, role::buffer), usage_error);
}

TEST_CASE("a load that a lost device stopped is half done", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  it.differentiate(weight);
  it.rig.lose_device();
  CHECK_THROWS_AS(it.content.begin_load(), device_error);
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK_THROWS_AS(it.rig.engine.gradients().expect_no_load("a save"), usage_error);
}

TEST_CASE("a load that is abandoned leaves nothing to read, and one under a pin does not begin", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  {
    const auto held = it.rig.hold<bf16>(weight, access_mode::read, memory_location::host);
    CHECK_THROWS_AS(it.content.expect_unpinned(), usage_error);
  }
  it.content.expect_unpinned();
  it.content.begin_load();
  it.content.abandon_load();
  for (const slot_id each : {weight, neighbour}) {
    CHECK(it.rig.state_of(each) == tensor_state::free);
    CHECK(it.rig.state_of(it.rig.master_of(each)) == tensor_state::free);
  }
  CHECK_THROWS_AS(it.rig.engine.gradients().expect_no_load("a save"), usage_error);
  it.fill();  // the next load
  it.content.end_load();
  it.rig.engine.gradients().expect_no_load("a save");
}

TEST_CASE("a save is refused where the owner of a state is gone, and its name is visited without content", "[manager]")
{
  fixture it;
  std::optional<stateful> owner{std::in_place};
  it.rig.states.add(*owner, [] {});
  it.content.states().expect_whole();
  CHECK(it.content.states().check_of("count") == nullptr);
  std::size_t size = 0;
  const auto measure = [&](std::string_view name, std::span<std::byte> content) {
    CHECK(name == "count");
    size = content.size();
  };
  it.content.states().for_each(measure);
  CHECK(size == sizeof(std::uint32_t));
  owner.reset();
  it.content.states().for_each(measure);
  CHECK(size == 0);
  CHECK_THROWS_AS(it.content.states().expect_whole(), usage_error);
}

}  // namespace content_session_test

namespace update_session_test {

namespace cm = chunkmem;
using namespace cm::literals;
using numbers = std::vector<std::uint32_t>;

namespace {

/// Six weights of a chunk, which a test uses and differentiates in the orders that it gives.
struct fixture {
  static constexpr std::uint32_t count = 6;

  fixture()
  {
    m.use(kernel);
    weights = m.add_stacked<float>(count, {1000}, cm::role::parameter);
    for (std::uint32_t index = 0; index < count; ++index)
      for (float& it : m.acquire(weights.slice(index), cm::access::write).span()) it = 1;
  }
  void use(const numbers& which)
  {
    for (const std::uint32_t index : which) (void)m.acquire(weights.slice(index), cm::access::read);
  }
  void differentiate(const numbers& which, bool done = false)
  {
    for (const std::uint32_t index : which) {
      auto gradient = m.gradient(weights.slice(index));
      if (!m.rehearsing())
        for (float& it : gradient.span()) it = static_cast<float>(index);
      if (done) m.gradient_done(std::move(gradient));
    }
  }
  [[nodiscard]] numbers order()
  {
    numbers result;
    m.updates().for_each_in_order(
        0, [&](cm::tensor_handle, const cm::tensor_info& info) { result.push_back(info.ordinal); });
    return result;
  }
  /// Whose gradients the last iteration read, in their order; of each kind of access to a value or a gradient.
  [[nodiscard]] numbers reads(const cm::access_record& record, bool gradients) const
  {
    numbers result;
    for (const cm::access_entry& it : record.entries()) {
      const bool is_wanted =
          gradients ? it.kind == cm::entry_kind::read_on_host : it.kind == cm::entry_kind::read_write_on_host;
      if (is_wanted && it.slot / count == (gradients ? 1U : 0U)) result.push_back(it.slot % count);
    }
    return result;
  }

  cm::optimizer::sgd kernel;
  cm::backend::host_arena memory{{.device_capacity = 48_KiB, .host_capacity = 128_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights;
};

}  // namespace

TEST_CASE("gradients have the order in which they were completed, behind parameters that have none", "[manager]")
{
  fixture it;
  CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
  it.differentiate({5, 3, 0, 1});
  it.differentiate({5});  // added to, and complete only now
  it.m.updates().order_by_completion();
  CHECK(it.order() == numbers{2, 4, 3, 0, 1, 5});
  it.m.gradient_done(it.weights.slice(3));
  it.m.updates().order_by_completion();
  CHECK(it.order() == numbers{2, 4, 0, 1, 5, 3});
  it.m.drop_gradients();
  CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
}

TEST_CASE(
    "weights have the order in which the iteration used them first, also where it repeats, diverges or is rehearsed",
    "[manager]")
{
  fixture it;
  const auto ordered = [&](const numbers& used) {
    const auto scope = it.m.iteration();
    it.use(used);
    it.use({0, 1, 2});
    it.differentiate({4, 5, 3, 0, 2});
    it.m.updates().order_by_use();
    const numbers seen = it.order();
    it.m.drop_gradients();
    return seen;
  };
  numbers rehearsed;
  it.m.rehearse([&] { rehearsed = ordered({3, 5, 0}); });
  CHECK(rehearsed == numbers{1, 3, 5, 0, 2, 4});
  for (int turn = 0; turn < 4; ++turn) CHECK(ordered({3, 5, 0}) == rehearsed);
  CHECK(it.m.report().divergences == 0);
  CHECK(ordered({3, 0, 5}) == numbers{1, 3, 0, 5, 2, 4});
  CHECK(it.m.report().divergences == 1);
  it.differentiate({4, 2});
  it.m.updates().order_by_use();  // outside of an iteration nothing is known
  CHECK(it.order() == numbers{0, 1, 3, 5, 2, 4});
}

TEST_CASE("a step measures gradients as they were completed and updates weights as they are used, or as gradients came",
          "[manager]")
{
  for (const bool measured : {false, true})
    for (const bool needs_norm : {false, true}) {
      fixture it;
      for (int turn = 0; turn < 3; ++turn) {
        const auto scope = it.m.iteration();
        it.use({5, 0, 3, 1, 2, 4});
        it.differentiate({1, 3, 5, 4, 2}, measured);
        cm::optimizer::step(it.m, it.kernel, {.skip_nonfinite = needs_norm});
      }
      CHECK(it.m.report().divergences == 0);
      const numbers updates = needs_norm ? numbers{5, 3, 1, 2, 4} : numbers{1, 3, 5, 4, 2};
      numbers reads = updates;
      if (needs_norm && !measured) reads.insert(reads.begin(), {1, 3, 5, 4, 2});
      CHECK(it.reads(*it.m.profile(), true) == reads);
      CHECK(it.reads(*it.m.profile(), false) == updates);
      CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
    }
}

TEST_CASE("a rehearsal leaves the order of a step that is half done", "[manager]")
{
  fixture it;
  it.differentiate({2, 0});
  it.m.updates().order_by_completion();
  const numbers before = it.order();
  const std::uint64_t opened = it.m.updates().gradients().opened();
  it.m.rehearse([&] {
    CHECK(it.order() == numbers{0, 1, 2, 3, 4, 5});
    it.m.drop_gradients();
    it.differentiate({0, 1, 2, 3, 4, 5});
    cm::optimizer::step(it.m, it.kernel);
  });
  CHECK(it.order() == before);
  CHECK(it.m.updates().gradients().opened() == opened);
}

TEST_CASE("a measure of all gradients that is given lasts until a gradient comes or goes, or the step is over",
          "[manager]")
{
  fixture it;
  cm::gradient_measure given;
  given.squares = 25.0;
  const auto is_forgotten_by = [&](auto change) {
    it.differentiate({0, 1, 2, 3, 4, 5});
    it.m.updates().gradients().keep_measure_of_all(given);
    if (it.m.updates().gradients().measure_of_all() == nullptr) return false;
    change();
    return it.m.updates().gradients().measure_of_all() == nullptr;
  };
  CHECK(is_forgotten_by([&] { it.differentiate({3}); }));
  CHECK(is_forgotten_by([&] { it.m.drop_gradient(it.weights.slice(3)); }));
  CHECK(is_forgotten_by([&] { it.m.drop_gradients(); }));
  CHECK(is_forgotten_by([&] { cm::optimizer::step(it.m, it.kernel); }));
  // which had no use for it
  CHECK(is_forgotten_by([&] { cm::optimizer::step(it.m, it.kernel, {.skip_nonfinite = false}); }));
  CHECK(is_forgotten_by([&] {
    it.m.content().begin_load();
    it.m.content().end_load();
  }));
  CHECK(
      !is_forgotten_by([&] { it.m.rehearse([&] { CHECK(it.m.updates().gradients().measure_of_all() == nullptr); }); }));
  CHECK(it.m.updates().gradients().measure_of_all()->squares == 25.0);
  it.m.rehearse([&] {
    it.differentiate({2});
    it.m.updates().gradients().keep_measure_of_all({});
    it.m.drop_gradients();
    CHECK(it.m.updates().gradients().measure_of_all() == nullptr);
  });
  CHECK(it.m.updates().gradients().measure_of_all()->squares == 25.0);
}

TEST_CASE("a step that is given the measure of all gradients reads each of them once", "[manager]")
{
  fixture it;
  for (int turn = 0; turn < 3; ++turn) {
    const auto scope = it.m.iteration();
    it.use({5, 0, 3, 1, 2, 4});
    it.differentiate({1, 3, 5, 4, 2});
    it.m.updates().gradients().keep_measure_of_all({});
    cm::optimizer::step(it.m, it.kernel, {.clip = {.norm = 1.0F}});
  }
  CHECK(it.m.report().divergences == 0);
  CHECK(it.reads(*it.m.profile(), true) == numbers{5, 3, 1, 2, 4});
}

namespace {

/// Four weights, two in a chunk, their gradients, and a frozen tensor; without a manager.
struct alone {
  using rig_type = manager_parts::parts_rig<>;
  using engine_type = rig_type::engine_type;
  using builder_type = rig_type::builder_type;

  alone()
  {
    for (int index = 0; index < 4; ++index) rig.add<float>(512);
    rig.add<float>(512, cm::role::frozen);
    rig.builder.prepare();
    for (const cm::slot_id each : cm::ids<cm::slot_id>(4)) rig.fill<float>(each, 1.0F);
  }
  [[nodiscard]] cm::tensor_handle handle(std::uint32_t index) const
  {
    return rig.builder.handle_of(cm::tensor_id{index});
  }
  void use(const numbers& which)
  {
    for (const std::uint32_t index : which) (void)rig.hold<const float>(cm::slot_id{index}, cm::access::read);
  }
  void differentiate(const numbers& which)
  {
    for (const std::uint32_t index : which) {
      gradients.expect<float>(cm::slot_id{index}, 0);
      rig.engine.release(gradients.open(cm::slot_id{index}, cm::entry_kind::write, cm::agent::host, false));
    }
  }
  [[nodiscard]] numbers order(std::uint32_t done = 0)
  {
    numbers result;
    updates.for_each_in_order(done,
                              [&](cm::tensor_handle, const cm::tensor_info& info) { result.push_back(info.ordinal); });
    return result;
  }

  rig_type rig;
  cm::gradient_store<engine_type, builder_type> gradients{rig.engine, rig.builder, *rig.link};
  cm::update_session<engine_type, builder_type> updates{rig.engine, rig.builder, gradients, rig.states};
};

}  // namespace

TEST_CASE("a step that was cut short goes on where it was, in the same order", "[manager]")
{
  alone it;
  it.differentiate({2, 0, 3});
  it.updates.order_by_completion();
  const std::uint64_t forgotten = it.updates.gradients().forgotten();
  it.updates.gradients().begin_update();
  it.updates.consume_gradient(it.handle(1));  // it has none
  it.updates.consume_gradient(it.handle(2));
  CHECK(it.order() == numbers{1, 2, 0, 3});
  CHECK(it.order(2) == numbers{0, 3});
  CHECK_THROWS_AS(it.differentiate({1}), cm::usage_error);
  CHECK(it.updates.gradients().forgotten() == forgotten);
  it.updates.gradients().end_update();
  CHECK(it.order() == numbers{0, 1, 2, 3});
  it.differentiate({1});
}

TEST_CASE(
    "an order by use begins with weights without a gradient, then those that were named, and says where the rest is",
    "[manager]")
{
  alone it;
  const auto scope = it.rig.iterate();
  it.use({3, 1, 3});
  it.differentiate({0, 1, 3});
  CHECK(it.updates.order_by_use() == 1);
  CHECK(it.order() == numbers{2, 3, 1, 0});
  const cm::tensor_handle named[] = {it.handle(0), it.handle(2)};
  CHECK(it.updates.order_by_use(named) == 2);
  CHECK(it.order() == numbers{2, 0, 3, 1});
  const cm::tensor_handle wrong[] = {it.handle(1), it.handle(4)};
  CHECK_THROWS_AS(it.updates.order_by_use(wrong), cm::usage_error);
  CHECK(it.order() == numbers{2, 0, 3, 1});
}

TEST_CASE("updates that wait are done in the step's order before their chunk is used, and never without their object",
          "[manager]")
{
  alone it;
  it.differentiate({3, 0, 2});
  it.updates.order_by_completion();
  numbers updated, other;
  it.updates.make_room_for_updates();
  it.updates.hold_updates(manager_parts::note_update, &updated);
  CHECK(it.rig.engine.pending().count() == 3);
  CHECK(updated.empty());
  it.use({2});
  CHECK(updated == numbers{3, 2});
  it.updates.finish_updates();
  CHECK(updated == numbers{3, 2, 0});
  it.updates.make_room_for_updates();
  it.updates.hold_updates(manager_parts::note_update, &updated);
  it.updates.pending().leave(&other);  // it serves none of them
  it.use({2});
  it.updates.pending().leave(&updated);
  CHECK_THROWS_AS(it.use({1}), cm::usage_error);  // a chunk is updated as a whole
  CHECK_THROWS_AS(it.updates.finish_updates(), cm::usage_error);
  CHECK(it.rig.engine.pending().count() == 1);
  it.use({2, 3});
}

TEST_CASE("what a step measured is kept with its gradient, and a tensor that is not trained has none", "[manager]")
{
  alone it;
  CHECK_THROWS_AS(it.updates.measure_of(it.handle(4)), cm::usage_error);
  CHECK_THROWS_AS(it.updates.consume_gradient(it.handle(4)), cm::usage_error);
  it.differentiate({1, 2});
  const std::uint64_t opened = it.updates.gradients().opened();
  cm::gradient_measure measure;
  measure.squares = 25.0;
  it.updates.keep_measure(it.handle(1), measure);
  REQUIRE(it.updates.measure_of(it.handle(1)) != nullptr);
  CHECK(it.updates.measure_of(it.handle(1))->squares == 25.0);
  CHECK(it.updates.measure_of(it.handle(2)) == nullptr);
  CHECK(it.updates.gradients().opened() == opened);
  it.updates.consume_gradient(it.handle(1));
  CHECK(it.updates.measure_of(it.handle(1)) == nullptr);
  CHECK_FALSE(it.gradients.is_fresh(cm::slot_id{2}));
}

TEST_CASE("a step asks for kernels that were registered, a whole load and a whole iteration, of which it says once",
          "[manager]")
{
  alone it;
  cm::optimizer::sgd kernel;
  CHECK_THROWS_AS(it.updates.expect_used(kernel.progress.registered, "an optimizer kernel"), cm::usage_error);
  it.rig.states.add(kernel, [] {});
  it.updates.expect_used(kernel.progress.registered, "an optimizer kernel");
  it.rig.engine.gradients().begin_load();
  CHECK_THROWS_AS(it.updates.gradients().expect_no_load("a step"), cm::usage_error);
  it.rig.engine.gradients().end_load();
  it.updates.gradients().expect_no_load("a step");
  auto& batches = it.rig.engine.gradients().micro_batches();
  batches.reserve(2);
  batches.begin(2);
  batches.name(1, cm::pass::backward);
  it.updates.gradients().expect_whole_iteration();  // no gradient is of it
  it.rig.engine.gradients().note_opened(cm::slot_id{0});
  for (int time = 0; time < 2; ++time)
    CHECK_THROWS_AS(it.updates.gradients().expect_whole_iteration(), cm::usage_error);  // so long as it runs
  batches.end();
  it.updates.gradients().expect_whole_iteration();
  batches.keep();
  CHECK_THROWS_AS(it.updates.gradients().expect_whole_iteration(), cm::usage_error);
  it.updates.gradients().expect_whole_iteration();
}

TEST_CASE("an iteration that does what few others do leaves no record", "[manager]")
{
  alone it;
  const auto iterate = [&](bool is_exceptional) {
    const auto scope = it.rig.iterate();
    it.use({0, 1});
    if (is_exceptional) it.updates.keep_record();
  };
  iterate(true);
  CHECK(it.rig.engine.schedule().record_of("train") == nullptr);
  iterate(false);
  REQUIRE(it.rig.engine.schedule().record_of("train") != nullptr);
  CHECK(it.rig.engine.schedule().record_of("train")->size() == 2);
}

}  // namespace update_session_test
