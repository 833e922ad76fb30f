// SPDX-License-Identifier: Apache-2.0
#include <support/fake_cuda.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda_rig.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
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
