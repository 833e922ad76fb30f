// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>

#include <support/count_allocations.hpp>

#include <backend/cuda_under_test.hpp>
#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/fake_cuda.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace cuda_device_test {

using namespace chunkmem;
using backend::cuda_device_options;
using support::fake_cuda;
using support::fake_cuda_options;
using support::fake_schedule;
using under_test::all_are;
using under_test::cuda;
using under_test::fault_of;
using under_test::kernel;
using under_test::rig;

static_assert(stream_backend<cuda> && graph_backend<cuda>);
static_assert(!cuda::host_addressable && has_bytes<cuda>());
static_assert(!std::is_copy_constructible_v<cuda> && !std::is_move_constructible_v<cuda>);

TEST_CASE("cuda_device keeps the laws of a stream backend", "[backend]")
{
  const auto when = GENERATE(fake_schedule::random, fake_schedule::earliest, fake_schedule::latest);
  const bool has_pools = GENERATE(true, false);
  const bool is_inside = GENERATE(false, true);
  std::vector<fake_cuda> gpus;
  const auto fresh = [&] {
    return gpus.emplace_back(fake_cuda_options{.has_pools = has_pools, .when = when, .seed = gpus.size()});
  };
  if (!is_inside) {
    conformance::stream_backend_laws<cuda>([&](bytes there, bytes here) {
      return cuda{{.device_capacity = there, .host_capacity = here}, fresh()};
    });
  } else {
    conformance::stream_backend_laws<support::failing<cuda>>([&](bytes there, bytes here) {
      return support::failing<cuda>{{}, cuda_device_options{.device_capacity = there, .host_capacity = here}, fresh()};
    });
  }
  CHECK(gpus.size() > 10);
  for (const fake_cuda& gpu : gpus) under_test::check_clean(gpu);
}

