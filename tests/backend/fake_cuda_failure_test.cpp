// SPDX-License-Identifier: Apache-2.0
#include <support/fake_cuda.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda_rig.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace fake_cuda_failure_test {

using namespace support;

namespace {

/// Every function of the Api at least once. Where one fails, all work is waited for, since the failed call may have
/// been the wait itself.
std::vector<int> codes_of_script(const fake_cuda& api)
{
  std::vector<int> codes;
  const auto note = [&](int code) {
    codes.push_back(code);
    if (code != 0) api.finish();
  };
  int number = 0;
  std::size_t free = 0;
  fake_pool_handle pool;
  fake_stream_handle one;
  fake_stream_handle two;
  fake_event_handle event;
  fake_graph_handle graph;
  fake_executable_handle executable;
  void* place = nullptr;
  void* host = nullptr;
  note(api.count_devices(number));
  note(api.current_device(number));
  note(api.use_device(0));
  fake_context_handle context;
  note(api.open_context(context, 0));
  note(api.push_context(context));
  note(api.pop_context(context));
  note(api.stream_priorities(number, number));
  note(api.place_of(&number, number, number));
  note(api.memory_info(free, free));
  note(api.create_pool(pool, 0, 0));
  note(api.pool_memory(pool, free));
  note(api.create_stream(one));
  note(api.create_stream(two));
  note(api.create_event(event));
  note(api.allocate_device(place, 64, pool, one));
  note(api.allocate_pinned(host, 64));
  note(api.fill(place, 1, 64, one));
  note(api.record_event(event, one));
  note(api.wait_event(two, event));
  note(api.copy(host, place, 64, two));
  note(api.synchronize_event(event));
  bool is_over = false;
  note(api.query_event(event, is_over));
  const std::size_t size = 32;
  note(api.copy_batch(&host, &place, &size, 1, two));
  note(api.launch_host(
      two, [](void*) {}, nullptr));
  note(api.last_error());
  note(api.begin_capture(two));
  note(api.copy(host, place, 64, two));
  note(api.end_capture(two, graph));
  note(api.instantiate(executable, graph));
  note(api.launch_graph(executable, two));
  note(api.destroy_graph(graph));
  note(api.synchronize_stream(two));
  note(api.destroy_executable(executable));
  note(api.free_pinned(host));
  note(api.free_device(place, one));
  note(api.destroy_event(event));
  note(api.destroy_stream(two));
  note(api.destroy_stream(one));
  note(api.destroy_pool(pool));
  return codes;
}

constexpr std::uint64_t calls_of_script = 39;

}  // namespace

TEST_CASE("codes that end a process are those of the CUDA manual and all that nobody knows", "[backend]")
{
  for (const int code : {214, 220, 226, 700, 702, 709, 710, 714, 719, 721, 810, 909, 911, 999, 10'000, 777, 1'000, -1})
    CHECK(is_sticky_fake_code(code));
  for (const int code : {1, 2, 3, 4, 35, 98, 100, 101, 400, 701, 720, 800, 900, 901, 907, 910, 912})
    CHECK_FALSE(is_sticky_fake_code(code));
  CHECK(std::string{fake_cuda::name_of(719)} == "cudaErrorLaunchFailure");
  CHECK(std::string{fake_cuda::name_of(0)} == "cudaSuccess");
  CHECK(std::string{fake_cuda::name_of(777)} == "unrecognized error code");
}

TEST_CASE("every call of every function is counted, and none else", "[backend]")
{
  const fake_cuda api;
  const auto codes = codes_of_script(api);
  CHECK(codes.size() == calls_of_script);
  CHECK(std::ranges::count(codes, 0) == calls_of_script);
  CHECK(api.calls() == calls_of_script);
  std::uint64_t sum = 0;
  for (const auto name : fake_call_names) {
    if (name != "launch_kernel") CHECK(api.calls(name) >= 1);
    sum += api.calls(name);
  }
  CHECK(sum == calls_of_script);
  CHECK(api.calls("copy") == 2);
  CHECK(api.call_name(1) == "count_devices");
  CHECK(api.call_name(calls_of_script) == "destroy_pool");
  CHECK(api.synchronizations() == 2);
  CHECK(api.allocations() == 6);
  CHECK(api.operations() == 5);
  CHECK(api.live() == fake_live{});
  CHECK(api.faults().empty());
  CHECK(api.calls_after_sticky() == 0);
  CHECK_THROWS(api.calls("no_such_function"));
}

