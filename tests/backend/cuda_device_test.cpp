// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>

#include <backend/cuda_under_test.hpp>
#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/failing.hpp>
#include <support/fake_cuda.hpp>
#include <support/refusal.hpp>

#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
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

/// Calls a function that cannot be captured; the text names it.
template <class Call>
void refuse(const std::string& what, const Call& call)
{
  CHECK_THAT(support::refusal<usage_error>(call), Catch::Matchers::ContainsSubstring("cannot be captured: " + what));
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

TEST_CASE("cuda_device keeps the laws of a stream backend on memory of the user's", "[backend]")
{
  const auto when = GENERATE(fake_schedule::random, fake_schedule::latest);
  using source = cuda::memory_source;
  std::vector<std::unique_ptr<under_test::users_memory>> users;
  conformance::stream_backend_laws<cuda>([&](bytes there, bytes here) {
    constexpr std::uint64_t rounding = 64 * 256;
    auto& its =
        *users.emplace_back(std::make_unique<under_test::users_memory>(fake_cuda{fake_cuda_options{.when = when}}));
    const std::size_t sizes[] = {there.count() + rounding, here.count() + rounding};
    const source given[] = {source::slab(its.on_device(sizes[0]), bytes{sizes[0]}),
                            source::slab(its.pinned(sizes[1]), bytes{sizes[1]})};
    return cuda{{.device_capacity = there, .host_capacity = here}, {.device = given[0], .host = given[1]}, its.gpu};
  });
  CHECK(users.size() > 5);
  for (const auto& its : users) {
    CHECK((its->gpu.live().device_allocations == 1 && its->gpu.live().pinned_allocations == 1));
    const fake_cuda gpu = its->gpu;
    users[static_cast<std::size_t>(&its - users.data())] = nullptr;
    under_test::check_clean(gpu);
  }
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

TEST_CASE("after libraries are warm the device tier is what they left", "[backend]")
{
  const int device = GENERATE(0, 1);
  const fake_cuda gpu{fake_cuda_options{.devices = 2, .device_memory = 100'000, .context_memory = 10'000}};
  {
    cuda mem{{.device = device, .host_capacity = 1_KiB, .headroom = bytes{20'000}}, gpu};
    CHECK(mem.capacity(tier::device) == bytes{70'000});
    const bytes before = mem.other_bytes();
    CHECK(before == bytes{10'000});
    std::byte* const room = mem.allocate(tier::device, bytes{5'000});  // a workspace for the first product
    CHECK_THROWS_WITH(mem.resize_to_free(bytes{1'000}),
                      Catch::Matchers::ContainsSubstring("5000 B of it are allocated"));
    mem.release(tier::device, room);
    CHECK(mem.other_bytes() == before);  // the pool keeps it, and it is ours
    REQUIRE(gpu.take_for_library(device, 30'000));
    CHECK_FALSE(gpu.take_for_library(device, 60'001));
    CHECK_THROWS_AS(mem.allocate(tier::device, bytes{70'000}), out_of_memory);  // what the constant had promised
    mem.begin_capture();
    CHECK_THROWS_AS(mem.resize_to_free(bytes{1'000}), usage_error);
    (void)mem.end_capture();
    CHECK_THROWS_AS(mem.resize_to_free(bytes{60'000}), config_error);
    gpu.fail_call_of("create_pool", gpu.calls("create_pool") + 1, 46);
    CHECK_THROWS_AS(mem.resize_to_free(bytes{1'000}), device_error);
    CHECK(mem.capacity(tier::device) == bytes{70'000});
    mem.resize_to_free(bytes{1'000});
    CHECK(mem.other_bytes() - before == bytes{30'000});
    CHECK(mem.capacity(tier::device) == bytes{59'000});
    CHECK(gpu.live().pools == 1);
    CHECK(mem.allocate(tier::device, bytes{59'000}) != nullptr);
    CHECK(gpu.take_for_library(device, 1'000));
    CHECK(gpu.has_context(0) == (device == 0));
  }
  under_test::check_clean(gpu);
  {
    under_test::users_memory its{gpu};
    const auto slab = cuda::memory_source::slab(its.on_device(4'096), bytes{4'096});
    cuda mem{{.device = 0}, {.device = slab}, gpu};
    CHECK_THROWS_AS(mem.resize_to_free(bytes{1}), usage_error);
    CHECK(mem.capacity(tier::device) == bytes{4'096});
  }
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

TEST_CASE("where a GPU cannot be used, the error says which of the causes it is, and what to do", "[backend]")
{
  const std::pair<int, std::vector<std::string>> causes[] = {
      {100, {"cudaErrorNoDevice", "there is no GPU to use", "CUDA_VISIBLE_DEVICES"}},
      {35, {"cudaErrorInsufficientDriver", "CUDA 13 needs driver 580", "CUDA 12 needs 525", "nvidia-smi names"}},
      {803, {"cudaErrorSystemDriverMismatch", "libcuda.so.1", "start the machine again"}},
      {804, {"cudaErrorCompatNotSupportedOnDevice", "cuda-compat out of LD_LIBRARY_PATH"}},
      {34, {"cudaErrorStubLibrary", "folders of stubs"}},
      {802, {"cudaErrorSystemNotReady", "nvidia-fabricmanager"}},
      {46, {"cudaErrorDevicesUnavailable", "compute mode"}},
      {209, {"cudaErrorNoKernelImageForDevice", "compile it for the device's architecture"}},
      {222, {"cudaErrorUnsupportedPtxVersion", "the driver is older than the PTX", "the device's own architecture"}}};
  for (const auto& [number, words] : causes) {
    const fake_cuda gpu;
    gpu.fail_call(1, number);
    try {
      const cuda mem{{}, gpu};
      FAIL("a device was made");
    } catch (const device_error& error) {
      CHECK(error.fault().number == number);
      CHECK_FALSE(error.fault().is_sticky);
      for (const std::string& word : words) CHECK_THAT(error.what(), Catch::Matchers::ContainsSubstring(word));
      CHECK_THAT(error.what(), Catch::Matchers::EndsWith(")"));  // nothing was cut
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
  CHECK(it.gpu.switches() == 0);
}

TEST_CASE("a backend on device 1 makes a context there alone, and every call leaves the thread's device as it was",
          "[backend]")
{
  const bool has_chosen = GENERATE(false, true);
  const fake_cuda gpu{fake_cuda_options{.devices = 3}};
  if (has_chosen) REQUIRE(gpu.use_device(2) == 0);
  const auto is_as_before = [&] {
    int current = -1;
    return gpu.current_device(current) == 0 && current == (has_chosen ? 2 : 0) && !gpu.has_context(0);
  };
  std::optional<cuda> it;
  std::optional<cuda::graph_type> graph;
  std::byte* there = nullptr;
  std::byte* here = nullptr;
  event point;
  agent fifth{};
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"constructor",
       [&] { it.emplace(cuda_device_options{.device = 1, .host_capacity = 1_MiB, .headroom = 1_MiB}, gpu); }},
      {"allocate on the device", [&] { there = it->allocate(tier::device, 1_KiB); }},
      {"allocate on the host", [&] { here = it->allocate(tier::host, 1_KiB); }},
      {"other_bytes", [&] { (void)it->other_bytes(); }},
      {"adopt", [&] { fifth = it->adopt(); }},
      {"adopt a stream", [&] { (void)it->adopt(it->stream(fifth)); }},
      {"fill at once", [&] { it->fill(there, std::byte{1}, 1_KiB); }},
      {"fill", [&] { it->fill(there, std::byte{1}, 1_KiB, agent::compute); }},
      {"fill of the host", [&] { it->fill(here, std::byte{1}, 1_KiB, agent::compute); }},
      {"copy", [&] { it->copy(here, there, 1_KiB, agent::compute); }},
      {"wait for a stream", [&] { it->wait(agent::host, it->record(agent::compute)); }},
      {"copy at once", [&] { it->copy(there, here, 1_KiB); }},
      {"copy_batch",
       [&] {
         const backend::copy_range two[] = {{there, here, bytes{8}}, {there + 8, here, bytes{8}}};
         it->copy_batch(two, fifth);
       }},
      {"launch", [&] { it->launch(agent::compute, kernel([] {})); }},
      {"launch at once", [&] { it->launch(agent::host, kernel([] {})); }},
      {"launch on the host", [&] { it->launch(fifth, [] {}); }},
      {"record", [&] { point = it->record(agent::compute); }},
      {"is_reached", [&] { (void)it->is_reached(point); }},
      {"wait of a stream", [&] { it->wait(fifth, point); }},
      {"wait", [&] { it->wait(agent::host, it->record(fifth)); }},
      {"begin_capture", [&] { it->begin_capture(); }},
      {"captured fill", [&] { it->fill(there, std::byte{1}, 1_KiB, agent::compute); }},
      {"end_capture", [&] { graph.emplace(it->end_capture()); }},
      {"launch of a graph", [&] { it->launch(*graph); }},
      {"release", [&] { it->release(tier::device, there); }},
      {"release of the host", [&] { it->release(tier::host, here); }},
      {"a capture that is left", [&] { it->begin_capture(); }},
      {"destructor", [&] { it.reset(); }},
      {"destructor of a graph", [&] { graph.reset(); }},
  };
  for (const auto& [name, call] : calls) {
    INFO(name);
    call();
    CHECK(is_as_before());
  }
  CHECK(gpu.has_context(1));
  CHECK(gpu.calls("use_device") == (has_chosen ? 1U : 0U));
  calls[0].second();
  std::thread{[&] {  // a thread that chose none, as the others
    for (const auto& [name, call] : std::span{calls}.subspan(1)) call();
  }}
      .join();
  CHECK(is_as_before());
  under_test::check_clean(gpu);
}

TEST_CASE("a backend goes on beside one of another device that died on the same thread", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 2, .faults_stay = true}};
  REQUIRE(gpu.use_device(0) == 0);
  {
    cuda lives{{.device_capacity = 4_KiB, .host_capacity = 4_KiB}, gpu};
    std::byte* const there = lives.allocate(tier::device, 4_KiB);
    std::byte* const here = lives.allocate(tier::host, 4_KiB);
    {
      cuda dies{{.device = 1, .device_capacity = 4_KiB, .host_capacity = 4_KiB}, gpu};
      std::byte* const lost = dies.allocate(tier::device, 4_KiB);
      gpu.fail_operation(gpu.operations() + 1, 700);
      dies.fill(lost, std::byte{1}, 4_KiB, agent::compute);
      CHECK(fault_of([&] { dies.wait(agent::host, dies.record(agent::compute)); }).number == 700);
      CHECK(dies.is_lost());
      CHECK(gpu.device_of_thread() == 0);
    }
    CHECK(gpu.device_of_thread() == 0);
    CHECK(gpu.last_error() == 700);  // the thread's, which the user fetches: a launch takes it for the end of CUDA
    lives.launch(agent::compute, kernel([there] { there[0] = std::byte{7}; }));
    lives.wait(agent::to_host, lives.record(agent::compute));
    lives.copy(here, there, bytes{1}, agent::to_host);
    lives.wait(agent::host, lives.record(agent::to_host));
    CHECK(here[0] == std::byte{7});
    (void)lives.adopt();
    CHECK_FALSE(lives.is_lost());
  }
  CHECK(gpu.calls_after_sticky() == 0);
  CHECK(gpu.faults().empty());
}

TEST_CASE("calls of CUDA on another device are as many as the page on GPUs says", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 2}};
  REQUIRE(gpu.use_device(0) == 0);
  {
    const auto calls_of = [&](cuda& mem) {
      std::byte* const there = mem.allocate(tier::device, 4_KiB);
      std::byte* const here = mem.allocate(tier::host, 4_KiB);
      const auto before = gpu.calls();
      for (int i = 0; i < 10; ++i) {
        mem.copy(there, here, 4_KiB, agent::to_device);
        mem.wait(agent::compute, mem.record(agent::to_device));
        mem.launch(agent::compute, kernel([] {}));
      }
      return gpu.calls() - before;
    };
    cuda first{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}, gpu};
    cuda second{{.device = 1, .device_capacity = 64_KiB, .host_capacity = 64_KiB}, gpu};
    CHECK(calls_of(first) == 60);
    CHECK(calls_of(second) == 170);
    under_test::tested_session scope{gpu};  // as device_scope has it
    const backend::cuda_current_device here{scope, 1};
    CHECK(calls_of(second) == 90);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("what of the environment slows a backend down is told, and is no error", "[backend]")
{
  using neighbours = backend::cuda_environment::neighbours;
  const auto found = [](const char* connections, const char* loading, std::size_t streams, neighbours others = {}) {
    std::string all;
    for (const auto& each : backend::cuda_environment{connections, loading}.findings(streams, others))
      all += each + '\n';
    return all;
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK(found(nullptr, nullptr, 8).empty());
  CHECK(found("", "", 8).empty());
  CHECK(found("32", "EAGER", 8, {.streams = 24, .are_ranks = true}).empty());
  CHECK(found("32", nullptr, 8, {.streams = 25}).empty());  // no setting has more
  CHECK(found("8", "LAZY", 8).empty());
  CHECK(found("8", "DEFAULT", 8).empty());
  CHECK_THAT(found(nullptr, nullptr, 8, {.streams = 1}),
             ContainsSubstring("is not set, which means 8, and there are 9 streams, 8 of them of this backend"));
  CHECK_THAT(found("12", nullptr, 6, {.streams = 7}), ContainsSubstring("is 12, and there are 13 streams"));
  CHECK(found("13", nullptr, 6, {.streams = 7}).empty());
  CHECK_THAT(found("1", nullptr, 4), ContainsSubstring("is 1, and there are 4 streams: "));
  for (const char* const bad : {"0", "33", "-1", "8x", " 8", "many", "99999999999"})
    CHECK_THAT(found(bad, nullptr, 4), ContainsSubstring("no number from 1 to 32"));
  CHECK_THAT(found(nullptr, "eager", 4), ContainsSubstring("'eager'"));
  CHECK_THAT(found(nullptr, "eager", 4, {.are_ranks = true}), ContainsSubstring("'eager'"));
  CHECK_THAT(found(nullptr, "LAZY", 4, {.are_ranks = true}), ContainsSubstring("CUDA_MODULE_LOADING is LAZY: "));
  for (const char* const usual : {static_cast<const char*>(nullptr), "", "DEFAULT"})
    CHECK_THAT(found(nullptr, usual, 4, {.are_ranks = true}), ContainsSubstring("means LAZY from CUDA 12.2 on: "));

  REQUIRE(::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1) == 0);
  rig it;
  REQUIRE(::unsetenv("CUDA_DEVICE_MAX_CONNECTIONS") == 0);
  CHECK(it.mem().findings().empty());
  (void)it.mem().adopt();
  const auto all = it.mem().findings();  // as it was when the backend was made: the runtime read it then
  REQUIRE(all.size() == 1);
  CHECK_THAT(all[0], ContainsSubstring("is 4, and there are 5 streams: "));
  const auto with_others = it.mem().findings({.streams = 3, .are_ranks = true});
  REQUIRE(with_others.size() == 2);
  CHECK_THAT(with_others[0], ContainsSubstring("is 4, and there are 8 streams, 5 of them of this backend"));
  it.end();
}

TEST_CASE("streams beside compute go first, unless the options say otherwise", "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 2, .highest_priority = -3}};
  {
    const cuda_device_options options{.device = 1, .device_capacity = 1_MiB};
    const auto priorities = [&](std::optional<int> wanted) {
      auto chosen = options;
      chosen.copy_priority = wanted;
      cuda mem{chosen, gpu};
      const agent adopted = mem.adopt();
      std::array<int, 5> found{};
      for (const agent each : {agent::host, agent::compute, agent::to_device, agent::to_host, adopted})
        found[static_cast<std::size_t>(each)] = gpu.priority_of(mem.stream(each));
      return found;
    };
    CHECK(priorities({}) == std::array{0, 0, -3, -3, -3});
    CHECK(priorities(-1) == std::array{0, 0, -1, -1, -1});
    CHECK(priorities(0) == std::array{0, 0, 0, 0, 0});
    for (const int wrong : {1, -4, INT_MAX, INT_MIN}) {
      using Catch::Matchers::ContainsSubstring;
      CHECK_THROWS_AS(priorities(wrong), config_error);
      CHECK_THROWS_WITH(priorities(wrong), ContainsSubstring("copy_priority is " + std::to_string(wrong) +
                                                             ", and streams of this device have -3"));
    }
    gpu.fail_call_of("stream_priorities", gpu.calls("stream_priorities") + 1, 46);
    CHECK_THROWS_AS((cuda{options, gpu}), device_error);
  }
  under_test::check_clean(gpu);
}

TEST_CASE("a launch on another device pushes its context and pops it, and inside of a scope it does neither",
          "[backend]")
{
  const fake_cuda gpu{fake_cuda_options{.devices = 2}};
  {
    cuda it{{.device = 1, .device_capacity = 1_MiB}, gpu};
    const auto before = gpu.calls();
    it.launch(agent::compute, kernel([] {}));
    CHECK(gpu.calls() - before == 5);  // asks, pushes, forgets an error, asks for one, pops
    CHECK(gpu.calls("use_device") == 0);
    backend::cuda_session<fake_cuda> mine{gpu};
    const backend::cuda_current_device<fake_cuda> scope{mine, 1};
    const auto switches = gpu.switches();
    const auto calls = gpu.calls();
    it.launch(agent::compute, kernel([] {}));
    CHECK(gpu.switches() == switches);
    CHECK(gpu.calls() - calls == 3);
  }
  under_test::check_clean(gpu);
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
  const int device = GENERATE(0, 1);
  const bool on_slab = GENERATE(false, true);
  rig it{fake_cuda_options{.devices = 2, .when = fake_schedule::earliest}};
  std::optional<under_test::users_memory> its;
  cuda::memory_sources given;
  if (on_slab) {
    its.emplace(it.gpu, device);
    given = {.device = cuda::memory_source::slab(its->on_device(8'192), 8_KiB),
             .host = cuda::memory_source::slab(its->pinned(8'192), 8_KiB)};
    REQUIRE(it.gpu.use_device(0) == 0);
  }
  const bytes capacity = on_slab ? bytes{} : under_test::some;
  it.device.emplace(cuda_device_options{.device = device, .device_capacity = capacity, .host_capacity = capacity},
                    given, it.gpu);
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
  it.device.reset();
  its.reset();
  it.end();
}

}  // namespace cuda_device_test
