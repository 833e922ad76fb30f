// SPDX-License-Identifier: Apache-2.0
#include "training_fixture.hpp"

#include <cmath>
#include <cstdint>

namespace order_test {

using namespace training;

/// Calls in an order that few trainers have: allowed ones give the bits of the reference, the others a typed error.

namespace {

const std::size_t weight = mixed::index_of(1, mixed::part::up);
const std::size_t not_done = 5;  // up of the second layer: nobody calls gradient_done for it

template <class Fixture>
void differentiate(Fixture& it, std::uint32_t now)
{
  auto scope = it.m.iteration();
  it.run.forward_and_backward(scope, now, 0);
  it.reference.forward_and_backward(now, 0);
}
template <class Fixture>
void update(Fixture& it)
{
  it.run.update();
  it.reference.weights().update();
}

}  // namespace

TEST_CASE("a rehearsal between steps, or between backward and step, changes no bit", "[equality]")
{
  for (const manner& how : both) {
    fixture<cm::bf16> it{recipe(3), how};
    for (std::uint32_t now = 0; now < 6; ++now) {
      it.run.rehearse();
      differentiate(it, now);
      // weights cannot be read now
      if (now % 2 == 1 && how.in_place)
        CHECK_THROWS_AS(it.run.rehearse(), cm::usage_error);
      else if (now % 2 == 1)
        it.run.rehearse();
      update(it);
      REQUIRE(it.difference() == "");
    }
  }
}

TEST_CASE(
    "evaluation between backward and step reads separate weights, and is refused where gradients have their bytes",
    "[equality]")
{
  for (const manner& how : both) {
    fixture<cm::bf16> it{recipe(3), how};
    int refused = 0;
    for (std::uint32_t now = 0; now < 6; ++now) {
      differentiate(it, now);
      if (!how.in_place) {
        it.run.evaluate(now);
        it.reference.evaluate(now);
      } else if (now == 2) {
        CHECK_THROWS_AS(it.run.evaluate(now), cm::usage_error);
        it.run.forget_activations();
        ++refused;
      }
      update(it);
      REQUIRE(it.difference() == "");
    }
    CHECK(refused == (how.in_place ? 1 : 0));
  }
}

TEST_CASE("gradients add up over iterations without a step, or say why they cannot", "[equality]")
{
  mixed::recipe how = recipe(3);
  how.micro_batches = 2;
  fixture<cm::bf16> it{how, {.more_frames = 8}};
  for (std::uint32_t now = 0; now < 6; ++now) {
    for (const std::uint32_t turn : {0U, 1U}) {
      auto scope = it.m.iteration(turn == 0 ? "first half" : "second half", 2);
      scope.pass(cm::pass::none, 1 - turn);  // nothing of it is done here
      it.run.forward_and_backward(scope, now, turn);
      it.reference.forward_and_backward(now, turn);
    }
    update(it);
    REQUIRE(it.difference() == "");
  }

  fixture<cm::bf16> spent{recipe(3), {.in_place = true, .more_frames = 8}};
  for (std::uint32_t now = 0; now < 5; ++now) {
    if (now == 2) {
      {
        auto scope = spent.m.iteration();
        spent.run.forward_and_backward(scope, now, 0);
      }
      spent.run.forget_last_loss();
      {
        auto scope = spent.m.iteration();
        CHECK_THROWS_AS(spent.run.forward_and_backward(scope, now, 0), cm::usage_error);
        spent.run.forget_step();
      }
    }
    spent.step(now);
    REQUIRE(spent.difference() == "");
  }
}

TEST_CASE("weights rewritten by a kernel are taken over when it is done", "[equality]")
{
  for (const bool in_place : {false, true}) {
    fixture<cm::bf16> it{recipe(3), {.in_place = in_place, .launched = true, .more_frames = 8}};
    for (std::uint32_t now = 0; now < 5; ++now) {
      if (now == 1 || now == 2) {
        const auto pin = it.m.acquire(it.run.weights().as<cm::bf16>(weight), cm::access::write, cm::agent::compute);
        it.memory.launch(cm::agent::compute, [to = mixed::view(pin), count = pin.size(), now] {
          for (std::uint64_t i = 0; i < count; ++i) to.set(i, 0.3F * mixed::noise(now * 999'983 + i));
        });
        it.reference.weights().rewrite(weight,
                                       [now](std::uint64_t i) { return 0.3F * mixed::noise(now * 999'983 + i); });
      }
      it.step(now);
    }
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("a weight rewritten between backward and step is what the step updates", "[equality]")
{
  for (const manner& how : both) {
    fixture<cm::bf16> it{recipe(3), how};
    for (std::uint32_t now = 0; now < 5; ++now) {
      differentiate(it, now);
      const auto value = [now](std::uint64_t i) { return 0.3F * mixed::noise(now * 31'337 + i); };
      if (now == 2 && how.in_place) {
        CHECK_THROWS_AS(it.run.weights().rewrite(weight, value), cm::usage_error);
        CHECK_THROWS_AS(it.m.drop(it.run.weights().as<cm::bf16>(weight)), cm::usage_error);
      } else if (now == 2) {
        it.run.weights().rewrite(weight, value);
        it.reference.weights().rewrite(weight, value);
      }
      update(it);
      REQUIRE(it.difference() == "");
    }
  }
}

TEST_CASE("a gradient that is changed through its list is measured again", "[equality]")
{
  // Of each the norm was taken in another way: by its pin, by its handle, not at all.
  for (const manner& how : both)
    for (const std::size_t changed : {std::size_t{3}, std::size_t{1}, not_done}) {
      INFO("parameter " << changed << (how.in_place ? ", in place" : "") << (how.rehearsed ? ", rehearsed" : ""));
      fixture<cm::bf16> it{recipe(3), how};
      for (std::uint32_t now = 0; now < 6; ++now) {
        differentiate(it, now);
        {
          const float value = now == 4 ? INFINITY : 100.0F;  // the fifth step is skipped for it alone
          const auto pin =
              it.m.acquire<cm::bf16>(it.run.weights().as<cm::bf16>(changed), cm::gradient_list, cm::access::read_write,
                                     now % 2 == 0 ? cm::memory_location::device : cm::memory_location::host);
          mixed::view(pin).set(7, value);
          it.reference.weights().gradient(changed).set(7, value);
        }
        update(it);
        REQUIRE(it.difference() == "");
      }
      CHECK(it.run.weights().updates() == 4);
    }
}

TEST_CASE("pins that are still held stop a step where it can be taken again", "[equality]")
{
  for (const manner& how : both)
    for (const bool on_gradient : {false, true}) {
      fixture<cm::bf16> it{recipe(3), how};
      int refused = 0;
      for (std::uint32_t now = 0; now < 6; ++now) {
        differentiate(it, now);
        {
          const std::size_t index = on_gradient ? not_done : mixed::idle;
          const auto held = it.m.acquire<cm::bf16>(it.run.weights().as<cm::bf16>(index),
                                                   on_gradient ? cm::gradient_list : cm::value_list, cm::access::read,
                                                   cm::memory_location::device);
          if (on_gradient) {
            CHECK_THROWS_AS(it.run.update(), cm::usage_error);
            ++refused;
          }
        }
        update(it);
        REQUIRE(it.difference() == "");
      }
      CHECK(refused == (on_gradient ? 6 : 0));
    }
}

}  // namespace order_test
