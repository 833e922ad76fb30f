// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

namespace missing_gradient_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("parameters without a gradient are named by the step", "[checks]")
{
  const std::string answer = a_weight_without_a_gradient();
  CHECK_THAT(answer, ContainsSubstring("2 of 4 parameters have no gradient: 'wte', 'wpe'"));
  CHECK_THAT(answer, ContainsSubstring("without_gradient"));
}

TEST_CASE("not those that may be without one, and the step goes on", "[checks]")
{
  rig<> it;
  it.m.without_gradient(it.weights.slice(0));
  const auto scope = it.m.iteration();
  it.write_gradients(2);
  CHECK_THAT(answer_of([&] { cm::optimizer::step(it.m, it.sgd); }),
             ContainsSubstring("1 of 4 parameters have no gradient: 'wpe' ("));
  it.m.without_gradient(it.weights.slice(1));
  CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read).span()[0] == 1.0F);
  CHECK(it.m.acquire(it.weights.slice(2), cm::access::read).span()[0] != 1.0F);
}

TEST_CASE("without checks the call is there and does nothing", "[checks]")
{
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.add<float>({10}, cm::role::parameter);
  CHECK_NOTHROW(m.without_gradient(w));
  CHECK_NOTHROW(m.verify());
  CHECK_THROWS_AS(m.without_gradient(cm::tensor_handle{}), cm::usage_error);
}

}  // namespace missing_gradient_test
