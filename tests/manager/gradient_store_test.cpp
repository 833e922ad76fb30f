// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradient_store.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>

#include <support/catch.hpp>
#include <support/failing.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>
#include "parts_rig.hpp"

namespace change_watch_test {

using namespace chunkmem;

namespace {

void count(void* context, chunk_id) noexcept
{
  ++*static_cast<int*>(context);
}

}  // namespace

TEST_CASE("who watches is told before each change, until the watch ends", "[manager]")
{
  change_watch watch;
  watch.tell(chunk_id{3});  // nobody is there
  int told = 0;
  watch.begin(count, nullptr, &told);
  watch.tell(chunk_id{3});
  watch.tell(chunk_id::none);
  CHECK(told == 2);
  watch.end(&told);
  watch.tell(chunk_id{3});
  CHECK(told == 2);
}

TEST_CASE("who watches hears which chunk changes", "[manager]")
{
  change_watch watch;
  chunk_id heard{0};
  watch.begin([](void* context, chunk_id chunk) noexcept { *static_cast<chunk_id*>(context) = chunk; }, nullptr,
              &heard);
  watch.tell(chunk_id{7});
  CHECK(heard == chunk_id{7});
  watch.tell(chunk_id::none);
  CHECK(heard == chunk_id::none);
}

TEST_CASE("who watches hears the begin and the end of an update, also of one that throws", "[manager]")
{
  change_watch watch;
  std::vector<bool> heard;
  const auto hear = [](void* context, bool begins) noexcept {
    static_cast<std::vector<bool>*>(context)->push_back(begins);
  };
  const auto update = [&](bool throws) {
    const auto updating = watch.updating();
    if (throws) throw std::runtime_error{"an update"};
  };
  update(false);  // nobody is there
  watch.begin([](void*, chunk_id) noexcept {}, hear, &heard);
  update(false);
  CHECK_THROWS_AS(update(true), std::runtime_error);
  CHECK(heard == std::vector<bool>{true, false, true, false});
  watch.end(&heard);
  update(false);
  CHECK(heard.size() == 4);
}

TEST_CASE("one watches at a time, and nobody ends the watch of another", "[manager]")
{
  change_watch watch;
  int first = 0, second = 0;
  watch.begin(count, nullptr, &first);
  CHECK_THROWS_AS(watch.begin(count, nullptr, &second), usage_error);
  watch.end(&second);
  watch.end(nullptr);
  watch.tell(chunk_id{1});
  CHECK(first == 1);
  CHECK(second == 0);
  watch.end(&first);
  watch.begin(count, nullptr, &second);
  watch.end(&first);
  watch.tell(chunk_id{1});
  CHECK(second == 1);
}

}  // namespace change_watch_test

namespace gradient_store_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr slot_id weight{0}, neighbour{1};

/// The element of a master; no bf16 has this value.
float trained(std::size_t index)
{
  return 0.3F + static_cast<float>(index);
}

/// Two weights of 16 bits that share a chunk, with their masters.
template <class Gradient>
struct fixture {
  using rig_type = manager_parts::parts_rig<placement::optimizer_on_host, Gradient>;

  fixture()
  {
    for (int index = 0; index < 2; ++index) rig.template add<bf16>(1024);
    rig.builder.add_lists(manager_parts::momentum_and_master);
    rig.builder.prepare();
    for (const slot_id each : {weight, neighbour}) {
      const auto value = rig.template hold<bf16>(each, access::write);
      const auto master = rig.template hold<float>(rig.master_of(each), access::write, memory_location::host);
      for (std::size_t index = 0; index < master.size(); ++index) {
        master.span()[index] = trained(index);
        value.span()[index] = round_to<bf16>(trained(index));
      }
    }
    if (Gradient{}.takes_slot()) rig.lend_weights();
  }
  /// Opens a gradient as a trainer does, and writes it.
  void differentiate(slot_id value)
  {
    gradients.template expect<bf16>(value, 0);
    const typename rig_type::template pin_type<bf16> pin{
        rig.link.get(), [&] { return gradients.open(value, entry_kind::write, agent::host, false); }};
    std::ranges::fill(pin.span(), round_to<bf16>(9.0F));
  }
  [[nodiscard]] bool is_as_trained(slot_id value)
  {
    const auto pin = rig.template hold<const bf16>(value, access::read);
    for (std::size_t index = 0; index < pin.size(); ++index)
      if (to_float(pin.span()[index]) != to_float(round_to<bf16>(trained(index)))) return false;
    return true;
  }

  rig_type rig;
  gradient_store<typename rig_type::engine_type, typename rig_type::builder_type> gradients{rig.engine, rig.builder,
                                                                                            *rig.link};
};

}  // namespace

