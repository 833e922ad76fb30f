// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/late_updates.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/count_allocations.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace late_updates_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using cm::optimizer::adam;
using cm::optimizer::late_updates;
using cm::optimizer::step_result;
using support::any_backend;
using support::chosen_gradient;

namespace {

constexpr std::uint32_t count = 8;

/// Eight weights, the last three of them so small that they share a chunk with others; a loop whose gradients depend on
/// the values of its weights, so that one that is read too early changes all that follows.
template <class Element, class Transfer = cm::transfer::lookahead>
struct training {
  using manager = cm::manager<any_backend, chosen_gradient, Transfer>;

  explicit training(bool late, cm::bytes device = 40_KiB, chosen_gradient how = {})
      : memory{cm::backend::host_arena_options{.device_capacity = device, .host_capacity = 512_KiB}},
        m{memory, {.chunk_bytes = 4_KiB}, how}
  {
    m.use(kernel);
    m.use(scale);
    for (std::uint32_t index = 0; index < count; ++index)
      weights.push_back(
          m.template add<Element>({index < 5 ? 1000U : 40U}, cm::role::parameter, cm::group_id{index % 2}));
    if (late) updates.emplace(m, kernel);
  }
  void fill()
  {
    for (std::uint32_t index = 0; index < count; ++index) {
      const auto pin = m.acquire(weights[index], cm::access::write);
      for (std::size_t i = 0; i < pin.size(); ++i)
        pin.span()[i] = cm::round_to<Element>(0.01F * static_cast<float>((i * 7 + index) % 19));
    }
  }
  /// The value of the loss.
  float forward()
  {
    float sum = 0;
    for (std::uint32_t index = 0; index < count; ++index) {
      if (index == 6) continue;  // used by nobody but its gradient
      const auto pin = m.acquire(weights[index], cm::access::read);
      if (m.rehearsing()) continue;
      for (const Element& it : pin.span()) sum += cm::to_float(it);
    }
    return sum;
  }
  void backward(float loss)
  {
    for (std::uint32_t index = count; index-- > 0;) {
      if (index == skipped) continue;
      auto gradient =
          index % 2 == 0 ? m.gradient(weights[index]) : m.gradient(m.acquire(weights[index], cm::access::read));
      if (!m.rehearsing())
        for (std::size_t i = 0; i < gradient.size(); ++i)
          gradient.span()[i] =
              cm::round_to<Element>(spoilt ? 1e38F * 1e38F : 1e-3F * loss * static_cast<float>((i + index) % 5));
      if (index % 3 == 0) m.gradient_done(std::move(gradient));
    }
  }
  cm::optimizer::step_outcome update(std::span<const cm::tensor_handle> first = {})
  {
    const float rates[] = {0.02F, 0.01F};
    const cm::optimizer::step_options options{
        .group_rates = rates, .clip = {.norm = 1.0F}, .loss_scale = &scale, .seed = 5};
    return updates ? updates->step(options, first) : cm::optimizer::step(m, kernel, options);
  }
  step_result step(std::span<const cm::tensor_handle> first = {})
  {
    const auto scope = m.iteration();
    const float loss = forward();
    if (!m.rehearsing()) losses.push_back(loss);
    backward(loss);
    return update(first);
  }
  void evaluate()
  {
    const auto scope = m.iteration("eval");
    losses.push_back(forward());
  }
  std::vector<float> everything()
  {
    std::vector<float> all = losses;
    for (std::uint32_t index = 0; index < count; ++index) {
      for (const Element& it : m.acquire(weights[index], cm::access::read, cm::memory_location::host).span())
        all.push_back(cm::to_float(it));
      m.for_each_list([&](cm::list_id list, const cm::list_spec&) {
        if (!m.is_in(weights[index], list)) return;
        for (const float it :
             m.template acquire<float>(weights[index], list, cm::access::read, cm::memory_location::host).span())
          all.push_back(it);
      });
    }
    all.push_back(static_cast<float>(kernel.progress.number));
    all.push_back(scale.scale());
    return all;
  }

