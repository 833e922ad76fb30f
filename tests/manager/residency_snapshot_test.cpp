// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/residency_snapshot.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

#include <optional>

namespace residency_snapshot_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

TEST_CASE("each use of a frame has a name of its own", "[manager]")
{
  const cm::frame_use all[] = {cm::frame_use::free, cm::frame_use::spare, cm::frame_use::sole, cm::frame_use::pinned,
                               cm::frame_use::leased};
  for (const cm::frame_use left : all) {
    CHECK_FALSE(name_of(left).empty());
    for (const cm::frame_use right : all) CHECK((name_of(left) == name_of(right)) == (left == right));
  }
}

TEST_CASE("a snapshot can be taken at any time, changes nothing and outlives its manager", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  std::optional<cm::manager<arena>> m;
  m.emplace(memory, cm::manager_options{.chunk_bytes = 4_KiB});
  const auto weights = m->add_stacked<float>(3, {1024}, cm::role::parameter);
  CHECK(m->residency().chunks.empty());  // not placed yet
  CHECK(m->residency().lists.size() == 2);
  m->seal();
  const auto sealed = m->residency();
  CHECK(sealed.chunks.size() == 6);  // values and gradients
  CHECK(sealed.tensors.size() == 6);
  for (const cm::chunk_snapshot& it : sealed.chunks)
    CHECK_FALSE((it.place.on_device() || it.place.host_valid || it.state != cm::tensor_state::free));
  const auto rehearsed = [&] {
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const auto pin = m->acquire(weights.slice(layer), cm::access::read_write);
      CHECK(m->residency().tensors.size() == 6);
    }
  };
  m->rehearse([&] {
    const auto scope = m->iteration();
    for (std::uint32_t layer = 0; layer < 3; ++layer) (void)m->acquire(weights.slice(layer), cm::access::write);
  });
  for (std::uint32_t layer = 0; layer < 3; ++layer) m->acquire(weights.slice(layer), cm::access::write).release();
  for (int step = 0; step < 3; ++step) {
    const auto scope = m->iteration();
    rehearsed();
    const auto inside = m->residency();
    CHECK(inside.is_inside);
    CHECK(inside.moment == 3);
    CHECK(inside.iterations == static_cast<std::uint64_t>(step));
  }
  CHECK(m->report().divergences == 0);
  const auto last = m->residency();
  CHECK_FALSE(last.is_inside);
  CHECK(last.iterations == 3);
  m.reset();
  CHECK(last.lists == std::vector<std::string>{"value", "gradient"});
  CHECK(last.tensors[2].name == "tensor.2");
  CHECK(last.tiers[cm::tier::device].capacity == 8_KiB);
}

}  // namespace residency_snapshot_test
