// SPDX-License-Identifier: Apache-2.0
#include "training_fixture.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace kinds_test {

using namespace training;

/// What people do with parameters beside training them, against the same done with plain vectors.

namespace {

template <class Element>
mixed::recipe recipe(mixed::rule which = mixed::rule::adam)
{
  return {.kind = precision_of<Element>(),
          .optimizer = which,
          .clip = {.norm = 1.0F},
          .scale = {.scale = sizeof(Element) == 2 ? 512.0F : 1.0F, .window = 3},
          .spoilt = {3, mixed::never}};
}

constexpr manner manners[] = {
    {}, {.in_place = true}, {.in_place = true, .rehearsed = false}, {.in_place = true, .launched = true}};

/// Values for a parameter that nobody trained.
float rewritten(std::size_t index, std::uint64_t i)
{
  return 0.5F * mixed::noise(index * 31'337 + i + 9'000'000);
}

}  // namespace

TEST_CASE("weights are read after training as the reference left them", "[equality]")
{
  for (const manner& how : manners) {
    fixture<cm::bf16> it{recipe<cm::bf16>(), how};
    for (std::uint32_t now = 0; now < 4; ++now) it.step(now);  // the last one overflows: in place, weights came back
    for (std::uint32_t turn = 0; turn < 3; ++turn) {
      it.run.evaluate(40 + turn);
      it.reference.evaluate(40 + turn);
    }
    REQUIRE(it.difference() == "");
    it.step(4);
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("evaluation between any two steps changes no bit", "[equality]")
{
  for (const manner& how : manners) {
    fixture<cm::fp16> it{recipe<cm::fp16>(mixed::rule::sgd), how};
    it.run.evaluate(90);  // before the first step, too
    it.reference.evaluate(90);
    for (std::uint32_t now = 0; now < 6; ++now) {
      it.step(now);
      it.run.evaluate(now);
      it.reference.evaluate(now);
    }
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("weights rewritten between iterations are taken over by their masters", "[equality]")
{
  for (const manner& how : manners)
    for (const std::uint32_t when : {0U, 1U, 3U, 4U}) {
      INFO("rewritten before step " << when << (how.in_place ? ", in place" : ""));
      fixture<cm::bf16> it{recipe<cm::bf16>(), how};
      for (std::uint32_t now = 0; now < 6; ++now) {
        if (now == when || now == when + 1)
          for (const std::size_t index :
               {std::size_t{0}, mixed::index_of(1, mixed::part::up), mixed::index_of(0, mixed::part::up_bias),
                mixed::index_of(2, mixed::part::down_bias), mixed::mix_of(0), mixed::idle}) {
            const auto value = [index, now](std::uint64_t i) { return rewritten(index + now, i); };
            it.run.weights().rewrite(index, value);
            it.reference.weights().rewrite(index, value);
          }
        it.step(now);
      }
      REQUIRE(it.difference() == "");
    }
}

TEST_CASE("a weight rewritten on the host is taken over, too", "[equality]")
{
  for (const manner& how : manners) {
    fixture<cm::bf16> it{recipe<cm::bf16>(), how};
    it.step(0);
    constexpr std::size_t index = mixed::index_of(2, mixed::part::down);
    {
      const auto pin = it.m.acquire(it.run.weights().as<cm::bf16>(index), cm::access::write, cm::memory_location::host);
      for (std::uint64_t i = 0; i < pin.size(); ++i) mixed::view(pin).set(i, rewritten(index, i));
    }
    it.reference.weights().rewrite(index, [](std::uint64_t i) { return rewritten(index, i); });
    {
      const auto pin = it.m.acquire(it.run.weights().as<cm::bf16>(mixed::mix_of(1)), cm::access::read_write);
      mixed::view(pin).set(3, 0.25F);
    }
    auto changed = it.reference.weights().value(mixed::mix_of(1));
    std::vector<float> mix(changed.data, changed.data + it.reference.weights().size_of(mixed::mix_of(1)));
    mix[3] = 0.25F;
    it.reference.weights().rewrite(mixed::mix_of(1), [&](std::uint64_t i) { return mix[i]; });
    for (std::uint32_t now = 1; now < 5; ++now) it.step(now);
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("gradients are read between backward and step, wherever they lie", "[equality]")
{
  for (const manner& how : manners)
    for (const bool wide : {false, true}) {
      mixed::recipe with = recipe<cm::bf16>();
      with.wide = wide && !how.in_place;
      fixture<cm::bf16> it{with, how};
      for (std::uint32_t now = 0; now < 6; ++now) {
        auto scope = it.m.iteration();
        it.run.forward_and_backward(scope, now, 0);
        it.reference.forward_and_backward(now, 0);
        if (now != with.spoilt[0]) {  // NaN is no promise
          mixed::outcome expected;
          mixed::outcome seen;
          for (std::size_t index = 0; index < mixed::idle; ++index) {
            it.reference.weights().add_gradient_to(expected, index);
            it.run.weights().add_gradient_to(seen, index);
          }
          REQUIRE(expected.difference(seen) == "");
        }
        it.run.update();
        it.reference.weights().update();
      }
      REQUIRE(it.difference() == "");
    }
}

TEST_CASE("gradients that are dropped instead of used leave the weights as they were", "[equality]")
{
  for (const manner& how : manners) {
    fixture<cm::bf16> it{recipe<cm::bf16>(), how};
    for (std::uint32_t now = 0; now < 3; ++now) it.step(now);
    const mixed::outcome before = it.weights();
    for (int turn = 0; turn < 2; ++turn) {
      {
        auto scope = it.m.iteration();
        it.run.forward_and_backward(scope, 3, 0);
        it.m.drop_gradients();
      }
      REQUIRE(before.difference(it.weights()) == "");
      it.reference.forward_and_backward(3, 0);
      for (std::size_t index = 0; index < mixed::idle; ++index) it.reference.weights().forget_gradient(index);
    }
    for (std::uint32_t now = 4; now < 7; ++now) it.step(now);
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("a parameter whose gradient was dropped keeps its bytes, the others are updated", "[equality]")
{
  for (const manner& how : manners) {
    fixture<cm::bf16> it{recipe<cm::bf16>(), how};
    for (std::uint32_t now = 0; now < 6; ++now) {
      {
        auto scope = it.m.iteration();
        it.run.forward_and_backward(scope, now, 0);
        it.reference.forward_and_backward(now, 0);
        for (const std::size_t index : {std::size_t{0}, std::size_t{now}, mixed::index_of(2, mixed::part::down)}) {
          if (now == 1) continue;
          it.m.drop_gradient(it.run.weights().as<cm::bf16>(index));
          it.reference.weights().forget_gradient(index);
        }
        it.run.update();
        it.reference.weights().update();
      }
      REQUIRE(it.difference() == "");
    }
  }
}

TEST_CASE("a step outside of iterations gives the same bits", "[equality]")
{
  for (const manner& how : manners) {
    fixture<cm::bf16> it{recipe<cm::bf16>(), how};
    for (std::uint32_t now = 0; now < 5; ++now) {
      {
        auto scope = it.m.iteration();
        it.run.forward_and_backward(scope, now, 0);
      }
      it.run.update();
      it.reference.step(now);
    }
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("a frozen weight costs its own bytes and nothing else", "[equality]")
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  for (const bool in_place : {false, true}) {
    any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
    manager m{memory, chunks, chosen_gradient{in_place}};
    cm::optimizer::adam kernel;
    m.use(kernel);
    const auto frozen = m.add<cm::bf16>({64, 64}, cm::role::frozen);
    const auto trained = m.add<cm::bf16>({16, 16}, cm::role::parameter);
    const cm::memory_requirement need = m.seal();
    CHECK(need.by_role[cm::role::frozen] == cm::bytes{2 * 64 * 64});
    CHECK(need.by_role[cm::role::parameter] == cm::bytes{2 * 16 * 16});
    CHECK(need.by_role[cm::role::optimizer_state] == cm::bytes{12 * 16 * 16});
    for (const auto& it : {frozen, trained}) {
      const auto pin = m.acquire(it, cm::access::write);
      for (std::uint64_t i = 0; i < pin.size(); ++i) mixed::view(pin).set(i, 1.0F);
    }
    std::uint32_t parameters = 0;
    m.for_each_parameter([&](cm::tensor_handle it, const cm::tensor_info&) { parameters += it == trained ? 1 : 100; });
    CHECK(parameters == 1);
    CHECK_THROWS_AS(m.gradient(frozen), cm::usage_error);
    {
      auto pin = m.acquire(frozen, cm::access::read);
      CHECK_THROWS_AS(m.gradient(std::move(pin)), cm::usage_error);
      CHECK(pin.span()[7].bits() == mixed::bits_of(mixed::precision::bf16, 1.0F));  // the pin is as it was
    }
    CHECK_THROWS_AS(m.has_gradient(frozen), cm::usage_error);
    CHECK_THROWS_AS(m.gradient_done(frozen), cm::usage_error);
    for (const char* list : {"adam/momentum", "adam/variance", "master"})
      CHECK_THROWS_AS(m.acquire<float>(frozen, m.list(list), cm::access::read, cm::memory_location::host),
                      cm::usage_error);
    CHECK_THROWS_AS(m.acquire<cm::bf16>(frozen, cm::gradient_list, cm::access::read, cm::memory_location::host),
                    cm::usage_error);
    CHECK(m.acquire(frozen, cm::access::read).span()[9].bits() == mixed::bits_of(mixed::precision::bf16, 1.0F));
  }
}

TEST_CASE("gradients in place need fourteen bytes for each parameter with Adam, separate ones sixteen", "[equality]")
{
  using manager = cm::manager<any_backend, chosen_gradient>;
  constexpr std::uint64_t elements = 64 * 64;
  for (const bool in_place : {false, true}) {
    any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
    manager m{memory, chunks, chosen_gradient{in_place}};
    cm::optimizer::adam kernel;
    m.use(kernel);
    const auto weights = m.add_stacked<cm::bf16>(3, {64, 64}, cm::role::parameter);
    const cm::memory_requirement need = m.rehearse([&] {
      auto scope = m.iteration();
      for (std::uint32_t layer = 0; layer < 3; ++layer) m.acquire(weights.slice(layer), cm::access::read).release();
      for (std::uint32_t layer = 3; layer-- > 0;) {
        auto pin = m.acquire(weights.slice(layer), cm::access::read);
        m.gradient_done(m.gradient(std::move(pin)));
      }
      cm::optimizer::step(m, kernel);
    });
    CHECK(need.chunks == cm::bytes{3 * elements * (in_place ? 14 : 16)});
  }
}

}  // namespace kinds_test