  adam kernel{{.weight_decay = 0.1F}};
  cm::optimizer::loss_scale scale = cm::optimizer::loss_scale::dynamic({.initial = 4.0F, .window = 2});
  any_backend memory;
  manager m;
  std::vector<cm::tensor<Element>> weights;
  std::optional<late_updates<manager, adam>> updates;
  std::vector<float> losses;
  std::uint32_t skipped = count;
  bool spoilt = false;
};

using single = training<float>;
using separate = training<cm::bf16>;
struct in_place : separate {
  explicit in_place(bool late, cm::bytes device = 40_KiB) : training{late, device, chosen_gradient{true}} {}
};
struct demand : training<cm::bf16, cm::transfer::no_prefetch> {
  explicit demand(bool late) : training{late, 40_KiB, chosen_gradient{true}} {}
};

/// The same random loop with and without: evaluations, skipped steps, weights without a gradient, updates that do not
/// wait, a finish.
template <class Training>
std::vector<float> random_loop(bool late, bool rehearses, std::uint64_t seed)
{
  support::dice chance{seed};
  Training it{late};
  if (rehearses) it.m.rehearse([&] { it.step(); });
  it.fill();
  for (int now = 0; now < 24; ++now) {
    it.spoilt = chance.below(6) == 0;
    it.skipped = chance.below(2) == 0 ? count : chance.below(count);
    std::vector<cm::tensor_handle> first;
    for (std::uint32_t more = chance.below(4); more > 0; --more) first.push_back(it.weights[chance.below(count)]);
    it.step(first);
    const std::uint32_t what = chance.below(6);
    const std::uint32_t which = chance.below(count);
    if (what == 0) it.evaluate();
    if (what == 1 && it.updates) it.updates->finish();
    if (what == 2) it.losses.push_back(cm::to_float(it.m.acquire(it.weights[which], cm::access::read).span()[3]));
    if (what == 3 && now < 23)  // its master is gone until the next iteration
      for (auto& value : it.m.acquire(it.weights[which], cm::access::write, cm::memory_location::host).span())
        value = cm::round_to<std::decay_t<decltype(value)>>(0.5F);
  }
  return it.everything();
}

}  // namespace

TEMPLATE_TEST_CASE("late updates give the bits of steps, whatever comes between them", "[optimizer]", single, separate,
                   in_place, demand)
{
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 2U : 6U); ++seed) {
    const bool rehearses = seed % 2 == 0;
    const bool same = random_loop<TestType>(false, rehearses, seed) == random_loop<TestType>(true, rehearses, seed);
    CAPTURE(seed);
    CHECK(same);
  }
}

TEMPLATE_TEST_CASE("late updates repeat: they follow their record, plan and allocate nothing", "[optimizer]", single,
                   separate, in_place)
{
  for (const bool rehearses : {false, true}) {
    TestType it{true, 44_KiB};
    it.kernel.group(cm::group_id{1}, {.beta2 = 0.99F});  // each step copies it
    if (rehearses) it.m.rehearse([&] { it.step(); });
    it.fill();
    it.losses.reserve(100);
    for (int now = 0; now < 6; ++now) {
      it.step();
      CHECK(it.updates->waiting() == count);
    }
    const auto before = support::allocations_so_far();
    const cm::report start = it.m.report();
    for (int now = 0; now < 10; ++now) it.step();
    const cm::report end = it.m.report();
    if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
    CHECK(end.divergences == 0);
    CHECK(end.replans == start.replans);
    CHECK(end.abandoned_plans + end.skipped_moves == 0);
    CHECK(end.waits.other == 0);
  }
}

