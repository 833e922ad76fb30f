// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

namespace kept_pointer_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a write through a pointer that outlived its pin is named also where its chunk was evicted before a look",
          "[checks]")
{
  rig<> it;
  const float* const kept = it.m.acquire(it.weights.slice(0), cm::access::read_write).span().data();
  write_unseen(kept, 5.0F);
  const std::string answer = answer_of([&] {
    const auto first = it.m.lease(cm::tier::device, 4_KiB);  // both frames: the chunk of weights leaves
    const auto second = it.m.lease(cm::tier::device, 4_KiB);
    it.m.verify();
  });
  CHECK_THAT(answer, ContainsSubstring("'wte' (value) changed while no pin held"));
}

TEST_CASE("writes of the library itself are none", "[checks]")
{
  rig<> it;
  for (int step = 0; step < 3; ++step) {
    const auto scope = it.m.iteration();
    it.write_gradients(0);
    cm::optimizer::step(it.m, it.sgd);
  }
  CHECK_NOTHROW(it.m.verify());
}

}  // namespace kept_pointer_test
