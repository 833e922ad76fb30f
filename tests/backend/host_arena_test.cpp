// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>

#include <support/count_allocations.hpp>

#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

#include <sys/mman.h>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <thread>
#include <type_traits>

namespace host_arena_test {

using namespace chunkmem;
using backend::host_arena;
using backend::host_arena_options;

TEST_CASE("host_arena keeps the laws of a stream backend", "[backend]")
{
  const bool async_compute = GENERATE(false, true);
  CAPTURE(async_compute);
  conformance::stream_backend_laws<host_arena>([async_compute](bytes device, bytes host) {
    return host_arena{{.device_capacity = device, .host_capacity = host, .async_compute = async_compute}};
  });
}

TEST_CASE("host_arena inside a failing backend without a plan keeps the laws too", "[backend]")
{
  using failing_arena = support::failing<host_arena>;
  conformance::stream_backend_laws<failing_arena>([](bytes device, bytes host) {
    return failing_arena{{}, host_arena_options{.device_capacity = device, .host_capacity = host}};
  });
}

TEST_CASE("a host_arena stays where it is", "[backend]")
{
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<host_arena>);
  STATIC_REQUIRE_FALSE(std::is_move_constructible_v<host_arena>);
}

TEST_CASE("a wait of another agent does not block the caller", "[backend]")
{
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB, .async_compute = true}};
  std::atomic<bool> open{false};
  int order = 0;
  mem.launch(agent::compute, [&] {
    while (!open.load()) std::this_thread::yield();
    order = 1;
  });
  mem.wait(agent::to_device, mem.record(agent::compute));
  mem.launch(agent::to_device, [&] { order = order == 1 ? 2 : -1; });
  mem.wait(agent::to_host, mem.record(agent::to_device));
  open.store(true);  // reached only because nothing above blocked
  mem.wait(agent::host, mem.record(agent::to_device));
  CHECK(order == 2);
}

TEST_CASE("compute on the calling thread runs at once and its waits block", "[backend]")
{
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  const auto here = std::this_thread::get_id();
  bool ran_here = false;
  mem.launch(agent::compute, [&] { ran_here = std::this_thread::get_id() == here; });
  CHECK(ran_here);
  bool copied = false;
  mem.launch(agent::to_device, [&] { copied = true; });
  mem.wait(agent::compute, mem.record(agent::to_device));
  CHECK(copied);
}

TEST_CASE("events do not depend on how fast the agents are", "[backend]")
{
  std::array<std::uint64_t, 2> values{};
  for (std::uint64_t& value : values) {
    host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
    mem.launch(agent::to_device, [] {});
    const event first = mem.record(agent::to_device);
    if (&value == &values[1]) mem.wait(agent::host, first);  // once with the event surely reached
    mem.wait(agent::to_host, first);
    mem.launch(agent::to_host, [] {});
    value = mem.record(agent::to_host).value;
  }
  CHECK(values[0] == values[1]);
}