TEST_CASE("a context is popped also where the call says that the device is lost", "[backend]")
{
  const bool is_first = GENERATE(false, true);  // the pop itself says it, or another call before
  const fake_cuda api{fake_cuda_options{.devices = 2}};
  fake_context_handle context;
  int device = -1;
  REQUIRE(api.open_context(context, 1) == 0);
  REQUIRE(api.push_context(context) == 0);
  CHECK(api.device_of_thread() == 1);
  api.fail_call_of(is_first ? "pop_context" : "current_device", 1, 700);
  if (!is_first) CHECK(api.current_device(device) == 700);
  CHECK(api.pop_context(context) == 700);
  CHECK(api.device_of_thread() == 0);
  CHECK(api.calls_after_sticky() == 0);
  CHECK(api.current_device(device) == 700);
  CHECK(api.calls_after_sticky() == 1);
}

TEST_CASE("a call may be made and tell of an error of earlier work", "[backend]")
{
  const fake_cuda api;
  api.fail_after("create_event", 1, 46);
  fake_event_handle event;
  CHECK(api.create_event(event) == 46);
  CHECK(api.live().events == 1);
  CHECK(api.last_error() == 46);
  CHECK(api.destroy_event(event) == 0);
}

TEST_CASE("each call can fail with each code, and a sticky one is the answer ever after", "[backend]")
{
  for (std::uint64_t k = 1; k <= calls_of_script; ++k)
    for (const int code : {2, 400, 719, 999}) {
      CAPTURE(k, code);
      const fake_cuda api;
      api.fail_call(k, code);
      const auto codes = codes_of_script(api);
      REQUIRE(codes.size() == calls_of_script);
      for (std::uint64_t i = 1; i < k; ++i) REQUIRE(codes[i - 1] == 0);
      REQUIRE(codes[k - 1] == code);
      const bool is_sticky = code >= 700;
      REQUIRE(api.lost() == (is_sticky ? code : 0));
      if (is_sticky) REQUIRE(std::ranges::count(codes, code) == static_cast<std::ptrdiff_t>(calls_of_script - k + 1));
      const std::uint64_t pops_later = k < 6 ? 1 : 0;  // which count as none
      REQUIRE(api.calls_after_sticky() == (is_sticky ? calls_of_script - k - pops_later : 0));
      REQUIRE(api.calls() == calls_of_script);
    }
}

TEST_CASE("a call that fails does nothing", "[backend]")
{
  const auto before = [](const std::string& name) {  // the first call of it fails with an error that passes
    const fake_cuda api;
    api.fail_call_of(name, 1, 2);
    const auto codes = codes_of_script(api);
    return std::pair{api.live(), api.operations()};
  };
  CHECK(before("use_device") == std::pair{fake_live{}, std::uint64_t{5}});
  CHECK(before("fill").second == 4);
  CHECK(before("copy").second == 4);
  CHECK(before("copy_batch").second == 4);
  CHECK(before("launch_host").second == 4);
  CHECK(before("launch_graph").second == 4);
  CHECK(before("begin_capture").second == 5);  // the copy runs at once instead of in the graph
  CHECK(before("allocate_pinned") == std::pair{fake_live{}, std::uint64_t{2}});  // no copy has a target
  CHECK(before("create_pool").first == fake_live{});
  CHECK(before("free_pinned").first == fake_live{.pinned_allocations = 1});
  CHECK(before("free_device").first == fake_live{.device_allocations = 1});
  CHECK(before("destroy_event").first == fake_live{.events = 1});
  CHECK(before("destroy_stream").first == fake_live{.streams = 1});
  CHECK(before("destroy_pool").first == fake_live{.pools = 1});
  CHECK(before("destroy_graph").first == fake_live{.graphs = 1});
  CHECK(before("destroy_executable").first == fake_live{.executables = 1});
}

TEST_CASE("a persistent failure goes on, and unloading answers 4 to everything", "[backend]")
{
  const fake_cuda api;
  api.fail_call(36, 701, true);
  auto codes = codes_of_script(api);
  CHECK(std::ranges::count(codes, 701) == 4);
  CHECK(api.lost() == 0);
  api.unload();
  codes = codes_of_script(api);
  CHECK(std::ranges::count(codes, 4) == calls_of_script);
  const fake_cuda other;
  other.fail_call_of("copy", 2, 98);
  other.fail_call_of("create_stream", 1, 3, true);
  codes = codes_of_script(other);
  CHECK(std::ranges::count(codes, 3) == 2);
}

