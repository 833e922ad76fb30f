// SPDX-License-Identifier: Apache-2.0
#include "training_fixture.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace promised_errors_test {

using namespace training;
using Catch::Matchers::ContainsSubstring;

/// Every mistake that 16-bit training can see is a typed error, and training goes on as if it had not been made.

namespace {

using manager = cm::manager<any_backend, chosen_gradient>;
using fixture_type = fixture<cm::bf16>;

mixed::recipe recipe()
{
  return {.kind = mixed::precision::bf16,
          .clip = {.norm = 1.0F},
          .scale = {.scale = 512.0F, .window = 2},
          .spoilt = {4, mixed::never}};
}

/// Trains some steps, makes mistakes at each place where a trainer could, and compares with the reference.
template <class BeforePass, class BeforeStep>
void train_with_mistakes(const manner& how, const mixed::recipe& with, BeforePass before_pass, BeforeStep before_step)
{
  INFO((how.in_place ? "in place" : "separate") << (how.rehearsed ? ", rehearsed" : ""));
  fixture_type it{with, how};
  for (std::uint32_t now = 0; now < 6; ++now) {
    {
      auto scope = it.m.iteration();
      before_pass(it, now);
      it.run.forward_and_backward(scope, now, 0);
      it.reference.forward_and_backward(now, 0);
      before_step(it, now);
      it.run.update();
      it.reference.weights().update();
    }
    REQUIRE(it.difference() == "");
  }
}

constexpr auto nothing = [](fixture_type&, std::uint32_t) {};
constexpr manner both[] = {
    {.more_frames = 8}, {.in_place = true, .more_frames = 8}, {.in_place = true, .rehearsed = false, .more_frames = 8}};

const std::size_t private_weight = mixed::index_of(1, mixed::part::up);

}  // namespace

TEST_CASE("a weight whose gradient has its bytes cannot be read, and nothing changes", "[equality]")
{
  // The attempt says that the weight is wanted there: from the next iteration on its gradient lies apart, so one
  // attempt each.
  for (const int way : {0, 1, 2, 3}) {
    int refused = 0;
    train_with_mistakes(
        {.in_place = true, .more_frames = 8}, recipe(), nothing, [&](fixture_type& it, std::uint32_t now) {
          const auto weight = it.run.weights().as<cm::bf16>(private_weight);
          if (now > 1 && way < 3) {
            const auto value = it.m.acquire(weight, cm::access::read);
            CHECK(mixed::view(value).get(17) == it.reference.weights().value(private_weight).get(17));
          }
          if (now != 1) return;
          REQUIRE(it.m.state_of(weight) == cm::tensor_state::gradient);
          if (way == 0) CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read), cm::usage_error);
          if (way == 1)
            CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read, cm::memory_location::host), cm::usage_error);
          if (way == 2) CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read, cm::agent::compute), cm::usage_error);
          if (way == 3) CHECK_THROWS_AS(it.m.acquire(weight, cm::access::write), cm::usage_error);
          CHECK(it.m.state_of(weight) == cm::tensor_state::gradient);
          CHECK(it.m.has_gradient(weight));
          ++refused;
        });
    CHECK(refused == 1);
  }
}

TEST_CASE("several micro-batches are refused in place, before anything begins", "[equality]")
{
  fixture_type it{recipe(), {.in_place = true}};
  for (const std::uint32_t micro_batches : {2U, 4U}) CHECK_THROWS_AS(it.m.iteration(micro_batches), cm::config_error);
  for (std::uint32_t now = 0; now < 3; ++now) {
    it.step(now);
    CHECK_THROWS_AS(it.m.iteration("train", 3), cm::config_error);
  }
  CHECK(it.difference() == "");
}

