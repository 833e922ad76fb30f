#include <chunkmem/sharding/unit_gradients.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/sharding/gathering.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace unit_gradients_test {

using namespace chunkmem;
using manager_type = sharding::rank_manager<manager<backend::host_arena, sharding::gathering<collective::self>>>;

/// One unit of three tensors, on one rank.
struct rig {
  static constexpr bytes frame{65536};
  backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 8}};
  collective::self alone;
  manager_type m{memory, {.chunk_bytes = frame}, sharding::gathering<collective::self>{alone, memory.adopt()}};
  sharding::unit_plan<append_layout> plan;
  sharding::gathered_units units;
  sharding::unit_gradients<manager_type> gradients;

  explicit rig(float scale = 1)
  {
    for (int at = 0; at < 3; ++at) plan.add(dtype::float32, group_id{0}, true, 100);
    plan.seal(frame, 1);
    units.declare(m, plan, rank_id{0}, [](dtype type) { return type; }, [](std::uint32_t tensor) { return tensor; });
    const std::vector<std::uint32_t> unit_of(3, 0);
    gradients.reset(unit_of, units.size(), scale);
    m.seal();
    const auto pin = m.acquire(tensor<float>{units[0].share}, access::write);
    for (float& it : pin.span()) it = 0;
  }
  /// @return   whether there was something to add to
  bool write(std::uint32_t tensor, float value)
  {
    auto opened = gradients.open(m, units[0], tensor, agent::host);
    float* const to = reinterpret_cast<float*>(std::as_const(opened.unit).data()) + plan.place(tensor).first;
    for (int at = 0; at < 100; ++at) to[at] = opened.adds ? to[at] + value : value;
    return opened.adds;
  }
  float sum(std::uint32_t tensor)
  {
    const auto pin = m.acquire<float>(units[0].share, gradient_list, access::read, at::host);
    return pin.span()[plan.place(tensor).first + 99];
  }
};

TEST_CASE("gradients of a unit are summed when the last one is done, and what was not written is zero", "[sharding]")
{
  rig it{0.5F};
  CHECK_FALSE(it.write(0, 4));
  CHECK(it.write(0, 2));
  CHECK_FALSE(it.write(1, 8));
  CHECK_FALSE(it.gradients.done(0));
  CHECK_FALSE(it.gradients.done(0));
  CHECK_FALSE(it.gradients.done(1));
  CHECK_THROWS_AS(it.gradients.done(2), usage_error);
  CHECK_THROWS_AS(it.write(0, 1), usage_error);
  CHECK(it.gradients.is_open(0));
  it.gradients.end_micro_batch(it.m, it.units.all());
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK(it.sum(0) == 3);
  CHECK(it.sum(1) == 4);
  CHECK(it.sum(2) == 0);
  CHECK((it.gradients.is_of_step(0) && it.gradients.is_of_step(1) && !it.gradients.is_of_step(2)));
  it.gradients.forget_step();
  CHECK_FALSE(it.gradients.is_of_step(0));
}

TEST_CASE("sums of later micro-batches are added, and their room is free in between", "[sharding]")
{
  rig it;
  for (int batch = 0; batch < 3; ++batch) {
    for (const std::uint32_t tensor : {2U, 1U, 0U}) {
      CHECK_FALSE(it.write(tensor, static_cast<float>(batch + 1)));
      if (it.gradients.done(tensor)) it.gradients.finish(it.m, it.units[0], 0);
    }
    CHECK(it.m.state_of(it.units[0].gradients) == tensor_state::free);
  }
  CHECK(it.sum(1) == 6);
}

TEST_CASE("units without a gradient that is done stay open at the end of a micro-batch, and are forgotten on demand", "[sharding]")
{
  rig it;
  it.write(1, 3);
  it.gradients.end_micro_batch(it.m, it.units.all());
  CHECK(it.gradients.is_open(0));
  CHECK(it.write(1, 4));
  it.gradients.forget(it.m, it.units.all());
  CHECK_FALSE(it.gradients.is_open(0));
  CHECK_FALSE(it.gradients.is_of_step(1));
  CHECK_FALSE(it.m.has_gradient(it.units[0].share));
  CHECK_FALSE(it.write(1, 5));
}

}  // namespace unit_gradients_test
