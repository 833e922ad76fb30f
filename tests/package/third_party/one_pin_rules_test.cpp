// SPDX-License-Identifier: Apache-2.0
#include "one_pin_rules.hpp"

#include "usual_training.hpp"

#include <conformance/tensor_rules.hpp>

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("one_pin_rules keeps the laws of a table of rules")
{
  conformance::tensor_rules_laws<one_pin_rules>();
}

TEST_CASE("one_pin_rules refuses a second pin and changes nothing")
{
  backend::host_arena memory{{.device_capacity = tight_device, .host_capacity = wide_host}};
  manager<backend::host_arena, one_pin_rules> m{memory, usual_options};
  const auto weight = m.add<float>({64}, role::parameter);
  {
    const auto pin = m.acquire(weight, access::write);
    CHECK_THROWS_WITH(m.acquire(weight, access::read),
                      ContainsSubstring("is compute and cannot acquire: release its pins first (one_pin_rules)"));
    pin.span()[63] = 1.0F;
  }
  CHECK(m.acquire(weight, access::read).span()[63] == 1.0F);
}

TEST_CASE("a gradient in place of its weight leads back to hold")
{
  using machine = state_machine<one_pin_rules>;
  tensor_state state = tensor_state::compute;
  machine::apply(state, tensor_event::consume, tensor_id{1}, "value");
  machine::apply(state, tensor_event::release, tensor_id{1}, "value");
  CHECK(state == tensor_state::hold);
}

TEST_CASE("with one_pin_rules a model trains to the same bits")
{
  CHECK(usual_training().left.difference(train_with<one_pin_rules>().left) == "");
}