TEST_CASE("a fault of each operation is told later, and nothing runs from it on", "[backend]")
{
  constexpr std::uint64_t total = 12;
  for (const auto when : {fake_schedule::random, fake_schedule::latest})
    for (std::uint64_t k = 1; k <= total; ++k) {
      CAPTURE(static_cast<int>(when), k);
      const fake_rig rig{when, k};
      const std::array streams{rig.stream(), rig.stream()};
      const auto idle = rig.stream();
      std::array<int, 2> ran{};
      rig.api.fail_operation(k, 700);
      for (std::uint64_t i = 0; i < total; ++i) rig.api.launch_kernel(streams[i % 2], [&mine = ran[i % 2]] { ++mine; });
      rig.api.finish();
      CHECK(static_cast<std::uint64_t>(ran[0] + ran[1]) == k - 1);
      CHECK(rig.api.lost() == 700);
      CHECK(rig.api.calls_after_sticky() == 0);  // nobody was told so far
      int number = 0;
      CHECK(rig.api.synchronize_stream(idle) == 700);
      CHECK(rig.api.count_devices(number) == 700);
      CHECK(rig.api.last_error() == 700);
      CHECK(rig.api.last_error() == 700);
      CHECK(rig.api.calls_after_sticky() == 3);
      rig.api.launch_kernel(streams[0], [&ran] { ++ran[0]; });
      rig.api.finish();
      CHECK(static_cast<std::uint64_t>(ran[0] + ran[1]) == k - 1);
    }
}

TEST_CASE("a fault wakes callers and streams that wait", "[backend]")
{
  const fake_rig rig;
  const auto one = rig.stream();
  const auto two = rig.stream();
  int ran = 0;
  std::promise<void> gate;
  launch_kernel(one, [&gate] { gate.get_future().wait(); });
  rig.api.fail_operation(2, 719);
  launch_kernel(one, [&ran] { ++ran; });
  must(rig.api.wait_event(two, rig.recorded(one)));
  launch_kernel(two, [&ran] { ++ran; });
  int code = 0;
  std::thread waiting{[&] { code = rig.api.synchronize_stream(two); }};
  gate.set_value();
  waiting.join();
  CHECK(code == 719);
  CHECK(ran == 0);
}

TEST_CASE("a fault inside of a graph ends it there", "[backend]")
{
  for (std::uint64_t k = 1; k <= 6; ++k) {
    const fake_rig rig;
    const auto stream = rig.stream();
    std::uint64_t ran = 0;
    must(rig.api.begin_capture(stream));
    for (int i = 0; i < 3; ++i) launch_kernel(stream, [&ran] { ++ran; });
    fake_graph_handle graph;
    fake_executable_handle executable;
    must(rig.api.end_capture(stream, graph));
    must(rig.api.instantiate(executable, graph));
    rig.api.fail_operation(k, 715);
    must(rig.api.launch_graph(executable, stream));
    rig.api.launch_graph(executable, stream);  // refused where the fault was quicker
    CHECK(rig.api.synchronize_stream(stream) == 715);
    CHECK(ran == k - 1);
  }
}

TEST_CASE("who is told that the device is lost finds that nothing is written any more", "[backend]")
{
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const fake_rig rig{fake_cuda_options{.seed = seed, .longest_delay = 200}};
    const auto stream = rig.stream();
    std::byte* const place = rig.device(1'000, stream);
    must(rig.api.fill(place, 2, 1'000, stream));
    must(rig.api.synchronize_stream(stream));
    std::vector<std::byte> pageable(1'000);
    std::promise<void> started;
    rig.api.on_half_way([&](const fake_range&) {
      started.set_value();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
    });
    must(rig.api.copy(pageable.data(), place, 1'000, stream));
    started.get_future().wait();
    rig.api.fail_call(rig.api.calls() + 1, 719);
    CHECK(rig.api.destroy_stream(stream) == 719);
    CHECK(all_are(pageable.data(), 1'000, 2));  // what had started is done
  }
}

TEST_CASE("the refusal of a kernel is told by last_error alone, and it does not run", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  int ran = 0;
  rig.api.fail_call_of("launch_kernel", 2, 701);
  rig.api.fail_call_of("launch_kernel", 4, 719);
  const auto before = rig.api.calls();
  for (int i = 0; i < 3; ++i) launch_kernel(stream, [&ran] { ++ran; });
  must(rig.api.synchronize_stream(stream));
  CHECK(ran == 2);
  CHECK(rig.api.last_error() == 701);
  CHECK(rig.api.last_error() == 0);
  CHECK(rig.api.calls() == before + 3);
  CHECK(rig.api.calls("launch_kernel") == 3);
  launch_kernel(stream, [&ran] { ++ran; });
  CHECK(rig.api.calls_after_sticky() == 0);
  CHECK(rig.api.last_error() == 719);
  CHECK(rig.api.last_error() == 719);
  CHECK(rig.api.calls_after_sticky() == 1);
  CHECK(ran == 2);
  CHECK_THROWS(launch_kernel({}, [] {}));
}

}  // namespace fake_cuda_failure_test
