// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

namespace unread_beta_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a gradient of a later micro-batch whose beta was not read is named by the step", "[checks]")
{
  rig<> it;
  const auto scope = it.m.iteration(2);
  for (std::uint32_t index = 0; index < 4; ++index) {
    const auto gradient = it.m.gradient(it.weights.slice(index));
    if (gradient.beta() == 0)
      for (float& value : gradient.span()) value = 1.0F;
  }
  {
    const auto again = it.m.gradient(it.weights.slice(1));
    for (float& value : again.span()) value = 2.0F;  // for 3
  }
  CHECK_THAT(answer_of([&] { cm::optimizer::step(it.m, it.sgd); }),
             ContainsSubstring("the beta() of tensor 'wpe' (gradient) was not read"));
}

TEST_CASE("a gradient that is handed over by its list has no beta to read", "[checks]")
{
  rig<> it;
  const auto scope = it.m.iteration();
  it.write_gradients(1);
  {
    const auto list =
        it.m.acquire<float>(it.weights.slice(0), cm::gradient_list, cm::access::write, cm::memory_location::device);
    for (float& value : list.span()) value = 1.0F;
  }
  CHECK_NOTHROW(it.m.gradient_done(it.weights.slice(0)));
  CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
}

}  // namespace unread_beta_test
