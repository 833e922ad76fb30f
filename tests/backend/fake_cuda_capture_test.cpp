// SPDX-License-Identifier: Apache-2.0
#include <support/fake_cuda.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda_rig.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fake_cuda_capture_test {

using namespace support;

namespace {

fake_executable_handle executable_of(const fake_rig& rig, fake_stream_handle origin)
{
  fake_graph_handle graph;
  fake_executable_handle executable;
  must(rig.api.end_capture(origin, graph));
  must(rig.api.instantiate(executable, graph));
  must(rig.api.destroy_graph(graph));  // an executable is a copy
  return executable;
}

void fork(const fake_rig& rig, fake_stream_handle from, fake_stream_handle to)
{
  must(rig.api.wait_event(to, rig.recorded(from)));
}

/// A rig whose stream `origin` captures, with another one in the capture and a third that is not.
struct capturing : fake_rig {
  capturing()
  {
    launch_kernel(outside, [] {});
    must(api.record_event(eager, outside));
    place = device(64, origin);
    host = pinned(64);
    must(api.begin_capture(origin));
    must(api.record_event(captured, origin));
    must(api.wait_event(forked, captured));
  }

  fake_stream_handle origin = stream();
  fake_stream_handle forked = stream();
  fake_stream_handle outside = stream();
  fake_event_handle eager = event();
  fake_event_handle captured = event();
  fake_event_handle never = event();
  std::byte* place = nullptr;
  std::byte* host = nullptr;
};

}  // namespace

TEST_CASE("a graph keeps the order of events and streams, and no other", "[backend]")
{
  const fake_rig rig;
  const auto one = rig.stream();
  const auto two = rig.stream();
  std::string ran;
  const auto kernel = [&ran](fake_stream_handle on, char name) { launch_kernel(on, [&ran, name] { ran += name; }); };
  must(rig.api.begin_capture(one));
  kernel(one, 'a');
  fork(rig, one, two);
  kernel(one, 'b');
  kernel(two, 'x');
  kernel(two, 'y');
  kernel(one, 'c');
  fork(rig, two, one);
  kernel(one, 'd');
  const auto executable = executable_of(rig, one);
  std::set<std::string> orders;
  for (int i = 0; i < 300; ++i) {
    ran.clear();
    must(rig.api.launch_graph(executable, two));
    must(rig.api.synchronize_stream(two));
    orders.insert(ran);
  }
  CHECK(orders == std::set<std::string>{"abcxyd", "abxcyd", "abxycd", "axbcyd", "axbycd", "axybcd"});
}

TEST_CASE("random work captured and launched again gives what it gives when it is done again", "[backend]")
{
  for (const auto when : {fake_schedule::random, fake_schedule::latest})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      CAPTURE(static_cast<int>(when), seed);
      const fake_rig rig{when, seed};
      const std::vector<fake_stream_handle> streams{rig.stream(), rig.stream(), rig.stream()};
      fake_program program{rig, streams};
      must(rig.api.begin_capture(streams[0]));
      fork(rig, streams[0], streams[1]);
      fork(rig, streams[0], streams[2]);
      program.enqueue(seed, 50);
      fork(rig, streams[1], streams[0]);
      fork(rig, streams[2], streams[0]);
      const auto executable = executable_of(rig, streams[0]);
      for (int i = 0; i < 5; ++i) {
        must(rig.api.launch_graph(executable, streams[0]));
        program.expect(seed, 50);
        REQUIRE(program.is_right());
      }
      REQUIRE(rig.api.faults().empty());
    }
}