TEST_CASE("gradients in place are refused where no weight could lend its bytes", "[equality]")
{
  any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
  {
    manager m{memory, chunks, chosen_gradient{true}};
    cm::optimizer::adam kernel;
    m.use(kernel);
    (void)m.add<float>({64}, cm::role::parameter);
    CHECK_THROWS_AS(m.seal(), cm::config_error);
  }
  {
    manager m{memory, chunks, chosen_gradient{true}};
    cm::optimizer::adam kernel{{}, {.masters = false}};
    m.use(kernel);
    (void)m.add<cm::bf16>({64}, cm::role::parameter);
    CHECK_THROWS_AS(m.seal(), cm::config_error);
  }
  {
    manager m{memory, chunks, chosen_gradient{true}};
    (void)m.add<cm::bf16>({64}, cm::role::parameter);
    CHECK_THROWS_AS(m.seal(), cm::config_error);
  }
  {
    manager m{memory, chunks, chosen_gradient{true}};
    cm::optimizer::adam kernel;
    m.use(kernel);
    (void)m.add<cm::bf16>({64}, cm::role::frozen);
    CHECK_THROWS_AS(m.seal(), cm::config_error);
  }
}

TEST_CASE("nothing is written to a gradient after it was declared done", "[equality]")
{
  for (const manner& how : both)
    train_with_mistakes(how, recipe(), nothing, [](fixture_type& it, std::uint32_t) {
      const std::size_t index = 3;  // down of the first layer: done by its pin, as 3 % 3 == 0
      const auto weight = it.run.weights().as<cm::bf16>(index);
      REQUIRE(it.m.has_gradient(weight));
      CHECK_THROWS_AS(it.m.gradient(weight), cm::usage_error);
      CHECK_THROWS_AS(it.m.gradient(weight, cm::agent::compute), cm::usage_error);
      const auto idle = it.run.weights().as<cm::bf16>(mixed::idle);
      CHECK_THROWS_AS(it.m.gradient_done(idle), cm::usage_error);  // never written
      const auto open = it.run.weights().as<cm::bf16>(5);          // 5 % 3 == 2: nobody said that it is done
      {
        const auto pin = it.m.gradient(open);
        CHECK(pin.beta() == 1.0F);
        CHECK_THROWS_AS(it.m.gradient_done(open), cm::usage_error);  // pinned
      }
      it.m.gradient_done(open);
      CHECK_THROWS_AS(it.m.gradient(open), cm::usage_error);
    });
}

TEST_CASE("a gradient has the element type that its policy says", "[equality]")
{
  for (const manner& how : both)
    for (const bool wide : {false, true}) {
      if (wide && how.in_place) continue;
      mixed::recipe with = recipe();
      with.wide = wide;
      train_with_mistakes(
          how, with,
          [wide](fixture_type& it, std::uint32_t) {
            auto pin = it.m.acquire(it.run.weights().as<cm::bf16>(private_weight), cm::access::read);
            if (wide)
              CHECK_THROWS_AS(it.m.gradient(std::move(pin)), cm::usage_error);
            else
              CHECK_THROWS_AS(it.m.gradient<float>(std::move(pin)), cm::usage_error);
            CHECK(pin.data() != nullptr);
          },
          [wide](fixture_type& it, std::uint32_t) {
            const cm::tensor_handle weight = it.run.weights().as<cm::bf16>(private_weight);
            const auto read = [&](auto element) {
              return it.m
                  .acquire<decltype(element)>(weight, cm::gradient_list, cm::access::read, cm::memory_location::device)
                  .size();
            };
            if (wide) {
              CHECK_THROWS_AS(read(cm::bf16{}), cm::usage_error);
              CHECK(read(float{}) == mixed::width * mixed::hidden);
            } else {
              CHECK_THROWS_AS(read(float{}), cm::usage_error);
              CHECK(read(cm::bf16{}) == mixed::width * mixed::hidden);
            }
          });
    }
}

TEST_CASE("a 16-bit weight with a master is not written inside an iteration", "[equality]")
{
  for (const manner& how : both)
    train_with_mistakes(
        how, recipe(),
        [](fixture_type& it, std::uint32_t) {
          for (const std::size_t index : {std::size_t{0}, private_weight, mixed::idle}) {
            const auto weight = it.run.weights().as<cm::bf16>(index);
            CHECK_THROWS_AS(it.m.acquire(weight, cm::access::write), cm::usage_error);
            CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read_write), cm::usage_error);
            CHECK_THROWS_AS(it.m.acquire(weight, cm::access::write, cm::memory_location::host), cm::usage_error);
            CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read_write, cm::agent::compute), cm::usage_error);
          }
        },
        nothing);
}