TEST_CASE("a use of a weight, its gradient or its states updates it and its chunk, and nothing else", "[optimizer]")
{
  for (int way = 0; way < 6; ++way) {
    separate it{true};
    it.fill();
    it.step();
    REQUIRE(it.updates->waiting() == count);
    const auto list = it.m.list("adam/momentum");
    const auto touch = [&](std::uint32_t index) {
      if (way == 0) (void)it.m.acquire(it.weights[index], cm::access::read);
      if (way == 1) (void)it.m.acquire(it.weights[index], cm::access::read, cm::memory_location::host);
      if (way == 2) (void)it.m.acquire(it.weights[index], cm::access::read, cm::agent::compute);
      if (way == 3) (void)it.m.acquire<float>(it.weights[index], list, cm::access::read, cm::memory_location::host);
      if (way == 4)
        (void)it.m.acquire_bytes(it.weights[index], cm::value_list, cm::access::read, cm::memory_location::host);
      if (way == 5)
        CHECK_THROWS_AS(
            it.m.acquire_bytes(it.weights[index], cm::gradient_list, cm::access::read, cm::memory_location::host),
            cm::usage_error);
    };
    CHECK_FALSE(it.m.has_gradient(it.weights[7]));
    touch(7);  // the small ones lie behind the fifth, two weights of 2,000 bytes in a chunk
    CHECK(it.updates->waiting() == 4);
    touch(6);
    CHECK(it.updates->waiting() == 4);
    touch(0);
    CHECK(it.updates->waiting() == 2);
    it.updates->finish();
    CHECK(it.updates->waiting() == 0);
  }
}

TEMPLATE_TEST_CASE("options that change before a late update change the next step alone", "[optimizer]", single,
                   in_place)
{
  using cm::optimizer::adam_options;
  const adam_options usual{.weight_decay = 0.1F};
  std::vector<adam_options> others(6, usual);
  others[0].weight_decay = 100.0F;
  others[1].beta1 = 0.1F;
  others[2].beta2 = 0.1F;
  others[3].epsilon = 1.0F;
  others[4].rate_factor = 50.0F;
  others[5].decoupled = false;
  TestType plain{false}, late{true};
  for (TestType* it : {&plain, &late}) {
    it->kernel.group(cm::group_id{0}, usual).group(cm::group_id{1}, usual);
    it->fill();
    it->step(), it->step();
  }
  for (const adam_options& other : others) {
    plain.step(), late.step();
    REQUIRE(late.updates->waiting() == count);
    late.kernel.group(cm::group_id{0}, other).group(cm::group_id{1}, other);
    (void)late.m.acquire(late.weights[3], cm::access::read);
    late.updates->finish();
    late.kernel.group(cm::group_id{0}, usual).group(cm::group_id{1}, usual);
    const bool same = late.everything() == plain.everything();
    CHECK(same);
  }
}

TEST_CASE("a skipped step leaves nothing that waits, and what does not wait is named", "[optimizer]")
{
  separate it{true};
  it.fill();
  const std::vector<cm::tensor_handle> first{it.weights[7], it.weights[0], it.weights[7]};
  CHECK(it.step(first) == step_result::updated);
  CHECK(it.updates->waiting() == count - 2);
  it.spoilt = true;
  CHECK(it.step(first) == step_result::skipped_nonfinite);
  CHECK(it.updates->waiting() == 0);
  it.spoilt = false;
  it.skipped = 0;
  CHECK(it.step(first) == step_result::updated);
  CHECK(it.updates->waiting() == count - 2);
  single other{false};
  const std::vector<cm::tensor_handle> stranger{other.weights[0]};
  CHECK_THROWS_AS(it.updates->step({}, stranger), cm::usage_error);
}

