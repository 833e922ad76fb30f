// SPDX-License-Identifier: Apache-2.0
#include "training_fixture.hpp"

#include <cstdint>

namespace promised_errors_test {

using namespace training;

/// Every mistake that 16-bit training can see is a typed error, and training goes on as if it had not been made.

namespace {

using manager = cm::manager<any_backend, chosen_gradient>;
using fixture_type = fixture<cm::bf16>;

}  // namespace

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
  for (const manner& how : both) {
    INFO((how.in_place ? "in place" : "separate") << (how.rehearsed ? ", rehearsed" : ""));
    fixture_type it{recipe(4), how};
    for (std::uint32_t now = 0; now < 6; ++now) {
      auto scope = it.m.iteration();
      it.run.forward_and_backward(scope, now, 0);
      it.reference.forward_and_backward(now, 0);
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
      it.run.update();
      it.reference.weights().update();
    }
    REQUIRE(it.difference() == "");
  }
}

TEST_CASE("a parameter in 32 bits has no master", "[equality]")
{
  fixture_type it{recipe(4), {}};
  it.step(0);
  const cm::tensor_handle bias = it.run.weights().as<float>(mixed::index_of(0, mixed::part::up_bias));
  CHECK_THROWS_AS(it.m.acquire<float>(bias, it.m.list("master"), cm::access::read, cm::memory_location::host),
                  cm::usage_error);
  CHECK(it.difference() == "");
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

}  // namespace promised_errors_test