TEST_CASE("a gradient is fresh until it is opened and again when it is consumed, with nothing noted of it", "[manager]")
{
  fixture<gradient::separate> it;
  CHECK(it.gradients.is_fresh(weight));
  it.differentiate(weight);
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK(it.gradients.is_fresh(neighbour));
  CHECK(it.rig.engine.gradients().opened() == 1);
  it.rig.engine.gradients().finish(weight, {});
  it.gradients.consume(weight);
  CHECK(it.gradients.is_fresh(weight));
  CHECK(it.rig.engine.gradients().is_open(weight));
  CHECK(it.rig.engine.gradients().measure_of(weight) == nullptr);
  it.gradients.consume(weight);  // passed over
  CHECK(it.is_as_trained(weight));
}

TEST_CASE("a gradient that must not be asked for is refused, and nothing was opened", "[manager]")
{
  fixture<gradient::separate> it;
  CHECK_THROWS_WITH(it.gradients.expect<float>(weight, 0), ContainsSubstring("element type"));
  it.rig.engine.gradients().finish(weight);
  CHECK_THROWS_WITH(it.gradients.expect<bf16>(weight, 0), ContainsSubstring("after gradient_done"));
  it.gradients.expect<bf16>(neighbour, 0);
  it.rig.engine.gradients().begin_update();
  CHECK_THROWS_WITH(it.gradients.expect<bf16>(neighbour, 0), ContainsSubstring("half done"));
  CHECK_THROWS_AS(it.gradients.open_again(weight, entry_kind::write, agent::host), usage_error);
  it.rig.engine.gradients().end_update();
  CHECK(it.rig.engine.gradients().opened() == 0);
  CHECK((it.gradients.is_fresh(weight) && it.gradients.is_fresh(neighbour)));
}

TEST_CASE("a gradient in place takes the bytes of its weight, which is made from its master when it is consumed",
          "[manager]")
{
  fixture<gradient::in_place> it;
  const bf16* const bytes_of_weight = [&] {
    const auto pin = it.rig.hold<const bf16>(weight, access::read);
    return pin.data();
  }();
  it.differentiate(weight);
  CHECK(it.rig.state_of(weight) == tensor_state::gradient);
  const slot_id gradient = it.rig.engine.tensors().gradient_of(weight);
  {
    const auto pin = it.rig.hold<const bf16>(gradient, access::read);
    CHECK(pin.data() == bytes_of_weight);
  }
  CHECK(it.rig.first_of<bf16>(gradient) == 9.0F);
  CHECK(it.rig.state_of(neighbour) == tensor_state::hold);
  it.gradients.consume(weight);
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
  CHECK((it.is_as_trained(weight) && it.is_as_trained(neighbour)));
}

TEST_CASE("a gradient in place is refused while others hold its weight, and where no master could bring it back",
          "[manager]")
{
  fixture<gradient::in_place> it;
  {
    const auto pin = it.rig.hold<const bf16>(weight, access::read);
    CHECK_THROWS_WITH(it.gradients.expect<bf16>(weight, 0), ContainsSubstring("another pin"));
    it.gradients.expect<bf16>(weight, 1);  // who asks holds it
  }
  it.rig.engine.drop(it.rig.master_of(neighbour));
  CHECK_THROWS_WITH(it.gradients.expect<bf16>(neighbour, 0), ContainsSubstring("without a master"));
  CHECK_THROWS_AS(it.gradients.open_again(neighbour, entry_kind::write, agent::host), usage_error);
  CHECK(it.rig.engine.gradients().opened() == 0);
  CHECK(it.rig.state_of(neighbour) == tensor_state::hold);
}

TEST_CASE("an overwrite of a lent weight that is refused leaves its bytes to the gradient, and one can be undone",
          "[manager]")
{
  fixture<gradient::in_place> it;
  it.differentiate(weight);
  {
    const auto pin = it.rig.hold<const bf16>(neighbour, access::read);  // keeps their chunk on the device
    CHECK_THROWS_AS(it.gradients.acquire_over(weight, entry_kind::write_on_host, agent::host), usage_error);
    CHECK(it.rig.state_of(weight) == tensor_state::gradient);
  }
  it.rig.engine.release(it.gradients.acquire_over(weight, entry_kind::write_on_host, agent::host));
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
  it.gradients.take_place(weight);
  CHECK(it.rig.state_of(weight) == tensor_state::gradient);
  it.gradients.consume(weight);
  CHECK(it.is_as_trained(weight));
}

