// SPDX-License-Identifier: Apache-2.0
#include <support/fake_cuda.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda_rig.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace fake_cuda_test {

using namespace support;

static_assert(chunkmem::cuda_api<fake_cuda>);

namespace {

constexpr fake_schedule schedules[] = {fake_schedule::random, fake_schedule::earliest, fake_schedule::latest};

bool is_poison(const std::byte* place, std::size_t size)
{
  return all_are(place, size, 0xFF);
}

}  // namespace

TEST_CASE("a destination is spoiled when its operation starts, and written after it", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(96, stream);
  std::byte* const host = rig.pinned(96);
  std::fill_n(host, 96, std::byte{7});
  int spoiled = 0;
  rig.api.on_half_way([&](const fake_range& it) { spoiled += is_poison(it.to, it.size) ? 1 : 0; });
  must(rig.api.copy(place, host, 96, stream));
  must(rig.api.fill(place, 3, 32, stream));
  void* const to[] = {place + 32, place + 64};
  const void* const from[] = {host, host + 8};
  const std::size_t sizes[] = {8, 16};
  must(rig.api.copy_batch(to, from, sizes, 2, stream));
  must(rig.api.synchronize_stream(stream));
  CHECK(spoiled == 4);
  CHECK(all_are(place, 32, 3));
  CHECK(all_are(place + 32, 64, 7));
  CHECK(rig.api.operations() == 3);
}

