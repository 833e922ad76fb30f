// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/pin.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace held_span_test {

namespace cm = chunkmem;
using namespace cm::literals;

TEST_CASE("a held span keeps its holder until it ends", "[manager]")
{
  const auto alive = std::make_shared<int>(1);
  {
    std::vector<float> numbers{1, 2, 3};
    const cm::held_span<float, std::shared_ptr<int>> all{numbers, std::shared_ptr<int>{alive}};
    CHECK(alive.use_count() == 2);
    CHECK(all.size() == 3);
    CHECK(all[2] == 3.0F);
  }
  CHECK(alive.use_count() == 1);
}

TEST_CASE("a loop over the span of a temporary pin holds the pin", "[manager]")
{
  cm::backend::host_arena memory{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(8, {256}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 8; ++index)
    for (float& x : m.acquire(weights.slice(index), cm::access::write).span()) {
      CHECK(m.state_of(weights.slice(index)) == cm::tensor_state::compute);
      x = 1;
      break;
    }
  CHECK(m.state_of(weights.slice(0)) == cm::tensor_state::hold);
  for (float& x : m.lease(cm::tier::device, 512_B).span<float>()) {
    CHECK(m.report().in_use[cm::tier::device] > 0_B);
    x = 1;
    break;
  }
}

}  // namespace held_span_test