TEST_CASE("a rehearsed gradient takes no weight's bytes, and a rehearsed step that is dropped is none", "[manager]")
{
  fixture<gradient::in_place> it;
  it.rig.engine.rehearsing().begin(it.rig.engine.tensors());
  it.gradients.expect<bf16>(weight, 0);
  it.rig.engine.release(it.gradients.open(weight, entry_kind::write, agent::host, false));
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
  it.gradients.forget_step();
  CHECK(it.gradients.is_fresh(weight));
  it.rig.engine.rehearsing().end();
  CHECK(it.rig.engine.gradients().forgotten() == 0);
  it.differentiate(weight);
  it.gradients.forget_step();
  CHECK(it.rig.engine.gradients().forgotten() == 1);
  CHECK(it.gradients.is_fresh(weight));
  CHECK(it.rig.state_of(weight) == tensor_state::hold);
}

TEST_CASE("a lost device keeps its gradients, and says that it is lost where there are none", "[manager]")
{
  fixture<gradient::separate> it, without;
  it.differentiate(weight);
  it.rig.lose_device();
  without.rig.lose_device();
  CHECK_THROWS_AS(it.gradients.consume_all(), device_error);
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK_THROWS_AS(without.gradients.consume_all(), device_error);
}

}  // namespace gradient_store_test

namespace masters_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;

namespace {

constexpr cm::list_spec lists[] = {{"momentum"}, cm::master_list};
constexpr std::uint32_t layers = 4;

/// A stack of weights whose training step is written out by hand: the gradient of each is twice the weight.
template <class Element, class Gradient>
struct fixture {
  using manager = cm::manager<arena, Gradient>;

  fixture() { m.use(lists); }

  void fill(float with)
  {
    for (std::uint32_t index = 0; index < layers; ++index) fill(index, with);
  }
  void fill(std::uint32_t layer, float with)
  {
    const auto pin = m.acquire(weights.slice(layer), cm::access::write);
    for (Element& value : pin.span()) value = cm::round_to<Element>(with);
  }

  void differentiate()
  {
    for (std::uint32_t index = layers; index-- > 0;) {
      auto pin = m.acquire(weights.slice(index), cm::access::read);
      const float value = m.rehearsing() ? 0.0F : cm::to_float(pin.span()[0]);
      const auto gradient = m.gradient(std::move(pin));
      for (Element& it : gradient.span()) it = cm::round_to<Element>(2.0F * value);
    }
  }
  /// The master becomes the gradient, and the weight the nearest to it.
  void update()
  {
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto it = weights.slice(index);
      {
        const auto gradient =
            m.template acquire<Element>(it, cm::gradient_list, cm::access::read, cm::memory_location::host);
        const auto master =
            m.template acquire<float>(it, m.list("master"), cm::access::read_write, cm::memory_location::host);
        const auto value = m.acquire_bytes(it, cm::value_list, cm::access::write, cm::memory_location::host);
        for (std::size_t i = 0; i < master.span().size(); ++i) {
          master.span()[i] = cm::to_float(gradient.span()[i]);
          reinterpret_cast<Element*>(value.data())[i] = cm::round_to<Element>(master.span()[i]);
        }
      }
      m.drop_gradient(it);
    }
  }
  void step()
  {
    const auto scope = m.iteration();
    differentiate();
    update();
  }
  std::vector<float> values()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < layers; ++index)
      for (const Element it : m.acquire(weights.slice(index), cm::access::read, cm::memory_location::host).span())
        all.push_back(cm::to_float(it));
    return all;
  }
  float master(std::uint32_t layer)
  {
    return m
        .template acquire<float>(weights.slice(layer), m.list("master"), cm::access::read, cm::memory_location::host)
        .span()[7];
  }
  cm::tensor_state state(std::uint32_t layer) { return m.state_of(weights.slice(layer)); }

  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<Element> weights = m.template add_stacked<Element>(layers, {1024}, cm::role::parameter);
};

const std::vector<float> all_of(float value)
{
  return std::vector<float>(layers * 1024, value);
}

}  // namespace

TEST_CASE("masters are made from weights before an iteration, and again from those that were written since",
          "[manager]")
{
  fixture<cm::bf16, cm::gradient::separate> it;
  it.fill(1.5F);
  CHECK_FALSE(it.m.is_filled(it.weights.slice(0), it.m.list("master")));
  it.step();
  CHECK(it.master(2) == 3.0F);
  CHECK(it.values() == all_of(3.0F));
  it.fill(1, 0.25F);
  CHECK(it.master(2) == 3.0F);
  it.step();
  CHECK(it.master(1) == 0.5F);
  CHECK(it.master(2) == 6.0F);
}

