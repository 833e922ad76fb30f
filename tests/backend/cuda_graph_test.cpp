// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuda_graph_test {

using namespace chunkmem;
using under_test::all_are;
using under_test::cuda;
using under_test::fault_of;
using under_test::kernel;
using under_test::rig;
using tested_graph = cuda::graph_type;

static_assert(std::is_nothrow_move_constructible_v<tested_graph> && std::is_nothrow_move_assignable_v<tested_graph>);
static_assert(!std::is_copy_constructible_v<tested_graph>);
static_assert(graph_backend<cuda>);

namespace {

/// Calls something that cannot be captured; the text names what.
template <class Call>
void refuse(const std::string& what, const Call& call)
{
  try {
    call();
    FAIL_CHECK("captured: " << what);
  } catch (const usage_error& error) {
    CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("cannot be captured: " + what));
  }
}

}  // namespace

TEST_CASE("what is captured is done by each launch and not before", "[backend]")
{
  const auto when =
      GENERATE(support::fake_schedule::latest, support::fake_schedule::random, support::fake_schedule::earliest);
  rig it{when};
  std::byte* const here = it.here(1'000);
  std::byte* const there = it.there(1'000);
  std::byte* const back = it.here(1'000);
  it.mem().fill(there, std::byte{}, bytes{1'000});
  it.mem().fill(here, std::byte{9}, bytes{1'000});
  std::uint64_t steps = 0;
  {
    it.mem().begin_capture();
    CHECK(it.mem().is_capturing());
    it.mem().copy(there, here, bytes{1'000}, agent::to_device);
    it.mem().wait(agent::compute, it.mem().record(agent::to_device));
    it.mem().launch(agent::compute, kernel([there, &steps] { there[++steps] = std::byte{1}; }));
    it.mem().wait(agent::to_host, it.mem().record(agent::compute));
    it.mem().copy(back, there, bytes{1'000}, agent::to_host);
    const event last = it.mem().record(agent::to_host);
    tested_graph step = it.mem().end_capture();
    CHECK_FALSE(it.mem().is_capturing());
    CHECK(steps == 0);
    for (std::uint64_t i = 1; i <= 5; ++i) {
      it.mem().launch(step);
      it.mem().wait(agent::host, i % 2 == 0 ? it.mem().record(agent::to_host) : last);
      CHECK(steps == i);
      CHECK(back[i] == std::byte{1});
      CHECK(back[i - 1] == std::byte{9});
    }
    CHECK(it.gpu.live().graphs == 0);
    CHECK(it.gpu.live().executables == 1);
  }
  it.end();
}

TEST_CASE("what cannot be captured is refused by name, and the capture goes on", "[backend]")
{
  rig it;
  std::byte* const here = it.here(1'000);
  std::byte* const there = it.there(1'000);
  it.mem().begin_capture();
  const std::uint64_t calls = it.gpu.calls();
  refuse("a copy of the calling thread", [&] { it.mem().copy(there, here, bytes{10}); });
  refuse("a copy of the calling thread", [&] { it.mem().copy(here + 10, here, bytes{10}); });
  refuse("a fill of the calling thread", [&] { it.mem().fill(there, std::byte{}, bytes{10}); });
  refuse("a fill of host memory", [&] { it.mem().fill(here, std::byte{}, bytes{10}, agent::to_host); });
  refuse("a launch of the calling thread", [&] { it.mem().launch(agent::host, [] {}); });
  refuse("a launch of the calling thread", [&] { it.mem().launch(agent::host, kernel([] {})); });
  refuse("a callable that runs on the host", [&] { it.mem().launch(agent::compute, [] {}); });
  refuse("an allocation", [&] { (void)it.mem().allocate(tier::device, bytes{1}); });
  refuse("a new agent", [&] { (void)it.mem().adopt(); });
  refuse("the beginning of another capture", [&] { it.mem().begin_capture(); });
  CHECK(it.mem().refused_releases() == 0);
  it.mem().release(tier::host, here);
  it.mem().release(tier::host, nullptr);
  CHECK(it.mem().refused_releases() == 1);
  tested_graph none;
  CHECK_THROWS_AS(it.mem().launch(none), usage_error);
  CHECK(it.gpu.calls() == calls);
  it.mem().fill(there, std::byte{4}, bytes{10}, agent::compute);
  refuse("a wait of the calling thread", [&] { it.mem().wait(agent::host, it.mem().record(agent::compute)); });
  {
    tested_graph one = it.mem().end_capture();
    it.mem().launch(one);
    CHECK_THROWS_AS(it.mem().end_capture(), usage_error);
  }
  it.mem().wait(agent::host, it.mem().record(agent::compute));
  CHECK(all_are(it.bytes_at(there, 10), 4));
  it.mem().release(tier::host, here);
  CHECK(it.gpu.live().pinned_allocations == 0);
  it.end();
}

TEST_CASE("copies in a batch are captured one by one", "[backend]")
{
  rig it;
  std::byte* const here = it.here(100);
  std::byte* const there = it.there(100);
  it.mem().fill(here, std::byte{8}, bytes{100});
  std::vector<backend::copy_range> copies;
  for (std::size_t i = 0; i < 100; ++i) copies.push_back({.to = there + i, .from = here + i, .size = bytes{1}});
  it.mem().begin_capture();
  it.mem().copy_batch(copies, agent::to_device);
  CHECK((it.gpu.calls("copy_batch") == 0 && it.gpu.calls("copy") == 100));
  {
    tested_graph all = it.mem().end_capture();
    it.mem().launch(all);
  }
  it.mem().wait(agent::host, it.mem().record(agent::to_device));
  CHECK(all_are(it.bytes_at(there, 100), 8));
  it.end();
}

TEST_CASE("a graph may go while it runs, and outlive its device", "[backend]")
{
  rig it{support::fake_schedule::latest};
  int ran = 0;
  const auto capture = [&] {
    it.mem().begin_capture();
    it.mem().launch(agent::to_host, kernel([&ran] { ++ran; }));
    return it.mem().end_capture();
  };
  {
    tested_graph brief = capture();
    it.mem().launch(brief);
  }
  it.mem().wait(agent::host, it.mem().record(agent::compute));
  CHECK(ran == 1);
  tested_graph kept = capture();
  tested_graph moved{std::move(kept)};
  tested_graph assigned;
  assigned = std::move(moved);
  CHECK_THROWS_AS(it.mem().launch(moved), usage_error);
  it.mem().launch(assigned);
  it.device.reset();
  CHECK(ran == 2);
  CHECK(it.gpu.live().executables == 1);
  it.start();
  CHECK_THROWS_AS(it.mem().launch(assigned), usage_error);  // of the device before
  assigned = capture();
  it.mem().launch(assigned);
  it.device.reset();
  CHECK(ran == 3);
  assigned = tested_graph{};
  under_test::check_clean(it.gpu);
}

TEST_CASE("more events than a ring has may be recorded inside a capture and around it", "[backend]")
{
  rig it{support::fake_schedule::latest};
  std::vector<int> order;
  const auto put = [&](agent stream, int value) {
    it.mem().launch(stream, kernel([&order, value] { order.push_back(value); }));
  };
  const event before = (put(agent::to_host, 0), it.mem().record(agent::to_host));
  for (int i = 0; i < 300; ++i) (void)it.mem().record(agent::to_host);
  {
    it.mem().begin_capture();
    event inside = it.mem().record(agent::to_host);
    for (int i = 1; i <= 600; ++i) {
      const agent stream = i % 2 == 0 ? agent::to_host : agent::to_device;
      it.mem().wait(stream, inside);
      put(stream, i);
      inside = it.mem().record(stream);
    }
    tested_graph all = it.mem().end_capture();
    it.mem().wait(agent::compute, before);  // its entry was recorded again by the capture
    it.mem().wait(agent::host, before);
    CHECK(order == std::vector{0});
    const event between = (put(agent::to_host, 1'000), it.mem().record(agent::to_host));
    it.mem().wait(agent::host, between);
    CHECK(order.back() == 1'000);
    it.mem().launch(all);
    it.mem().wait(agent::host, inside);
  }
  CHECK(it.mem().recoveries() == 0);
  REQUIRE(order.size() == 602);
  for (int i = 1; i <= 600; ++i) REQUIRE(order[static_cast<std::size_t>(i) + 1] == i);
  it.end();
}

TEST_CASE("a capture that cannot be instantiated loses the device, with its cause", "[backend]")
{
  rig it;
  it.gpu.fail_call_of("instantiate", 1, 2, true);
  it.mem().begin_capture();
  it.mem().launch(agent::compute, kernel([] {}));
  CHECK(fault_of([&] { (void)it.mem().end_capture(); }).number == 2);
  CHECK(it.mem().is_lost());
  CHECK(fault_of([&] { (void)it.mem().record(agent::compute); }).number == 2);
  it.end();  // the runtime is alive, so nothing stays
}

TEST_CASE("a launch of a graph that is refused enqueued nothing and may be tried again", "[backend]")
{
  rig it;
  int ran = 0;
  {
    it.mem().begin_capture();
    it.mem().launch(agent::compute, kernel([&ran] { ++ran; }));
    tested_graph one = it.mem().end_capture();
    for (const std::uint64_t call : {1U, 2U}) it.gpu.fail_call_of("launch_graph", call, 701);
    CHECK(fault_of([&] { it.mem().launch(one); }).number == 701);
    CHECK_FALSE(it.mem().is_lost());
    it.mem().launch(one);
    it.mem().wait(agent::host, it.mem().record(agent::compute));
    CHECK(ran == 1);
  }
  it.end();
}

TEST_CASE("a device destroyed in the middle of a capture leaves nothing", "[backend]")
{
  rig it;
  int ran = 0;
  it.mem().begin_capture();
  it.mem().launch(agent::to_device, kernel([&ran] { ++ran; }));
  it.end();
  CHECK(ran == 0);
}

}  // namespace cuda_graph_test