TEST_CASE("a capture that keeps the rules ends well, with what is allowed in it", "[backend]")
{
  const capturing rig;
  must(rig.api.wait_event(rig.forked, rig.never));  // never recorded: nothing to wait for
  must(rig.api.copy(rig.host, rig.place, 64, rig.forked));
  must(rig.api.record_event(rig.captured, rig.forked));
  must(rig.api.wait_event(rig.origin, rig.captured));
  must(rig.api.copy(rig.host, rig.place, 32, rig.outside));  // other streams go on
  must(rig.api.record_event(rig.eager, rig.outside));
  CHECK(rig.api.destroy_stream(rig.stream()) == 0);
  must(rig.api.destroy_event(rig.event()));
  fake_graph_handle graph;
  must(rig.api.end_capture(rig.origin, graph));
  CHECK(graph != fake_graph_handle{});
  CHECK(rig.api.synchronize_event(rig.captured) == 907);  // still the captured record
  CHECK(rig.api.wait_event(rig.outside, rig.captured) == 907);
  must(rig.api.record_event(rig.captured, rig.origin));  // recorded anew: an event like others
  must(rig.api.synchronize_event(rig.captured));
  must(rig.api.synchronize_stream(rig.forked));
}

TEST_CASE("an idle fork needs no join", "[backend]")
{
  const capturing rig;
  must(rig.api.copy(rig.host, rig.place, 64, rig.origin));
  fake_graph_handle graph;
  CHECK(rig.api.end_capture(rig.origin, graph) == 0);
}

TEST_CASE("a broken rule of capture has its number, breaks the capture, and its end gives no graph", "[backend]")
{
  struct mistake {
    const char* what;
    int code;
    std::function<int(const capturing&)> make;
  };
  const std::vector<mistake> mistakes{
      {"wait for an event from outside", 905, [](const auto& it) { return it.api.wait_event(it.origin, it.eager); }},
      {"the same on a fork", 905, [](const auto& it) { return it.api.wait_event(it.forked, it.eager); }},
      {"wait for a captured event", 907, [](const auto& it) { return it.api.synchronize_event(it.captured); }},
      {"wait for any event", 900, [](const auto& it) { return it.api.synchronize_event(it.eager); }},
      {"wait for the stream", 900, [](const auto& it) { return it.api.synchronize_stream(it.origin); }},
      {"wait for a fork", 900, [](const auto& it) { return it.api.synchronize_stream(it.forked); }},
      {"wait for another stream", 900, [](const auto& it) { return it.api.synchronize_stream(it.outside); }},
      {"allocate", 900,
       [](const auto& it) {
         void* fresh = nullptr;
         return it.api.allocate_device(fresh, 64, it.pool, it.outside);
       }},
      {"free", 900, [](const auto& it) { return it.api.free_device(it.place, it.origin); }},
      {"pin", 900,
       [](const auto& it) {
         void* fresh = nullptr;
         return it.api.allocate_pinned(fresh, 64);
       }},
      {"unpin", 900, [](const auto& it) { return it.api.free_pinned(it.host); }},
      {"destroy a stream of it", 900, [](const auto& it) { return it.api.destroy_stream(it.forked); }},
      {"launch a graph into it", 900,
       [](const auto& it) {
         must(it.api.begin_capture(it.outside));
         const auto executable = executable_of(it, it.outside);
         return it.api.launch_graph(executable, it.forked);
       }},
      {"end it on a fork", 903,
       [](const auto& it) {
         fake_graph_handle graph;
         return it.api.end_capture(it.forked, graph);
       }},
      {"merge it with another", 902,
       [](const auto& it) {
         must(it.api.begin_capture(it.outside));
         must(it.api.record_event(it.eager, it.outside));
         return it.api.wait_event(it.origin, it.eager);
       }},
      {"wait for what another one captured", 905,
       [](const auto& it) {
         must(it.api.begin_capture(it.outside));
         must(it.api.record_event(it.eager, it.outside));
         fake_graph_handle graph;
         must(it.api.end_capture(it.outside, graph));
         return it.api.wait_event(it.origin, it.eager);
       }},
  };
  for (const auto& [what, code, make] : mistakes) {
    CAPTURE(what);
    const capturing rig;
    CHECK(make(rig) == code);
    CHECK(rig.api.copy(rig.host, rig.place, 64, rig.origin) == 901);
    CHECK(rig.api.record_event(rig.never, rig.origin) == 901);
    CHECK(rig.api.wait_event(rig.forked, rig.captured) == 901);
    launch_kernel(rig.forked, [] {});
    CHECK(rig.api.last_error() == 901);
    fake_graph_handle graph{};
    CHECK(rig.api.end_capture(rig.origin, graph) == 901);
    CHECK(graph == fake_graph_handle{});
    CHECK(rig.api.end_capture(rig.origin, graph) == 401);
    rig.api.end_capture(rig.outside, graph);                  // where the mistake began one there
    must(rig.api.copy(rig.host, rig.place, 64, rig.origin));  // its streams work again
    must(rig.api.synchronize_stream(rig.origin));
    must(rig.api.synchronize_stream(rig.forked));
    rig.api.finish();
    CHECK(rig.api.operations() == 2);
    CHECK(rig.api.live().device_allocations == 1);
    CHECK(rig.api.live().pinned_allocations == 1);
    CHECK(rig.api.faults().empty());
  }
}