TEST_CASE("a weight with a master cannot be written inside an iteration", "[manager]")
{
  fixture<cm::fp16, cm::gradient::separate> it;
  it.fill(1.0F);
  {
    const auto scope = it.m.iteration();
    CHECK_THROWS_WITH(it.m.acquire(it.weights.slice(0), cm::access::write), ContainsSubstring("inside an iteration"));
    CHECK_THROWS_AS(it.m.acquire(it.weights.slice(0), cm::access::read_write, cm::memory_location::host),
                    cm::usage_error);
    CHECK_THROWS_AS(
        (it.m.acquire<cm::fp16>(it.weights.slice(0), cm::value_list, cm::access::write, cm::memory_location::host)),
        cm::usage_error);
    CHECK_THROWS_AS(it.m.exchange(cm::value_list, cm::list_id{2}), cm::usage_error);
    CHECK(it.state(0) == cm::tensor_state::hold);
  }
  const auto master =
      it.m.acquire<float>(it.weights.slice(0), it.m.list("master"), cm::access::read, cm::memory_location::host);
  CHECK_THROWS_AS(it.m.acquire(it.weights.slice(0), cm::access::write), cm::usage_error);
}

TEST_CASE("a weight that is pinned cannot have its master made", "[manager]")
{
  fixture<cm::bf16, cm::gradient::separate> it;
  it.fill(1.0F);
  {
    const auto writer = it.m.acquire(it.weights.slice(1), cm::access::read_write, cm::memory_location::host);
    CHECK_THROWS_WITH(it.m.iteration(), ContainsSubstring("pinned"));
  }
  it.step();
  CHECK(it.master(1) == 2.0F);
  for (cm::bf16& each :
       it.m.acquire<cm::bf16>(it.weights.slice(1), cm::value_list, cm::access::write, cm::memory_location::host).span())
    each = cm::round_to<cm::bf16>(1.0F);
  it.step();
  CHECK(it.master(1) == 2.0F);
}

TEST_CASE("a step that was skipped in the recorded iteration leaves gradients in place possible", "[manager]")
{
  fixture<cm::bf16, cm::gradient::in_place> it;
  it.fill(1.0F);
  {
    const auto scope = it.m.iteration();
    it.differentiate();
    it.m.drop_gradients();
    {
      const auto read = it.m.acquire(it.weights.slice(0), cm::access::read);
    }
  }
  {
    const auto scope = it.m.iteration();
    it.differentiate();
    CHECK(it.state(0) == cm::tensor_state::gradient);
  }
  CHECK_THROWS_AS(it.step(), cm::usage_error);  // gradients were left over: a mistake that costs nothing
  it.m.drop_gradients();
  const auto scope = it.m.iteration();
  it.differentiate();
  CHECK(it.state(3) == cm::tensor_state::gradient);
}

