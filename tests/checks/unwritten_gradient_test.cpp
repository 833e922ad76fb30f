// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

namespace unwritten_gradient_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("after the complaint the gradient can be written, and is done", "[checks]")
{
  rig<> it;
  const auto scope = it.m.iteration();
  auto gradient = it.m.gradient(it.weights.slice(0));
  CHECK(gradient.beta() == 0.0F);
  CHECK_THROWS_AS(it.m.gradient_done(std::move(gradient)), cm::usage_error);
  for (float& value : gradient.span()) value = 0.0F;
  CHECK_NOTHROW(it.m.gradient_done(std::move(gradient)));
}

TEST_CASE("a gradient that is opened again was written whole before", "[checks]")
{
  rig<> it;
  const auto scope = it.m.iteration(2);
  const auto open = [&] { return it.m.gradient(it.weights.slice(0)).beta(); };
  CHECK(open() == 0.0F);
  CHECK_THAT(answer_of(open), ContainsSubstring("a gradient was opened again: 250 of 250 elements"));
}

TEST_CASE("a gradient that is written through its list is looked at too", "[checks]")
{
  rig<> it;
  const auto scope = it.m.iteration();
  it.write_gradients(1);
  it.m.acquire<float>(it.weights.slice(0), cm::gradient_list, cm::access::write, cm::memory_location::host).release();
  CHECK_THAT(answer_of([&] { cm::optimizer::step(it.m, it.sgd); }),
             ContainsSubstring("250 of 250 elements of tensor 'wte' (gradient)"));
}

}  // namespace unwritten_gradient_test
