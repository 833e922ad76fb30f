// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/basic_manager.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <support/decisions_in.hpp>

#include <vector>

namespace looking_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena_manager = cm::manager<cm::backend::host_arena>;

namespace {

constexpr cm::list_spec specs[] = {{"momentum", cm::dtype::float32, 1}};

struct fixture {
  fixture() { m.use(specs); }
  cm::backend::host_arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  arena_manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<float> first = m.add<float>({16}, cm::role::parameter, cm::group_id{3});
  cm::tensor<float> running = m.add<float>({16}, cm::role::buffer);
  cm::tensor<float> second = m.add<float>({8}, cm::role::parameter);
};

}  // namespace

TEST_CASE("parameters are visited in the order of declaration, and only they", "[manager]")
{
  fixture it;
  std::vector<cm::tensor_id> seen;
  std::vector<std::uint64_t> sizes;
  it.m.for_each_parameter([&](cm::tensor_handle handle, const cm::tensor_info& info) {
    seen.push_back(handle.id);
    sizes.push_back(info.extents.elements());
    if (handle.id == it.first.id) CHECK(info.group == cm::group_id{3});
  });
  CHECK(seen == std::vector{it.first.id, it.second.id});
  CHECK(sizes == std::vector<std::uint64_t>{16, 8});
}

TEST_CASE("looking at a manager says what is filled and what has a gradient, and moves nothing", "[manager]")
{
  fixture it;
  const cm::list_id momentum = it.m.list("momentum");
  CHECK_FALSE(it.m.is_filled(it.first, cm::value_list));
  {
    const auto pin = it.m.acquire(it.first, cm::access::write);
  }
  {
    const auto pin = it.m.acquire<float>(it.second, momentum, cm::access::read, cm::memory_location::host);
  }
  const cm::report before = it.m.report();
  CHECK(it.m.is_filled(it.first, cm::value_list));
  CHECK_FALSE(it.m.is_filled(it.first, momentum));
  CHECK(it.m.is_filled(it.second, momentum));
  CHECK(it.m.state_of(it.first) == cm::tensor_state::hold);
  CHECK(it.m.state_of(it.second) == cm::tensor_state::free);
  CHECK_FALSE(it.m.has_gradient(it.first));
  CHECK_FALSE(it.m.has_masters());
  CHECK_FALSE(it.m.drifted());
  CHECK(it.m.updates().gradients().opened() == 0);
  CHECK(support::decisions_in(it.m.report()) == support::decisions_in(before));
  {
    const auto gradient = it.m.gradient(it.first);
  }
  CHECK(it.m.has_gradient(it.first));
  CHECK(it.m.updates().gradients().opened() == 1);
}

TEST_CASE("what is not there cannot be looked at", "[manager]")
{
  fixture it;
  CHECK_THROWS_AS(it.m.list("variance"), cm::usage_error);
  CHECK_THROWS_AS(it.m.has_gradient(it.running), cm::usage_error);
  CHECK_THROWS_AS(it.m.is_filled(it.running, it.m.list("momentum")), cm::usage_error);
  fixture other;
  CHECK_THROWS_AS(it.m.state_of(other.first), cm::usage_error);
}

TEST_CASE("what others hold is asked for at each pass, and a rise shows as drift", "[manager]")
{
  fixture it;
  cm::bytes held = 100_KiB;
  int asked = 0;
  auto source = [&] {
    ++asked;
    return held;
  };
  it.m.acquire(it.first, cm::access::write).release();
  const auto step = [&] {
    auto scope = it.m.iteration();
    scope.pass(cm::pass::forward);
    it.m.acquire(it.first, cm::access::read).release();
    scope.pass(cm::pass::backward);
  };
  step();
  CHECK(asked == 0);
  CHECK(it.m.report().external_peak == 0_B);
  it.m.watch_external_memory(source);
  for (int now = 0; now < 3; ++now) step();
  CHECK(asked == 9);
  CHECK(it.m.report().external_peak == 100_KiB);
  CHECK(it.m.external_memory().percentile(0.9) == 100_KiB);
  CHECK(!it.m.drifted());
  held = 200_KiB;
  step();
  CHECK(it.m.drifted());
  CHECK(it.m.report().external_peak == 200_KiB);
  held = 100_KiB;
  step();
  CHECK(!it.m.drifted());
}

}  // namespace looking_test