TEST_CASE("a merge breaks both captures", "[backend]")
{
  const capturing rig;
  must(rig.api.begin_capture(rig.outside));
  must(rig.api.record_event(rig.eager, rig.outside));
  CHECK(rig.api.wait_event(rig.forked, rig.eager) == 902);
  fake_graph_handle graph;
  CHECK(rig.api.end_capture(rig.outside, graph) == 901);
  CHECK(rig.api.end_capture(rig.origin, graph) == 901);
}

TEST_CASE("a fork that did something has to be joined", "[backend]")
{
  const capturing rig;
  must(rig.api.copy(rig.host, rig.place, 32, rig.forked));
  fake_graph_handle graph;
  SECTION("it was not")
  {
    CHECK(rig.api.end_capture(rig.origin, graph) == 904);
  }
  SECTION("it was, and went on")
  {
    fork(rig, rig.forked, rig.origin);
    must(rig.api.copy(rig.host, rig.place, 32, rig.forked));
    CHECK(rig.api.end_capture(rig.origin, graph) == 904);
  }
  SECTION("it was, last")
  {
    must(rig.api.copy(rig.host + 32, rig.place, 32, rig.origin));
    fork(rig, rig.forked, rig.origin);
    CHECK(rig.api.end_capture(rig.origin, graph) == 0);
    return;
  }
  CHECK(graph == fake_graph_handle{});
  must(rig.api.synchronize_stream(rig.forked));
}

TEST_CASE("captures begin once and end in the thread that began them", "[backend]")
{
  const capturing rig;
  fake_graph_handle graph;
  CHECK(rig.api.begin_capture(rig.origin) == 401);
  CHECK(rig.api.begin_capture(rig.forked) == 401);
  CHECK(rig.api.end_capture(rig.outside, graph) == 401);
  int code = 0;
  int own = -1;
  std::thread{[&] {
    code = rig.api.end_capture(rig.origin, graph);
    own = rig.api.synchronize_stream(rig.outside);  // the mode is thread-local: other threads may wait
  }}.join();
  CHECK(code == 908);
  CHECK(own == 0);
  CHECK(rig.api.end_capture(rig.origin, graph) == 0);
}

TEST_CASE("memory that a graph names and that is freed is found when the graph runs", "[backend]")
{
  const fake_rig rig;
  const auto stream = rig.stream();
  std::byte* const place = rig.device(64, stream);
  must(rig.api.begin_capture(stream));
  must(rig.api.fill(place, 1, 64, stream));
  const auto executable = executable_of(rig, stream);
  must(rig.api.free_device(place, stream));
  must(rig.api.launch_graph(executable, stream));
  must(rig.api.synchronize_stream(stream));
  CHECK(rig.api.faults().size() == 1);
  CHECK(all_are(place, 64, 0xFF));
}

}  // namespace fake_cuda_capture_test