TEST_CASE("without a capacity the device has what is free, less the headroom", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.device_memory = 10'000}};
  {
    const cuda mem{{.host_capacity = bytes{5}, .headroom = bytes{4'000}}, gpu};
    CHECK(mem.capacity(tier::device) == bytes{6'000});
    CHECK(mem.capacity(tier::host) == bytes{5});
    CHECK(mem.capacity(no_tier) == bytes{});
    CHECK(mem.agents() == built_in_agents);
  }
  CHECK_THROWS_AS((cuda{{.headroom = bytes{10'000}}, gpu}), config_error);
  CHECK_THROWS_AS((cuda{{.device = 1}, gpu}), config_error);
  CHECK_THROWS_AS((cuda{{.device = -1}, gpu}), config_error);
  under_test::check_clean(gpu);
}

TEST_CASE("what others hold of a device is what is in use there and not ours", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.device_memory = 10'000}};
  {
    cuda mem{{.device_capacity = bytes{4'096}, .host_capacity = bytes{256}}, gpu};
    CHECK(mem.other_bytes() == bytes{});
    std::byte* const ours = mem.allocate(tier::device, bytes{2'048});
    CHECK(mem.other_bytes() == bytes{});
    {
      cuda other{{.device_capacity = bytes{3'000}, .host_capacity = bytes{256}}, gpu};
      std::byte* const theirs = other.allocate(tier::device, bytes{1'024});
      CHECK(mem.other_bytes() == bytes{1'024});
      CHECK(other.other_bytes() == bytes{2'048});
      other.release(tier::device, theirs);
    }
    mem.release(tier::device, ours);
    CHECK(mem.other_bytes() == bytes{});
    gpu.fail_call(gpu.calls() + 1, 46);
    CHECK_THROWS_AS(mem.other_bytes(), device_error);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("without a GPU the error says so", "[backend]")
{
  for (const int number : {35, 100}) {
    const fake_cuda gpu;
    gpu.fail_call(1, number);
    try {
      const cuda mem{{}, gpu};
      FAIL("there is no GPU");
    } catch (const device_error& error) {
      CHECK(error.fault().number == number);
      CHECK_FALSE(error.fault().is_sticky);
      CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring("there is no GPU to use"));
    }
  }
  const fake_cuda none{fake_cuda_options{.devices = 0}};
  CHECK(fault_of([&] { const cuda mem{{}, none}; }).number == 100);
}

TEST_CASE("each device keeps to itself, whatever is current on the calling thread", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 3}};
  int current = -1;
  REQUIRE(gpu.use_device(2) == 0);
  std::array<int, 3> ran{};
  for (const int number : {0, 1, 2}) {
    cuda mem{{.device = number, .device_capacity = 1_MiB, .host_capacity = 1_MiB}, gpu};
    const agent fifth = mem.adopt();
    std::byte* const there = mem.allocate(tier::device, 1_KiB);
    std::byte* const here = mem.allocate(tier::host, 1_KiB);
    for (const agent stream : {agent::compute, fifth, agent::host}) {
      mem.fill(there, std::byte{3}, 1_KiB, stream);
      mem.launch(stream, kernel([&ran, number] { ++ran[static_cast<std::size_t>(number)]; }));
      mem.copy(here, there, 1_KiB, stream);
      mem.wait(agent::host, mem.record(stream));
      CHECK(all_are(here, 1'024, 3));
    }
    mem.begin_capture();
    mem.fill(there, std::byte{4}, 1_KiB, agent::to_device);
    auto graph = mem.end_capture();
    mem.launch(graph);
    mem.copy(here, there, 1_KiB, agent::compute);
    mem.wait(agent::host, mem.record(agent::compute));
    CHECK(all_are(here, 1'024, 4));
    std::thread{[&] {  // on this thread device 0 is current
      mem.fill(there, std::byte{5}, 1_KiB, agent::to_host);
      mem.launch(agent::to_host, kernel([&ran, number] { ++ran[static_cast<std::size_t>(number)]; }));
      mem.wait(agent::host, mem.record(agent::to_host));
      mem.release(tier::device, mem.allocate(tier::device, 1_KiB));
    }}
        .join();
    REQUIRE(gpu.current_device(current) == 0);
    CHECK(current == 2);
  }
  CHECK(ran == std::array{4, 4, 4});
  under_test::check_clean(gpu);
}

TEST_CASE("no call switches devices where the right one is current", "[backend]")
{
  rig it;
  std::byte* const there = it.there(100);
  it.mem().fill(there, std::byte{}, bytes{100}, agent::compute);
  it.mem().launch(agent::compute, kernel([] {}));
  it.mem().copy(there, there + 50, bytes{50}, agent::compute);
  (void)it.mem().adopt();
  it.end();
  CHECK(it.gpu.calls("use_device") == 0);
}

TEST_CASE("a stream of another device is refused", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 2}};
  support::fake_stream_handle theirs;
  REQUIRE(gpu.use_device(1) == 0);
  REQUIRE(gpu.create_stream(theirs) == 0);
  {
    cuda mem{{.device_capacity = 1_MiB}, gpu};
    CHECK(fault_of([&] { (void)mem.adopt(theirs); }).number == 400);
    CHECK(mem.agents() == built_in_agents);
    cuda other{{.device = 1, .device_capacity = 1_MiB}, gpu};
    CHECK(other.adopt(theirs) == static_cast<agent>(4));
    CHECK(other.stream(static_cast<agent>(4)) == theirs);
  }
  CHECK(gpu.destroy_stream(theirs) == 0);
  under_test::check_clean(gpu);
}

TEST_CASE("two backends on one device do not meet", "[backend]")
{
  const fake_cuda gpu;
  {
    cuda one{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}, gpu};
    cuda other{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}, gpu};
    const auto work = [](cuda& mem, int value) {
      std::byte* const here = mem.allocate(tier::host, 4_KiB);
      std::byte* const there = mem.allocate(tier::device, 4_KiB);
      for (int i = 0; i < 50; ++i) {
        mem.fill(there, static_cast<std::byte>(value), 4_KiB, agent::compute);
        mem.wait(agent::to_host, mem.record(agent::compute));
        mem.copy(here, there, 4_KiB, agent::to_host);
        mem.wait(agent::host, mem.record(agent::to_host));
        if (!all_are(here, 4'096, value)) return false;
        mem.wait(agent::compute, mem.record(agent::to_host));
      }
      return true;
    };
    bool is_right = false;
    std::thread second{[&] { is_right = work(other, 2); }};
    CHECK(work(one, 1));
    second.join();
    CHECK(is_right);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("a backend may go from thread to thread", "[backend]")
{
  rig it;
  std::byte* const there = it.there(100);
  event last{};
  for (int i = 0; i < 5; ++i) {
    std::thread{[&] {
      it.mem().wait(agent::compute, last);
      it.mem().fill(there, static_cast<std::byte>(i), bytes{100}, agent::compute);
      last = it.mem().record(agent::compute);
    }}.join();
  }
  it.mem().wait(agent::host, last);
  CHECK(all_are(it.bytes_at(there, 100), 4));
  it.end();
}

TEST_CASE("releasing and destroying finish what is queued", "[backend]")
{
  rig it{GENERATE(fake_schedule::latest, fake_schedule::random)};
  std::byte* const here = it.here(4'096);
  std::byte* const there = it.there(4'096);
  int ran_on_host = 0;
  int ran_on_device = 0;
  it.mem().fill(here, std::byte{1}, bytes{4'096}, agent::to_device);
  it.mem().copy(there, here, bytes{4'096}, agent::to_device);
  it.mem().release(tier::host, here);
  it.mem().launch(agent::to_host, [&ran_on_host] { ++ran_on_host; });
  it.mem().launch(agent::compute, kernel([&ran_on_device] { ++ran_on_device; }));
  it.mem().wait(agent::to_host, it.mem().record(agent::compute));
  it.mem().copy(there, there + 2'048, bytes{2'048}, agent::to_host);
  std::byte foreign{};
  it.mem().release(tier::host, &foreign);
  CHECK(it.mem().unknown_releases() == 1);
  it.end();
  CHECK((ran_on_host == 1 && ran_on_device == 1));
}

TEST_CASE("a program that is ending is forgiven", "[backend]")
{
  rig it;
  std::byte* const here = it.here(100);
  it.mem().begin_capture();
  {
    auto graph = it.mem().end_capture();
    it.mem().launch(graph);
    it.gpu.finish();
    it.gpu.unload();
    it.mem().release(tier::host, here);
    CHECK(it.mem().is_lost());
    CHECK(fault_of([&] { it.mem().fill(here, std::byte{}, bytes{1}, agent::compute); }).number == 4);
    it.device.reset();
  }
  const fake_cuda other;
  other.unload();
  CHECK(fault_of([&] { const cuda mem{{}, other}; }).number == 4);
}

TEST_CASE("after a fault of the device everything is refused with its first cause, and no call is made", "[backend]")
{
  rig it;
  std::byte* const there = it.there(100);
  std::byte* const here = it.here(100);
  it.mem().begin_capture();
  it.mem().fill(there, std::byte{}, bytes{1}, agent::compute);
  auto graph = it.mem().end_capture();
  it.gpu.fail_operation(it.gpu.operations() + 1, 700);
  it.mem().fill(there, std::byte{}, bytes{1}, agent::compute);
  it.gpu.finish();
  const device_fault first = fault_of([&] { it.mem().wait(agent::host, it.mem().record(agent::compute)); });
  CHECK((first.number == 700 && first.is_sticky && first.call == it.mem().calls()));
  CHECK(it.mem().is_lost());
  const std::uint64_t calls = it.gpu.calls();
  const auto is_refused = [&](auto&& call) {
    const device_fault again = fault_of(call);
    CHECK((again.number == 700 && again.call == first.call));
  };
  is_refused([&] { (void)it.mem().allocate(tier::host, bytes{1}); });
  is_refused([&] { it.mem().copy(here, there, bytes{1}); });
  is_refused([&] { it.mem().copy(here, here + 50, bytes{1}); });
  is_refused([&] { it.mem().copy(here, there, bytes{1}, agent::to_host); });
  is_refused([&] { it.mem().fill(here, std::byte{}, bytes{1}); });
  is_refused([&] { it.mem().launch(agent::compute, [] {}); });
  is_refused([&] { it.mem().launch(agent::compute, kernel([] {})); });
  is_refused([&] { it.mem().launch(agent::host, [] {}); });
  is_refused([&] { (void)it.mem().record(agent::to_host); });
  is_refused([&] { (void)it.mem().record(agent::host); });
  is_refused([&] { it.mem().wait(agent::to_host, {.value = 0, .source = agent::compute}); });
  is_refused([&] { (void)it.mem().adopt(); });
  is_refused([&] { it.mem().begin_capture(); });
  is_refused([&] { (void)it.mem().end_capture(); });
  is_refused([&] { it.mem().launch(graph); });
  it.mem().release(tier::host, here);
  it.device.reset();
  CHECK(it.gpu.calls() == calls);
  CHECK(it.gpu.calls_after_sticky() == 0);
}

TEST_CASE("the counters are those of the runtime", "[backend]")
{
  rig it;
  std::byte* const there = it.there(100);
  CHECK(it.mem().allocations() == it.gpu.allocations());
  for (int i = 0; i < 300; ++i) {
    it.mem().launch(agent::to_host, [] {});
    it.mem().fill(there, std::byte{}, bytes{100}, agent::compute);
    it.mem().wait(agent::to_host, it.mem().record(agent::compute));
  }
  it.mem().wait(agent::host, it.mem().record(agent::to_host));
  CHECK(it.mem().calls() == it.gpu.calls());
  CHECK(it.mem().synchronizations() == it.gpu.synchronizations());
  CHECK(it.mem().recoveries() == 0);
  const std::uint64_t before = it.mem().now();
  CHECK(it.mem().now() >= before);
  it.end();
}

TEST_CASE("steady work allocates nothing and never waits by itself", "[backend]")
{
  if constexpr (!support::counts_allocations) SKIP("a sanitizer owns the allocation functions");
  rig it{fake_schedule::earliest};
  std::byte* const here = it.here(4'096);
  std::byte* const there = it.there(4'096);
  std::vector<backend::copy_range> copies;
  for (std::size_t i = 0; i < 100; ++i) copies.push_back({.to = there + 8 * i, .from = here + 8 * i, .size = bytes{8}});
  const auto work = [&] {
    for (int i = 0; i < 100; ++i) {
      it.mem().copy(there, here, 4_KiB, agent::to_device);
      it.mem().copy_batch(copies, agent::to_device);
      it.mem().wait(agent::compute, it.mem().record(agent::to_device));
      it.mem().fill(there, std::byte{}, 1_KiB, agent::compute);
      it.mem().wait(agent::to_host, it.mem().record(agent::compute));
      it.mem().copy(here, there, 4_KiB, agent::to_host);
      it.mem().wait(agent::to_device, it.mem().record(agent::to_host));
    }
  };
  for (int i = 0; i < 3; ++i) {
    work();
    it.gpu.finish();
  }
  const std::uint64_t waits = it.gpu.synchronizations();
  const std::uint64_t made = it.gpu.allocations();
  const auto before = support::allocations_so_far();
  for (int i = 0; i < 5; ++i) it.mem().wait(agent::compute, it.mem().record(agent::to_host));
  it.mem().copy_batch(copies, agent::to_device);
  it.mem().launch(agent::compute, [] {});
  const auto seen = support::allocations_so_far() - before;
  CHECK(seen.by_mmap == 0);
  CHECK(seen.all() <= 8);  // the fake's own, where its queue grows
  CHECK(it.gpu.synchronizations() == waits);
  CHECK(it.gpu.allocations() == made);
  it.end();
}

}  // namespace cuda_device_test