TEST_CASE("a gradient in place waits until nobody else holds the weight", "[equality]")
{
  for (const bool by_handle : {false, true})
    train_with_mistakes(
        {.in_place = true, .more_frames = 8}, recipe(),
        [by_handle](fixture_type& it, std::uint32_t now) {
          if (now == 0) return;
          const auto weight = it.run.weights().as<cm::bf16>(private_weight);
          const auto other = it.m.acquire(weight, cm::access::read);
          const auto first = other.span()[11].bits();
          if (by_handle) {
            CHECK_THROWS_AS(it.m.gradient(weight), cm::usage_error);
          } else {
            auto pin = it.m.acquire(weight, cm::access::read);
            CHECK_THROWS_AS(it.m.gradient(std::move(pin)), cm::usage_error);
            CHECK(pin.span()[11].bits() == first);  // as it was
          }
          CHECK(other.span()[11].bits() == first);
          CHECK(!it.m.has_gradient(weight));
        },
        nothing);
}

TEST_CASE("a parameter in 32 bits has no master", "[equality]")
{
  fixture_type it{recipe(), {}};
  it.step(0);
  const cm::tensor_handle bias = it.run.weights().as<float>(mixed::index_of(0, mixed::part::up_bias));
  CHECK_THROWS_AS(it.m.acquire<float>(bias, it.m.list("master"), cm::access::read, cm::memory_location::host),
                  cm::usage_error);
  CHECK(it.difference() == "");
}

TEST_CASE("a step that lacks a rate for a group, or meets integers, changes nothing", "[equality]")
{
  fixture_type it{recipe(), {.in_place = true}};
  it.step(0);
  const mixed::outcome before = it.weights();
  {
    auto scope = it.m.iteration();
    it.run.forward_and_backward(scope, 1, 0);
    cm::optimizer::adam stranger;
    const float one_rate[] = {0.5F};
    CHECK_THROWS_AS(cm::optimizer::step(it.m, stranger, {.group_rates = one_rate}), cm::usage_error);
    CHECK(stranger.progress.number == 0);
    cm::optimizer::sgd without_lists;
    CHECK_THROWS_AS(cm::optimizer::step(it.m, without_lists, {}), cm::usage_error);
    it.reference.forward_and_backward(1, 0);
    it.run.update();
    it.reference.weights().update();
  }
  CHECK(it.difference() == "");
  CHECK(before.difference(it.weights()) != "");

  any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
  manager m{memory, chunks};
  cm::optimizer::adam kernel;
  m.use(kernel);
  CHECK_THROWS_AS(m.add<std::int32_t>({64}, cm::role::parameter), cm::usage_error);
}

TEST_CASE("two optimizers with masters in one manager are one name too many", "[equality]")
{
  any_backend memory{support::adversarial_options{.device_capacity = plenty, .host_capacity = plenty}};
  manager m{memory, chunks};
  cm::optimizer::adam first;
  cm::optimizer::sgd second;
  m.use(first);
  CHECK_THROWS_AS(m.use(second), cm::usage_error);
}

TEST_CASE("settings of clipping and loss scale that cannot work are refused", "[equality]")
{
  using cm::optimizer::loss_scale;
  CHECK_THROWS_AS(loss_scale::fixed(0.0F), cm::usage_error);
  CHECK_THROWS_AS(loss_scale::fixed(-2.0F), cm::usage_error);
  CHECK_THROWS_AS(loss_scale::fixed(INFINITY), cm::usage_error);
  CHECK_THROWS_AS(loss_scale::dynamic({.initial = 0.0F}), cm::usage_error);
  CHECK_THROWS_AS(loss_scale::dynamic({.window = 0}), cm::usage_error);
  CHECK_THROWS_AS(loss_scale::dynamic({.growth = 0.5F}), cm::usage_error);
  CHECK_THROWS_AS(loss_scale::dynamic({.backoff = 1.5F}), cm::usage_error);
}

}  // namespace promised_errors_test