TEST_CASE(
    "updates whose owner ended cannot be used any more, and a plain step, a rehearsal or an exchange does what waits",
    "[optimizer]")
{
  separate it{true};
  it.fill();
  it.step();
  CHECK_THROWS_AS(cm::optimizer::step(it.m, it.kernel), cm::usage_error);  // there is no gradient
  CHECK(it.updates->waiting() == 0);
  it.step();
  it.m.rehearse([&] { it.step(); });
  CHECK(it.m.updates_pending() == 0);
  it.step();
  it.m.exchange(it.m.list("adam/momentum"), it.m.list("adam/variance"));
  CHECK(it.m.updates_pending() == 0);
  it.step();
  it.updates.reset();
  const auto ended = ContainsSubstring(
      "late_updates ended before its update was done (call finish() before it ends, or load a checkpoint)");
  CHECK_THROWS_WITH(it.m.acquire(it.weights[2], cm::access::read), ended);
  CHECK_THROWS_WITH(
      it.m.acquire<float>(it.weights[2], it.m.list("adam/momentum"), cm::access::read, cm::memory_location::host),
      ended);
  CHECK_THROWS_WITH(it.m.gradient(it.weights[2]), ended);
  CHECK_THROWS_WITH(it.m.drop_gradients(), ended);
  CHECK_THROWS_WITH(cm::optimizer::step(it.m, it.kernel), ended);
}

TEST_CASE("a profile and a plan of late updates are those of the iterations that begin with them", "[optimizer]")
{
  separate first{true}, second{true};
  first.fill();
  for (int now = 0; now < 5; ++now) first.step();
  second.m.use_profile(*first.m.profile());
  second.m.use_plan(first.m.plan());
  second.fill();
  for (int now = 0; now < 5; ++now) second.step();
  CHECK(second.m.report().divergences == 0);
  CHECK(second.m.profile()->size() == first.m.profile()->size());
  const bool same = second.everything() == first.everything();
  CHECK(same);
}

TEMPLATE_TEST_CASE("a rehearsal of late updates proves the room for the steps that follow", "[optimizer]", separate,
                   in_place, single)
{
  TestType plain{false}, late{true};
  const auto without = plain.m.rehearse([&] { plain.step(); });
  const auto with = late.m.rehearse([&] { late.step(); });
  CHECK(with.smallest_device >= without.smallest_device);
  TestType least{true, with.smallest_device};
  least.m.rehearse([&] { least.step(); });
  least.fill();
  plain.fill();
  for (int now = 0; now < 8; ++now) {
    least.step();
    plain.step();
  }
  const bool same = least.everything() == plain.everything();
  CHECK(same);
  CHECK(least.m.report().peak[cm::tier::device] <= with.smallest_device);
  if (with.smallest_device > 4_KiB) {
    TestType less{true, with.smallest_device - 4_KiB};
    CHECK_THROWS_AS(less.m.rehearse([&] { less.step(); }), cm::config_error);
  }
}

TEMPLATE_TEST_CASE("late updates are decided by the measure of all gradients where it is given", "[optimizer]", single,
                   separate, in_place)
{
  TestType plain{false}, late{true};
  plain.fill();
  late.fill();
  for (int now = 0; now < 8; ++now) {
    CAPTURE(now);
    cm::gradient_measure given;
    given.squares = now % 3 == 0 ? 1e6 : 1e-6;
    given.finite = now % 4 != 1;
    const auto step = [&](TestType& it) {
      const auto scope = it.m.iteration();
      it.losses.push_back(it.forward());
      it.backward(it.losses.back());
      it.m.updates().gradients().keep_measure_of_all(given);
      const auto result = it.update();
      CHECK(it.m.updates().gradients().measure_of_all() ==
            nullptr);  // the gradients that wait are of a step that is over
      return result;
    };
    const auto wanted = step(plain), seen = step(late);
    CHECK(wanted.norm == seen.norm);
    CHECK(wanted.result == seen.result);
    CHECK(wanted.result == (given.finite ? step_result::updated : step_result::skipped_nonfinite));
    if (given.finite) CHECK(late.updates->waiting() > 0);
  }
  REQUIRE(late.updates->waiting() > 0);  // and are done first in a step that has none but others' gradients
  for (TestType* it : {&plain, &late}) {
    cm::gradient_measure given;
    given.finite = false;
    it->m.updates().gradients().keep_measure_of_all(given);
    CHECK(it->update().result == step_result::skipped_nonfinite);
  }
  CHECK(plain.everything() == late.everything());
}

}  // namespace late_updates_test