TEST_CASE("fresh and freed memory of the fake holds NaN bytes", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(1'000, stream);
  std::byte* const host = rig.pinned(500);
  CHECK(is_poison(place, 1'000));
  CHECK(is_poison(host, 500));
  must(rig.api.fill(place, 1, 1'000, stream));
  must(rig.api.synchronize_stream(stream));
  std::fill_n(host, 500, std::byte{1});
  must(rig.api.free_device(place, stream));
  must(rig.api.free_pinned(host));
  must(rig.api.synchronize_stream(stream));
  CHECK(is_poison(place, 1'000));  // nothing is unmapped
  CHECK(is_poison(host, 500));
}

TEST_CASE("an allocation lives from its place in its stream to that of its free", "[backend]")
{
  const fake_rig rig{fake_schedule::latest};
  const auto owner = rig.stream();
  const auto other = rig.stream();
  void* place = nullptr;
  must(rig.api.allocate_device(place, 64, rig.pool, owner));
  SECTION("its own stream needs no wait")
  {
    must(rig.api.fill(place, 1, 64, owner));
    must(rig.api.free_device(place, owner));
    rig.api.finish();
    CHECK(rig.api.faults().empty());
  }
  SECTION("another stream waits for it")
  {
    must(rig.api.wait_event(other, rig.recorded(owner)));
    must(rig.api.fill(place, 1, 64, other));
    rig.api.finish();
    CHECK(rig.api.faults().empty());
  }
  SECTION("another stream that does not wait comes too early")
  {
    must(rig.api.fill(place, 1, 64, other));
    must(rig.api.synchronize_stream(other));
    CHECK(rig.api.faults().size() == 1);
    CHECK(is_poison(static_cast<std::byte*>(place), 64));
  }
  SECTION("another stream may come too late")
  {
    must(rig.api.synchronize_stream(owner));
    must(rig.api.fill(place, 1, 64, other));
    must(rig.api.free_device(place, owner));
    must(rig.api.synchronize_stream(owner));
    must(rig.api.synchronize_stream(other));
    CHECK(rig.api.faults().size() == 1);
    CHECK(is_poison(static_cast<std::byte*>(place), 64));
  }
  SECTION("work that names it after the free is found at once, and brings poison")
  {
    std::byte* const host = rig.pinned(64);
    std::fill_n(host, 64, std::byte{1});
    must(rig.api.free_device(place, owner));
    must(rig.api.copy(host, place, 64, owner));
    CHECK(rig.api.faults().size() == 1);
    rig.api.finish();
    CHECK(rig.api.faults().size() == 2);
    CHECK(is_poison(host, 64));
  }
}

TEST_CASE("memory that is freed in the middle of a copy is a fault", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(64, stream);
  std::byte* const host = rig.pinned(64);
  std::promise<void> started;
  std::promise<void> freed;
  rig.api.on_half_way([&](const fake_range&) {
    started.set_value();
    freed.get_future().wait();
  });
  const bool is_source = GENERATE(true, false);
  must(is_source ? rig.api.copy(place, host, 64, stream) : rig.api.copy(host, place, 64, stream));
  started.get_future().wait();
  must(rig.api.free_pinned(host));
  freed.set_value();
  must(rig.api.synchronize_stream(stream));
  CHECK(rig.api.faults().size() == 1);
}

TEST_CASE("a copy that leaves its allocation is a fault and writes nothing", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(64, stream);
  std::vector<std::byte> pageable(256, std::byte{1});
  const auto from = GENERATE(-1, 1, 63, -64 + 1, -8);
  const std::size_t size = from == -8 ? 80 : 64;  // the last one reaches over both ends
  must(rig.api.copy(place + from, pageable.data(), size, stream));
  must(rig.api.synchronize_stream(stream));
  CHECK(rig.api.faults().size() == 1);
  CHECK(is_poison(place, 64));
  must(rig.api.copy(pageable.data(), place + from, size, stream));  // as a source it brings poison
  must(rig.api.synchronize_stream(stream));
  CHECK(rig.api.faults().size() == 2);
  CHECK(is_poison(pageable.data(), size));
}

TEST_CASE("pageable memory may be copied, and is counted", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(64, stream);
  std::byte* const host = rig.pinned(64);
  std::vector<std::byte> pageable(64, std::byte{5});
  must(rig.api.copy(place, pageable.data(), 64, stream));
  must(rig.api.copy(host, place, 64, stream));
  must(rig.api.synchronize_stream(stream));
  CHECK(all_are(host, 64, 5));
  CHECK(rig.api.pageable_copies() == 1);
  CHECK(rig.api.faults().empty());
}

TEST_CASE("a copy onto itself is a fault", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(128, stream);
  must(rig.api.copy(place, place + 64, 64, stream));  // side by side
  must(rig.api.copy(place, place + 63, 64, stream));
  must(rig.api.synchronize_stream(stream));
  CHECK(rig.api.faults().size() == 1);
}

TEST_CASE("the device, a pool and the system each give so much memory and no more", "[backend]")
{
  const fake_rig rig{fake_cuda_options{.devices = 2, .device_memory = 1'000, .pinned_memory = 100}};
  const auto& api = rig.api;
  const auto stream = rig.stream();
  fake_pool_handle narrow;
  fake_pool_handle foreign;
  must(api.create_pool(narrow, 0, 300));
  must(api.create_pool(foreign, 1, 0));
  std::size_t free = 0;
  std::size_t total = 0;
  void* place = nullptr;
  CHECK(api.allocate_device(place, 301, narrow, stream) == 2);
  must(api.allocate_device(place, 300, narrow, stream));
  void* const first = place;
  CHECK(api.allocate_device(place, 1, narrow, stream) == 2);
  CHECK(api.allocate_device(place, 701, rig.pool, stream) == 2);
  CHECK(api.allocate_device(place, 1, foreign, stream) == 1);
  CHECK(place == first);  // results are written on success alone
  must(api.allocate_device(place, 700, rig.pool, stream));
  must(api.memory_info(free, total));
  CHECK(free == 0);
  CHECK(total == 1'000);
  must(api.free_device(first, stream));
  must(api.memory_info(free, total));
  CHECK(free == 0);  // the pool keeps it, for itself
  must(api.pool_memory(narrow, free));
  CHECK(free == 300);
  CHECK(api.allocate_device(place, 1, rig.pool, stream) == 2);
  must(api.allocate_device(place, 200, narrow, stream));
  must(api.destroy_pool(narrow));
  must(api.memory_info(free, total));
  CHECK(free == 100);  // what is in use stays
  must(api.free_device(place, stream));
  must(api.memory_info(free, total));
  CHECK(free == 300);
  CHECK(api.pool_memory(narrow, free) == 400);
  must(api.create_pool(narrow, 0, 300));
  must(api.allocate_device(place, 300, narrow, stream));

  CHECK(api.allocate_pinned(place, 101) == 2);
  must(api.allocate_pinned(place, 100));
  CHECK(api.allocate_pinned(place, 1) == 2);
  must(api.free_pinned(place));
  must(api.allocate_pinned(place, 60));
  CHECK(api.live() == fake_live{.device_allocations = 2, .pinned_allocations = 1, .streams = 1, .pools = 3});
}

TEST_CASE("without pools memory comes from none, and a free waits for all work", "[backend]")
{
  const fake_rig rig{fake_cuda_options{.has_pools = false, .when = fake_schedule::latest}};
  const auto stream = rig.stream();
  const auto other = rig.stream();
  CHECK(rig.pool == fake_pool_handle{});
  void* place = nullptr;
  must(rig.api.allocate_device(place, 64, {}, stream));
  must(rig.api.fill(place, 1, 64, other));  // needs no wait
  must(rig.api.free_device(place, stream));
  CHECK(rig.api.operations() == 1);
  CHECK(rig.api.faults().empty());
  CHECK(is_poison(static_cast<std::byte*>(place), 64));
}

TEST_CASE("handles that are none, of another GPU or of things destroyed are refused with 400", "[backend]")
{
  const fake_rig rig;
  const fake_rig other_gpu;
  const auto& api = rig.api;
  const auto good = rig.stream();
  const auto good_event = rig.event();
  const auto gone = rig.stream();
  const auto gone_event = rig.event();
  fake_pool_handle gone_pool;
  must(api.create_pool(gone_pool, 0, 0));
  must(api.destroy_stream(gone));
  must(api.destroy_event(gone_event));
  must(api.destroy_pool(gone_pool));
  void* place = rig.device(64, good);
  void* const to[] = {place};
  const void* const from[] = {place};
  const std::size_t sizes[] = {1};
  fake_graph_handle graph;
  fake_executable_handle executable;
  for (const auto& stream : {fake_stream_handle{}, gone, other_gpu.stream()}) {
    CHECK(api.destroy_stream(stream) == 400);
    CHECK(api.synchronize_stream(stream) == 400);
    CHECK(api.record_event(good_event, stream) == 400);
    CHECK(api.wait_event(stream, good_event) == 400);
    CHECK(api.copy(place, place, 1, stream) == 400);
    CHECK(api.copy(place, place, 0, stream) == 400);
    CHECK(api.copy_batch(to, from, sizes, 1, stream) == 400);
    CHECK(api.fill(place, 0, 1, stream) == 400);
    CHECK(api.launch_host(
              stream, [](void*) {}, nullptr) == 400);
    CHECK(api.allocate_device(place, 1, rig.pool, stream) == 400);
    CHECK(api.free_device(place, stream) == 400);
    CHECK(api.begin_capture(stream) == 400);
    CHECK(api.end_capture(stream, graph) == 400);
    api.launch_kernel(stream, [] {});
    CHECK(api.last_error() == 400);
  }
  for (const auto& event : {fake_event_handle{}, gone_event, other_gpu.event()}) {
    CHECK(api.destroy_event(event) == 400);
    CHECK(api.record_event(event, good) == 400);
    CHECK(api.wait_event(good, event) == 400);
    CHECK(api.synchronize_event(event) == 400);
  }
  for (const auto& pool : {fake_pool_handle{}, gone_pool, other_gpu.pool}) {
    CHECK(api.destroy_pool(pool) == 400);
    CHECK(api.allocate_device(place, 1, pool, good) == 400);
  }
  CHECK(api.instantiate(executable, graph) == 400);
  CHECK(api.destroy_graph(graph) == 400);
  CHECK(api.destroy_executable(executable) == 400);
  CHECK(api.launch_graph(executable, good) == 400);
  CHECK(api.operations() == 0);
}

TEST_CASE("values that no device can take are refused with 1", "[backend]")
{
  const fake_rig rig;
  const auto& api = rig.api;
  const auto stream = rig.stream();
  void* place = rig.device(64, stream);
  std::byte* const host = rig.pinned(64);
  void* const to[] = {place, nullptr};
  const void* const from[] = {host, host};
  const std::size_t sizes[] = {8, 8};
  const std::size_t no_sizes[] = {8, 0};
  CHECK(api.copy(nullptr, host, 1, stream) == 1);
  CHECK(api.copy(place, nullptr, 1, stream) == 1);
  CHECK(api.copy(nullptr, nullptr, 0, stream) == 0);
  CHECK(api.copy_batch(to, from, sizes, 2, stream) == 1);
  CHECK(api.copy_batch(to, from, no_sizes, 2, stream) == 1);
  CHECK(api.copy_batch(to, from, sizes, 0, stream) == 1);
  CHECK(api.fill(host, 0, 64, stream) == 1);  // a fill of pinned memory is not promised
  CHECK(api.launch_host(stream, nullptr, nullptr) == 1);
  CHECK(api.allocate_device(place, 0, rig.pool, stream) == 1);
  CHECK(api.allocate_pinned(place, 0) == 1);
  CHECK(api.faults().empty());
  CHECK(api.free_device(host, stream) == 1);
  CHECK(api.free_device(nullptr, stream) == 1);
  CHECK(api.free_pinned(place) == 1);
  must(api.free_device(place, stream));
  CHECK(api.free_device(place, stream) == 1);  // twice
  CHECK(api.faults().size() == 4);
  CHECK(api.operations() == 0);
}

TEST_CASE("the ledger knows what was made and not given back", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  const auto event = rig.event();
  std::byte* const place = rig.device(64, stream);
  std::byte* const host = rig.pinned(64);
  fake_graph_handle graph;
  fake_executable_handle executable;
  must(rig.api.begin_capture(stream));
  must(rig.api.end_capture(stream, graph));
  must(rig.api.instantiate(executable, graph));
  CHECK(rig.api.live() == fake_live{1, 1, 1, 1, 1, 1, 1});
  CHECK(rig.api.live().total() == 7);
  must(rig.api.destroy_executable(executable));
  must(rig.api.destroy_graph(graph));
  must(rig.api.free_pinned(host));
  must(rig.api.destroy_pool(rig.pool));
  must(rig.api.free_device(place, stream));  // outlives its pool
  must(rig.api.destroy_event(event));
  must(rig.api.destroy_stream(stream));
  CHECK(rig.api.live() == fake_live{});
  CHECK(rig.api.allocations() == 5);
}

TEST_CASE("a wait means the record that was the latest when it was asked for", "[backend]")
{
  const fake_rig rig{fake_schedule::latest};
  const auto one = rig.stream();
  const auto two = rig.stream();
  const auto event = rig.event();
  bool is_first_done = false;
  bool is_second_done = false;
  must(rig.api.wait_event(two, event));  // never recorded: no wait
  must(rig.api.synchronize_event(event));
  launch_kernel(one, [&] { is_first_done = true; });
  must(rig.api.record_event(event, one));
  must(rig.api.wait_event(two, event));
  launch_kernel(one, [&] { is_second_done = true; });
  must(rig.api.record_event(event, one));
  must(rig.api.synchronize_stream(two));
  CHECK(is_first_done);
  CHECK_FALSE(is_second_done);
  must(rig.api.synchronize_event(event));
  CHECK(is_second_done);
  CHECK(rig.api.synchronizations() == 3);
}

TEST_CASE("the latest schedule runs what is waited for, and what that waits for, and nothing else", "[backend]")
{
  const fake_rig rig{fake_schedule::latest};
  const auto one = rig.stream();
  const auto two = rig.stream();
  const auto three = rig.stream();
  std::array<bool, 6> ran{};  // one for each: some run beside others
  launch_kernel(one, [&] { ran[0] = true; });
  const auto first = rig.recorded(one);
  launch_kernel(one, [&] { ran[1] = true; });
  must(rig.api.wait_event(two, first));
  launch_kernel(two, [&] { ran[2] = true; });
  launch_kernel(three, [&] { ran[3] = true; });
  must(rig.api.wait_event(three, rig.recorded(two)));
  launch_kernel(three, [&] { ran[4] = true; });
  const auto last = rig.recorded(three);
  launch_kernel(three, [&] { ran[5] = true; });
  std::this_thread::yield();
  CHECK(rig.api.operations() == 0);
  must(rig.api.synchronize_event(last));
  CHECK(ran == std::array{true, false, true, true, true, false});
  must(rig.api.destroy_stream(three));
  rig.api.finish();
  CHECK(rig.api.operations() == 6);
}

TEST_CASE("errors wait for last_error, for each thread alone", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  CHECK(rig.api.last_error() == 0);
  CHECK(rig.api.copy(nullptr, nullptr, 1, stream) == 1);
  must(rig.api.synchronize_stream(stream));  // success does not forget
  std::thread{[&] { CHECK(rig.api.last_error() == 0); }}.join();
  CHECK(rig.api.last_error() == 1);
  CHECK(rig.api.last_error() == 0);
}

TEST_CASE("each thread has its own current device, and streams belong to one", "[backend]")
{
  const fake_rig rig{fake_cuda_options{.devices = 2}};
  const auto& api = rig.api;
  int number = -1;
  must(api.count_devices(number));
  CHECK(number == 2);
  const auto first = rig.stream();
  const auto first_event = rig.event();
  std::byte* const place = rig.device(64, first);
  CHECK(api.use_device(2) == 101);
  CHECK(api.use_device(-1) == 101);
  fake_pool_handle pool;
  CHECK(api.create_pool(pool, 2, 0) == 101);
  must(api.use_device(1));
  std::thread{[&] {
    int its = -1;
    must(api.current_device(its));
    CHECK(its == 0);
  }}.join();
  must(api.current_device(number));
  CHECK(number == 1);

  const auto second = rig.stream();
  CHECK(api.record_event(first_event, second) == 400);
  must(api.record_event(first_event, first));
  must(api.wait_event(second, first_event));  // across devices: allowed
  must(api.copy(place, place + 32, 32, first));
  CHECK(api.fill(place, 0, 64, first) == 400);
  int ran = 0;
  CHECK(api.last_error() == 400);
  launch_kernel(first, [&] { ++ran; });
  CHECK(api.last_error() == 400);
  must(api.use_device(0));
  must(api.fill(place, 0, 64, first));
  launch_kernel(first, [&] { ++ran; });
  CHECK(api.last_error() == 0);
  must(api.synchronize_stream(first));
  CHECK(ran == 1);
}

TEST_CASE("without a device every call answers 100", "[backend]")
{
  const fake_cuda api{fake_cuda_options{.devices = 0}};
  int number = 5;
  fake_stream_handle stream;
  CHECK(api.count_devices(number) == 100);
  CHECK(api.create_stream(stream) == 100);
  CHECK(number == 5);
  CHECK(api.last_error() == 100);
  CHECK(api.last_error() == 0);
}

TEST_CASE("a host function or a kernel that calls the runtime gets 800, and is found", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::pair<const fake_rig*, int> from_host{&rig, 0};
  int from_kernel = 0;
  must(rig.api.launch_host(
      stream,
      [](void* it) {
        auto& [its_rig, code] = *static_cast<std::pair<const fake_rig*, int>*>(it);
        fake_event_handle event;
        code = its_rig->api.create_event(event);
      },
      &from_host));
  launch_kernel(stream, [&] { from_kernel = rig.api.synchronize_stream(stream); });
  must(rig.api.synchronize_stream(stream));
  CHECK(from_host.second == 800);
  CHECK(from_kernel == 800);
  CHECK(rig.api.faults().size() == 2);
  CHECK(rig.api.live().events == 0);
}

TEST_CASE("a destroyed stream, and the end of the GPU, finish what is queued", "[backend]")
{
  for (const auto when : schedules) {
    int ran = 0;
    auto held = std::make_shared<int>(1);
    {
      const fake_rig rig{when};
      const auto gone = rig.stream();
      const auto idle = rig.stream();
      for (int i = 0; i < 50; ++i) launch_kernel(gone, [&ran, held] { ran += *held; });
      must(rig.api.wait_event(idle, rig.recorded(gone)));
      must(rig.api.destroy_stream(gone));
      must(rig.api.synchronize_stream(idle));
      CHECK(ran == 50);
      for (int i = 0; i < 40; ++i) must(rig.api.destroy_stream(rig.stream()));
      launch_kernel(idle, [&ran, held] { ran += *held; });
    }
    CHECK(ran == 51);
    CHECK(held.use_count() == 1);
  }
}

TEST_CASE("random work with the waits it needs is right under every schedule", "[backend]")
{
  for (const auto when : schedules)
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      CAPTURE(static_cast<int>(when), seed);
      const fake_rig rig{when, seed};
      fake_program program{rig, {rig.stream(), rig.stream(), rig.stream()}};
      program.enqueue(seed, 60);
      program.expect(seed, 60);
      REQUIRE(program.waits() > 10);
      REQUIRE(program.is_right());
      REQUIRE(rig.api.faults().empty());
    }
}

TEST_CASE("random work without its waits is wrong under the latest schedule every time", "[backend]")
{
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    const fake_rig rig{fake_schedule::latest, seed};
    fake_program program{rig, {rig.stream(), rig.stream(), rig.stream()}};
    program.enqueue(seed, 60, [](std::uint64_t) { return false; });
    program.expect(seed, 60);
    CHECK_FALSE(program.is_right());
  }
}

}  // namespace fake_cuda_test