TEST_CASE("a manager without bytes makes masters and restores weights without computing", "[manager]")
{
  cm::backend::simulated clock{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::simulated, cm::gradient::in_place> m{clock, {.chunk_bytes = 4_KiB}};
  m.use(lists);
  const auto weight = m.add<cm::bf16>({1000}, cm::role::parameter);
  {
    const auto pin = m.acquire(weight, cm::access::write);
  }
  for (int step = 0; step < 3; ++step) {
    const auto scope = m.iteration();
    m.gradient_done(m.gradient(weight));
    m.drop_gradients();
  }
  CHECK(m.is_filled(weight, m.list("master")));
}

TEST_CASE("a gradient in place lies in its weight from the second iteration on, or after a rehearsal", "[manager]")
{
  const bool rehearsed = GENERATE(false, true);
  fixture<cm::bf16, cm::gradient::in_place> it;
  if (rehearsed) {
    const auto need = it.m.rehearse([&] { it.step(); });
    CHECK(need.by_role[cm::role::gradient] == 0_B);
    CHECK(need.chunks == cm::bytes{layers * 1024 * (2 + 4 + 4)});
  }
  it.fill(1.0F);
  for (int step = 0; step < 3; ++step) {
    INFO("step " << step);
    {
      const auto scope = it.m.iteration();
      it.differentiate();
      const bool in_place = rehearsed || step > 0;
      CHECK(it.state(0) == (in_place ? cm::tensor_state::gradient : cm::tensor_state::hold));
      CHECK(it.m.has_gradient(it.weights.slice(0)));
      it.update();
    }
    CHECK(it.values() == all_of(static_cast<float>(2 << step)));
  }
  CHECK(it.m.report().divergences == 0);
}

TEST_CASE("a weight whose gradient has its bytes cannot be read, and comes back from its master", "[manager]")
{
  fixture<cm::bf16, cm::gradient::in_place> it;
  it.m.rehearse([&] { it.step(); });
  it.fill(3.0F);
  it.step();
  {
    const auto scope = it.m.iteration();
    it.differentiate();
    for (const cm::memory_location place : {cm::memory_location::device, cm::memory_location::host})
      CHECK_THROWS_WITH(it.m.acquire(it.weights.slice(1), cm::access::read, place), ContainsSubstring("gradient"));
    CHECK(it.m.gradient(it.weights.slice(1)).beta() == 1.0F);
  }
}

TEST_CASE("dropped gradients give their weights back bit by bit", "[manager]")
{
  fixture<cm::fp16, cm::gradient::in_place> it;
  it.m.rehearse([&] { it.step(); });
  it.fill(0.75F);
  it.step();
  const auto before = it.values();
  {
    const auto scope = it.m.iteration();
    it.differentiate();
    it.m.drop_gradients();
    CHECK(it.state(0) == cm::tensor_state::hold);
  }
  CHECK(it.values() == before);
  it.step();
  CHECK(it.values() == all_of(3.0F));
}

TEST_CASE("a weight that could not be made again has no other gradient before it is", "[manager]")
{
  fixture<cm::bf16, cm::gradient::in_place> it;
  it.m.rehearse([&] { it.step(); });
  it.fill(0.5F);
  const auto scope = it.m.iteration();
  it.differentiate();
  const auto first = it.weights.slice(0);
  {
    const auto neighbour =
        it.m.acquire<cm::bf16>(it.weights.slice(1), cm::gradient_list, cm::access::read, cm::memory_location::device);
    CHECK_THROWS_AS(it.m.drop_gradient(first), cm::usage_error);  // the neighbour keeps their chunk on the device
    CHECK_FALSE(it.m.has_gradient(first));
    CHECK_THROWS_WITH(it.m.gradient(first), ContainsSubstring("call drop_gradient again"));
    CHECK_THROWS_AS(it.m.acquire<cm::bf16>(first, cm::gradient_list, cm::access::write, cm::memory_location::device),
                    cm::usage_error);
    CHECK(it.state(0) == cm::tensor_state::gradient);
  }
  it.m.drop_gradient(first);
  CHECK(it.state(0) == cm::tensor_state::hold);
  CHECK(cm::to_float(it.m.acquire(first, cm::access::read).span()[0]) == 0.5F);
}

TEST_CASE("an iteration that is refused inside another leaves gradients where they lie", "[manager]")
{
  fixture<cm::bf16, cm::gradient::in_place> it;
  it.m.rehearse([&] { it.step(); });
  it.fill(0.5F);
  const auto scope = it.m.iteration();
  {
    const auto gradient = it.m.gradient(it.weights.slice(0));
  }
  // from the next iteration on they lie apart
  CHECK_THROWS_AS(it.m.acquire(it.weights.slice(0), cm::access::read), cm::usage_error);
  it.m.drop_gradients();
  CHECK_THROWS_AS(it.m.iteration(), cm::usage_error);
  {
    const auto gradient = it.m.gradient(it.weights.slice(0));
  }
  CHECK(it.state(0) == cm::tensor_state::gradient);
}

TEST_CASE("a weight that was wanted after its gradient has its gradient apart when the step is tried again",
          "[manager]")
{
  fixture<cm::bf16, cm::gradient::in_place> it;
  it.m.rehearse([&] { it.step(); });
  it.fill(1.0F);
  const auto read_late = [&] {
    const auto scope = it.m.iteration();
    it.differentiate();
    const auto late = it.m.acquire(it.weights.slice(2), cm::access::read);
    it.update();
  };
  CHECK_THROWS_AS(read_late(), cm::usage_error);
  it.m.drop_gradients();
  const auto late_enough = [&] {
    const auto scope = it.m.iteration();
    it.differentiate();
    CHECK(cm::to_float(it.m.acquire(it.weights.slice(2), cm::access::read).span()[0]) == 1.0F);
    CHECK(it.state(1) == cm::tensor_state::gradient);
    it.update();
  };
  late_enough();
  CHECK(it.values() == all_of(2.0F));
}

TEST_CASE("what gradients in place cannot do is refused when it is asked for", "[manager]")
{
  fixture<cm::bf16, cm::gradient::in_place> it;
  it.m.rehearse([&] { it.step(); });
  it.fill(1.0F);
  CHECK_THROWS_AS(it.m.iteration(2), cm::config_error);
  const auto scope = it.m.iteration();
  auto first = it.m.acquire(it.weights.slice(0), cm::access::read);
  auto second = it.m.acquire(it.weights.slice(0), cm::access::read);
  CHECK_THROWS_WITH(it.m.gradient(std::move(second)), ContainsSubstring("another pin"));
  CHECK(second.is_live());
  CHECK_THROWS_AS(it.m.gradient(it.weights.slice(0)), cm::usage_error);

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena, cm::gradient::in_place> single{memory, {.chunk_bytes = 4_KiB}};
  single.use(lists);
  const auto weight = single.add<float>({10}, cm::role::parameter);
  CHECK_THROWS_AS(single.seal(), cm::config_error);
  CHECK_THROWS_AS(single.acquire(weight, cm::access::write), cm::config_error);
}

TEST_CASE("wide gradients of 16-bit weights are asked for as float", "[manager]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena, cm::gradient::separate> m{memory, {.chunk_bytes = 4_KiB}, cm::gradient::separate{.wide = true}};
  m.use(lists);
  const auto weight = m.add<cm::bf16>({100}, cm::role::parameter);
  {
    const auto pin = m.acquire(weight, cm::access::write);
  }
  CHECK_THROWS_AS(m.gradient(weight), cm::usage_error);
  auto pin = m.acquire(weight, cm::access::read);
  CHECK_THROWS_AS(m.gradient(std::move(pin)), cm::usage_error);
  auto gradient = m.gradient<float>(std::move(pin));
  CHECK(gradient.span().size() == 100);
  for (float& it : gradient.span()) it = 2.0F;
  m.gradient_done(std::move(gradient));
  REQUIRE(m.updates().measure_of(weight) != nullptr);
  CHECK(m.updates().measure_of(weight)->squares == 400.0);
  CHECK_THROWS_AS(m.gradient<float>(weight), cm::usage_error);
}

TEST_CASE("a frozen weight has neither gradient nor lists", "[manager]")
{
  fixture<cm::bf16, cm::gradient::separate> it;
  const auto frozen = it.m.add<cm::bf16>({2048}, cm::role::frozen);
  const auto need = it.m.seal();
  CHECK(need.by_role[cm::role::frozen] == 4_KiB);
  CHECK(need.chunks == cm::bytes{4096 + layers * 1024 * (2 + 2 + 4 + 4)});
  {
    const auto pin = it.m.acquire(frozen, cm::access::write);
  }
  it.fill(1.0F);
  const auto scope = it.m.iteration();
  auto pin = it.m.acquire(frozen, cm::access::read);
  CHECK_THROWS_AS(it.m.gradient(std::move(pin)), cm::usage_error);
  CHECK_THROWS_WITH(it.m.gradient(frozen), ContainsSubstring("frozen"));
  CHECK_THROWS_AS(it.m.acquire<float>(frozen, it.m.list("master"), cm::access::read, cm::memory_location::host),
                  cm::usage_error);
}

TEST_CASE("an iteration that is refused leaves no masters behind, and keeps those that were there", "[manager]")
{
  using backend = support::failing<arena>;
  std::uint64_t refused = 0;
  for (std::uint64_t index = 0;; ++index) {
    backend memory{{}, cm::backend::host_arena_options{.device_capacity = 8_KiB, .host_capacity = 32_KiB}};
    cm::manager<backend> m{memory, {.chunk_bytes = 4_KiB}};
    const auto weights = m.add_stacked<cm::bf16>(layers, {1024}, cm::role::parameter);
    m.use(lists);
    const auto fill = [&](std::uint32_t layer, float with) {
      for (cm::bf16& value : m.acquire(weights.slice(layer), cm::access::write).span())
        value = cm::round_to<cm::bf16>(with);
    };
    const auto has_master = [&](std::uint32_t layer) { return m.is_filled(weights.slice(layer), m.list("master")); };
    for (std::uint32_t layer = 0; layer < layers; ++layer) fill(layer, 1.5F);
    {
      const auto first = m.iteration();
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer) REQUIRE(has_master(layer));
    for (const std::uint32_t layer : {1U, 3U}) fill(layer, 2.5F);
    memory.set_plan({.copy = memory.copies() + index});
    try {
      const auto scope = m.iteration();
      memory.set_plan({});
      break;  // no copy was left to fail
    } catch (const cm::device_error&) {
      memory.set_plan({});
      ++refused;
    }
    CHECK((has_master(0) && !has_master(1) && has_master(2) && !has_master(3)));
    CHECK_FALSE(m.is_iterating());
    {
      const auto again = m.iteration();
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      CHECK(m.acquire<float>(weights.slice(layer), m.list("master"), cm::access::read, cm::memory_location::host)
                .span()[9] == (layer % 2 == 1 ? 2.5F : 1.5F));
  }
  CHECK(refused > 1);
}

TEST_CASE("weights can be read where the host had no room for their masters", "[manager]")
{
  arena memory{{.device_capacity = 4_KiB, .host_capacity = 40_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 2_KiB}};
  const auto weights = m.add_stacked<cm::bf16>(layers, {1024}, cm::role::parameter);  // with masters 24 KiB
  m.use(lists);
  const auto taken = m.lease(cm::tier::host, 24_KiB);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (cm::bf16& value : m.acquire(weights.slice(layer), cm::access::write).span())
      value = cm::round_to<cm::bf16>(0.5F);
  const auto before = m.residency();
  CHECK_THROWS_AS(m.iteration(), cm::out_of_memory);
  CHECK_THROWS_AS(m.iteration(), cm::out_of_memory);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    CHECK_FALSE(m.is_filled(weights.slice(layer), m.list("master")));
    CHECK(cm::to_float(m.acquire(weights.slice(layer), cm::access::read, cm::memory_location::host).span()[1023]) ==
          0.5F);
  }
  const auto after = m.residency();
  for (std::size_t index = 0; index < after.chunks.size(); ++index)
    CHECK(after.chunks[index].place.live == before.chunks[index].place.live);
  const auto room = m.lease(cm::tier::host, 6_KiB);  // the masters' frame runs are given up for others
  CHECK(room.size() == 6_KiB);
}

TEST_CASE("a source that throws when an iteration begins leaves no masters behind", "[manager]")
{
  fixture<cm::fp16, cm::gradient::separate> it;
  it.fill(1.0F);
  bool is_broken = true;
  auto source = [&] { return is_broken ? throw std::runtime_error{"no answer"} : 1_KiB; };
  it.m.watch_external_memory(source);
  CHECK_THROWS_AS(it.m.iteration(), std::runtime_error);
  CHECK_FALSE(it.m.is_filled(it.weights.slice(0), it.m.list("master")));
  is_broken = false;
  it.step();
  CHECK(it.master(2) == 2.0F);
}

namespace {

constexpr cm::slot_id narrow{0}, wide{1}, unwritten{2};

/// Masters of a weight of 16 bits and of one that is never written, and a weight without a master; without a manager.
struct alone {
  using rig_type = manager_parts::parts_rig<>;

  alone()
  {
    rig.add<cm::bf16>(1024);
    rig.add<float>(1024);
    rig.add<cm::bf16>(1024);
    rig.add<float>(1024, cm::role::frozen);
    rig.builder.add_lists(manager_parts::momentum_and_master);
    rig.builder.prepare();
    rig.fill<cm::bf16>(narrow, 1.5F);
    rig.fill<float>(wide, 1.5F);
  }
  void begin()
  {
    masters.begin([] {});
  }
  [[nodiscard]] cm::tensor_state master_of(cm::slot_id value) const { return rig.state_of(rig.master_of(value)); }
  [[nodiscard]] float first_of_master()
  {
    return rig.first_of<float>(rig.master_of(narrow), cm::memory_location::host);
  }
  void set_master(float to) { rig.fill<float>(rig.master_of(narrow), to, cm::memory_location::host); }

  rig_type rig;
  cm::gradient_store<rig_type::engine_type, rig_type::builder_type> masters{rig.engine, rig.builder, *rig.link};
};

}  // namespace

TEST_CASE("masters are there when an iteration begins, of each weight that was written, and made once", "[manager]")
{
  alone it;
  int begun = 0;
  it.masters.begin([&] {
    ++begun;
    CHECK(it.master_of(narrow) == cm::tensor_state::hold);
  });
  CHECK(begun == 1);
  CHECK(it.first_of_master() == 1.5F);
  CHECK(it.master_of(unwritten) == cm::tensor_state::free);
  CHECK(it.rig.master_of(wide) == cm::slot_id::none);
  it.set_master(4.0F);  // an update
  it.begin();
  CHECK(it.first_of_master() == 4.0F);
  it.masters.note_written(wide);
  it.begin();
  CHECK(it.first_of_master() == 4.0F);
  it.masters.note_written(narrow);
  CHECK(it.master_of(narrow) == cm::tensor_state::free);
  it.begin();
  CHECK(it.first_of_master() == 1.5F);
}

TEST_CASE("who watches hears before a master is made or a parameter is written, and of nothing else", "[manager]")
{
  alone it;
  int told = 0;
  const auto hears_of = [&](auto change) {
    told = 0;
    it.masters.changes().begin(manager_parts::count_call, nullptr, &told);
    change();
    it.masters.changes().end(&told);
    return told > 0;
  };
  CHECK(hears_of([&] { it.begin(); }));
  CHECK(!hears_of([&] { it.begin(); }));  // no master was made
  CHECK(hears_of([&] { it.masters.expect_writable(narrow); }));
  CHECK(hears_of([&] { it.masters.expect_writable(wide); }));
  CHECK(!hears_of(
      [&] { it.masters.expect_writable(it.rig.builder.slot_of(it.rig.builder.handle_of(cm::tensor_id{3}))); }));
  CHECK(!hears_of([&] {
    it.rig.engine.rehearsing().begin(it.rig.engine.tensors());
    it.masters.expect_writable(narrow);
    it.masters.note_written(narrow);
    it.rig.engine.rehearsing().end();
  }));
  CHECK(it.master_of(narrow) == cm::tensor_state::hold);
}

TEST_CASE("an update that waits comes before the master that would be made of its weight", "[manager]")
{
  const bool is_written = GENERATE(false, true);
  alone it;
  auto& waiting = it.rig.engine.pending();
  waiting.prepare();
  waiting.add(narrow);
  waiting.serve([](void* who, cm::slot_id) { static_cast<alone*>(who)->set_master(7.0F); }, &it);
  if (is_written) {
    it.masters.expect_writable(narrow);
    CHECK_FALSE(waiting.any());
  }
  it.begin();
  CHECK_FALSE(waiting.any());
  CHECK(it.first_of_master() == 7.0F);
}

TEST_CASE("inside an iteration a weight may be written until it has a master, and masters stay", "[manager]")
{
  alone it;
  it.masters.begin([&] { it.rig.engine.begin_iteration("train"); });
  CHECK_THROWS_AS(it.masters.expect_writable(narrow), cm::usage_error);
  it.masters.note_written(narrow);  // by its update
  CHECK(it.master_of(narrow) == cm::tensor_state::hold);
  it.masters.expect_writable(unwritten);
  it.rig.fill<cm::bf16>(unwritten, 0.5F);
  it.masters.note_written(unwritten);
  it.rig.engine.schedule().end(true);
  CHECK(it.master_of(unwritten) == cm::tensor_state::free);
  it.begin();
  CHECK(it.rig.first_of<float>(it.rig.master_of(unwritten), cm::memory_location::host) == 0.5F);
}

TEST_CASE("weights are exchanged with a list beside their masters, and the next update writes them", "[manager]")
{
  constexpr cm::list_spec with_old[] = {{"momentum"}, cm::master_list, {"old", cm::dtype::bfloat16}};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  m.use(with_old);
  const auto weight = m.add<cm::bf16>({64}, cm::role::parameter);
  const cm::list_id old = m.list("old");
  const cm::list_id master = m.list("master");
  const auto set = [&](cm::list_id list, float value) {
    for (cm::bf16& it : m.acquire<cm::bf16>(weight, list, cm::access::write, cm::memory_location::host).span())
      it = cm::round_to<cm::bf16>(value);
  };
  const auto get = [&](cm::list_id list) {
    return cm::to_float(m.acquire<cm::bf16>(weight, list, cm::access::read, cm::memory_location::host).span()[5]);
  };
  const auto begin_one = [&] { const auto scope = m.iteration(); };
  set(cm::value_list, 3);
  set(old, 7);
  CHECK_THROWS_WITH(m.exchange(cm::value_list, old), ContainsSubstring("before their masters are made"));
  CHECK_THROWS_WITH(m.exchange(old, cm::value_list), ContainsSubstring("before their masters are made"));
  begin_one();  // makes the master
  CHECK_THROWS_WITH(m.exchange(cm::gradient_list, cm::value_list), ContainsSubstring("with their gradients"));
  m.exchange(cm::value_list, old);
  CHECK(get(cm::value_list) == 7);
  CHECK(get(old) == 3);
  CHECK(m.acquire<float>(weight, master, cm::access::read, cm::memory_location::host).span()[5] == 3);
  begin_one();  // and does not make it again
  CHECK(m.acquire<float>(weight, master, cm::access::read, cm::memory_location::host).span()[5] == 3);
  set(cm::value_list, 5);  // a weight that is written has a new master
  CHECK_THROWS_WITH(m.exchange(cm::value_list, old), ContainsSubstring("before their masters are made"));
  begin_one();
  CHECK(m.acquire<float>(weight, master, cm::access::read, cm::memory_location::host).span()[5] == 5);
}

TEST_CASE("weights whose gradients may lie in their place are not exchanged with a list", "[manager]")
{
  constexpr cm::list_spec with_old[] = {cm::master_list, {"old", cm::dtype::bfloat16}};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  cm::manager<arena, cm::gradient::in_place> m{memory, {.chunk_bytes = 4_KiB}};
  m.use(with_old);
  (void)m.add<cm::bf16>({64}, cm::role::parameter);
  CHECK_THROWS_WITH(m.exchange(cm::value_list, m.list("old")), ContainsSubstring("under gradient::in_place"));
}

}  // namespace masters_test