TEST_CASE("a queue with more than 256 operations throttles the caller", "[backend]")
{
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  std::byte* const place = mem.allocate(tier::device, 1_KiB);
  CHECK(mem.throttled() == 0);
  mem.launch(agent::to_device, [&mem] {
    while (mem.throttled() == 0) std::this_thread::yield();
  });
  for (int i = 0; i < 600; ++i) mem.fill(place, std::byte(i), 1_KiB, agent::to_device);
  CHECK(mem.throttled() >= 1);
  mem.wait(agent::host, mem.record(agent::to_device));
  CHECK(place[1'023] == std::byte(599 % 256));
}

TEST_CASE("a wait of the caller for what is reached is none, and one that blocks is told with its time", "[backend]")
{
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  mem.launch(agent::to_host, [] {});
  const event first = mem.record(agent::to_host);
  mem.wait(agent::host, first);
  for (const wait_cause why : {wait_cause::demand_miss, wait_cause::other}) mem.wait(agent::host, first, why);
  CHECK(mem.waited(wait_cause::demand_miss) == wait_total{});
  CHECK(mem.waited(wait_cause::other) == wait_total{});
  // nearly always the first one
  for (int round = 0; round < 100'000 && mem.waited(wait_cause::demand_miss).count == 0; ++round) {
    mem.launch(agent::to_device, [] {
      for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
    });
    mem.wait(agent::host, mem.record(agent::to_device), wait_cause::demand_miss);
  }
  CHECK(mem.waited(wait_cause::demand_miss).count == 1);
  CHECK(mem.waited(wait_cause::demand_miss).nanoseconds > 0);
  CHECK(mem.waited(wait_cause::other) == wait_total{});
}

TEST_CASE("memory may be given back while work on it is queued", "[backend]")
{
  host_arena mem{{.device_capacity = 8_MiB, .host_capacity = 8_MiB}};
  for (int round = 0; round < 5; ++round) {
    std::byte* const from = mem.allocate(tier::host, 8_MiB);
    std::byte* const to = mem.allocate(tier::device, 8_MiB);
    mem.fill(from, std::byte{1}, 8_MiB, agent::to_host);
    mem.wait(agent::to_device, mem.record(agent::to_host));
    mem.copy(to, from, 8_MiB, agent::to_device);
    mem.release(tier::host, from);
    mem.release(tier::device, to);
  }
  CHECK(mem.unknown_releases() == 0);
  std::byte foreign{};
  mem.release(tier::host, &foreign);
  CHECK(mem.unknown_releases() == 1);
}

TEST_CASE("host_arena refuses unknown agents, null addresses and unrecorded events", "[backend]")
{
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  std::byte* const place = mem.allocate(tier::host, 64_B);
  const agent unknown = static_cast<agent>(4);
  CHECK_THROWS_AS(mem.copy(place, place, 64_B, unknown), usage_error);
  CHECK_THROWS_AS(mem.fill(place, std::byte{}, 64_B, unknown), usage_error);
  CHECK_THROWS_AS(mem.launch(unknown, [] {}), usage_error);
  CHECK_THROWS_AS(mem.record(unknown), usage_error);
  CHECK_THROWS_AS(mem.wait(unknown, {}), usage_error);
  CHECK_THROWS_AS(mem.wait(agent::host, {.value = 0, .source = unknown}), usage_error);
  CHECK_THROWS_AS(mem.wait(agent::host, {.value = 1, .source = agent::to_host}), usage_error);
  CHECK_THROWS_AS(mem.copy(nullptr, place, 64_B, agent::to_host), usage_error);
  CHECK_THROWS_AS(mem.fill(nullptr, std::byte{}, 64_B), usage_error);
  CHECK(mem.record(agent::to_host).value == 0);
}

TEST_CASE("memory that the system does not have is out_of_memory below the capacity too", "[backend]")
{
  host_arena mem{{.device_capacity = bytes{UINT64_MAX}, .host_capacity = bytes{UINT64_MAX}}};
  for (const std::uint64_t absurd : {std::uint64_t{1} << 60, UINT64_MAX - 1, UINT64_MAX}) {
    CHECK_THROWS_AS(mem.allocate(tier::device, bytes{absurd}), out_of_memory);
  }
  CHECK(mem.allocate(tier::device, 1_B) != nullptr);
}

TEST_CASE("time for reports never goes back", "[backend]")
{
  const host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  const std::uint64_t before = mem.now();
  CHECK(mem.now() >= before);
}

TEST_CASE("the allocation counters see every form of new, malloc and mmap", "[backend]")
{
  if constexpr (!support::counts_allocations) SKIP("a sanitizer owns the allocation functions");
  const auto before = support::allocations_so_far();
  void* volatile by_new = ::operator new(10);
  void* volatile aligned = ::operator new(10, std::align_val_t{64});
  void* volatile by_malloc = std::malloc(10);
  void* volatile by_aligned = std::aligned_alloc(64, 64);
  std::uint64_t by_thread = 0;
  std::thread{[&by_thread] {
    std::uint64_t* volatile seven = new std::uint64_t{7};  // volatile, or a compiler may leave the pair out
    by_thread = *seven;
    delete seven;
  }}.join();
  const auto seen = support::allocations_so_far() - before;
  ::operator delete(by_new);
  ::operator delete(aligned, std::align_val_t{64});
  std::free(by_malloc);
  std::free(by_aligned);
  CHECK(by_thread == 7);
  CHECK(seen.by_new >= 4);  // two here, one in the thread, one for the thread
  CHECK(seen.by_malloc >= 2);
  const auto before_map = support::allocations_so_far();
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  (void)mem.allocate(tier::device, 1_MiB);
  CHECK((support::allocations_so_far() - before_map).by_mmap >= 1);
}

TEST_CASE("memory that is held stays readable when it is released, and behind the arena", "[backend]")
{
  std::byte* places[3] = {};
  {
    host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
    for (std::byte*& place : places) mem.fill(place = mem.allocate(tier::device, 4_KiB), std::byte{7}, 4_KiB);
    mem.release(tier::device, places[2]);
    *mem.held() = true;
    mem.release(tier::device, places[0]);
    CHECK(mem.unknown_releases() == 0);
  }
  CHECK(places[0][4095] == std::byte{7});
  CHECK(places[1][0] == std::byte{7});
  for (const std::size_t mine : {0U, 1U}) ::munmap(places[mine], 4096);  // nobody else has it
}

TEST_CASE("host_arena allocates nothing while it works, on any thread", "[backend]")
{
  if constexpr (!support::counts_allocations) SKIP("a sanitizer owns the allocation functions");
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB, .async_compute = true}};
  const agent fifth = mem.adopt();
  std::byte* const here = mem.allocate(tier::host, 64_KiB);
  std::byte* const there = mem.allocate(tier::device, 64_KiB);
  std::array<std::uint64_t, 12> ballast{};
  const auto work = [&] {
    for (int i = 0; i < 400; ++i) {
      mem.fill(here, std::byte(i), 1_KiB, agent::host);
      mem.copy(there, here, 1_KiB, agent::to_device);
      mem.wait(agent::compute, mem.record(agent::to_device));
      mem.launch(agent::compute, [there, ballast] { there[0] = std::byte(ballast[3]); });
      mem.wait(fifth, mem.record(agent::compute));
      mem.launch(fifth, [there] { there[1] = std::byte{}; });
      mem.wait(agent::to_host, mem.record(fifth));
      mem.copy(here, there, 1_KiB, agent::to_host);
      mem.wait(agent::host, mem.record(agent::to_host));
    }
  };
  const auto before = support::allocations_so_far();
  work();
  const auto seen = support::allocations_so_far() - before;
  CHECK(seen.all() == 0);
}

}  // namespace host_arena_test
