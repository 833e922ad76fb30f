// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_streams.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace cuda_order_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::fault_of;
using under_test::tested_session;

namespace {

struct two_streams {
  explicit two_streams(support::fake_schedule when = support::fake_schedule::latest)
      : gpu{support::fake_cuda_options{.when = when}}, calls{gpu}, order{calls, peers}
  {
    REQUIRE(gpu.create_stream(first) == 0);
    REQUIRE(gpu.create_stream(second) == 0);
    REQUIRE(gpu.create_event(point) == 0);
  }
  void work(support::fake_stream_handle on, int value)
  {
    gpu.launch_kernel(on, [this, value] { number = number * 10 + value; });
  }

  int number = 0;
  fake_cuda gpu;
  tested_session calls;
  backend::peer_groups groups;
  backend::peer_work<fake_cuda> peers{calls, groups};
  backend::cuda_order<fake_cuda> order;
  support::fake_stream_handle first, second;
  support::fake_event_handle point;
};

}  // namespace

TEST_CASE("an event orders streams and the calling thread", "[backend]")
{
  two_streams it;
  it.work(it.first, 1);
  CHECK(it.order.record(it.point, it.first));
  CHECK(it.order.follow(it.second, it.point));
  it.work(it.second, 2);
  CHECK(it.order.record(it.point, it.second));
  CHECK(it.order.finish(it.point, it.second));
  CHECK(it.number == 12);
  CHECK((it.calls.synchronizations() == 1 && it.calls.recoveries() == 0));
}

TEST_CASE("where an event cannot be recorded the calling thread has waited for the stream", "[backend]")
{
  two_streams it;
  it.work(it.first, 1);
  it.gpu.fail_call_of("record_event", 1, 1);
  CHECK_FALSE(it.order.record(it.point, it.first));
  CHECK(it.number == 1);
  CHECK((it.calls.synchronizations() == 1 && it.calls.recoveries() == 1));
  CHECK_FALSE(it.calls.is_lost());
}

TEST_CASE("where a stream cannot be made to wait the caller is told", "[backend]")
{
  two_streams it;
  it.work(it.first, 1);
  CHECK(it.order.record(it.point, it.first));
  it.gpu.fail_call_of("wait_event", 1, 2);
  CHECK_FALSE(it.order.follow(it.second, it.point));
  CHECK(it.calls.recoveries() == 1);
  it.gpu.fail_call_of("synchronize_event", 1, 2);
  CHECK_FALSE(it.order.finish(it.point, it.first));
  CHECK(it.number == 1);
  CHECK((it.calls.synchronizations() == 2 && it.calls.recoveries() == 2));
}

TEST_CASE("where waiting fails as well, order is lost, and with it the session", "[backend]")
{
  two_streams it;
  it.gpu.fail_call_of("record_event", 1, 1);
  it.gpu.fail_call_of("synchronize_stream", 1, 46);
  CHECK(fault_of([&] { (void)it.order.record(it.point, it.first); }).number == 46);
  CHECK(it.calls.is_lost());
  CHECK(it.calls.may_call());
  two_streams other;
  other.gpu.fail_call_of("synchronize_event", 1, 1);
  other.gpu.fail_call_of("synchronize_stream", 1, 1);
  CHECK(fault_of([&] { (void)other.order.finish(other.point, other.first); }).number == 1);
  CHECK(other.calls.is_lost());
}

TEST_CASE("while capturing a call is made a second time, and after an error that ends CUDA none is", "[backend]")
{
  two_streams it;
  it.order.capturing(true);
  it.gpu.fail_call_of("record_event", 1, 1);
  CHECK(it.order.record(it.point, it.first));
  CHECK(it.calls.recoveries() == 1);
  for (const std::uint64_t call : {3U, 4U}) it.gpu.fail_call_of("record_event", call, 1);
  for (const std::uint64_t call : {1U, 2U}) it.gpu.fail_call_of("wait_event", call, 1);
  CHECK_FALSE(fault_of([&] { (void)it.order.record(it.point, it.first); }).is_sticky);
  CHECK_FALSE(fault_of([&] { (void)it.order.follow(it.second, it.point); }).is_sticky);
  CHECK((it.calls.recoveries() == 3 && it.calls.synchronizations() == 0 && !it.calls.is_lost()));
  it.order.capturing(false);
  it.gpu.fail_call_of("wait_event", 3, 700);
  CHECK(fault_of([&] { (void)it.order.follow(it.second, it.point); }).number == 700);
  CHECK(fault_of([&] { (void)it.order.record(it.point, it.first); }).number == 700);
  CHECK(it.calls.recoveries() == 3);
  CHECK(it.gpu.calls_after_sticky() == 0);
}

}  // namespace cuda_order_test

namespace cuda_capture_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::tested_session;

namespace {

struct forked {
  forked()
      : gpu{support::fake_cuda_options{.when = support::fake_schedule::latest}},
        calls{gpu},
        order{calls, peers},
        capture{calls, order}
  {
    REQUIRE(gpu.create_stream(origin) == 0);
    REQUIRE(gpu.create_stream(side) == 0);
    REQUIRE(gpu.create_event(edge) == 0);
  }
  ~forked()
  {
    CHECK(gpu.destroy_event(edge) == 0);
    CHECK(gpu.destroy_stream(side) == 0);
    CHECK(gpu.destroy_stream(origin) == 0);
    under_test::check_clean(gpu);
  }
  void kernel(support::fake_stream_handle on, int value)
  {
    gpu.launch_kernel(on, [this, value] { ran.push_back(value); });
  }

  std::vector<int> ran;
  fake_cuda gpu;
  tested_session calls;
  backend::peer_groups groups;
  backend::peer_work<fake_cuda> peers{calls, groups};
  backend::cuda_order<fake_cuda> order;
  backend::cuda_capture<fake_cuda> capture;
  support::fake_stream_handle origin, side;
  support::fake_event_handle edge;
  support::fake_graph_handle graph;
};

}  // namespace

TEST_CASE("what fails in passing while capturing is tried again", "[backend]")
{
  forked it;
  for (const char* const function : {"record_event", "wait_event", "end_capture"}) it.gpu.fail_call_of(function, 1, 1);
  it.capture.begin(it.origin);
  CHECK(it.capture.connect(it.origin, it.edge, it.side));
  it.kernel(it.side, 1);
  CHECK(it.capture.connect(it.side, it.edge, it.origin));
  CHECK(it.capture.end(it.graph));
  CHECK(it.gpu.destroy_graph(it.graph) == 0);
  CHECK_FALSE(it.calls.is_lost());
}

TEST_CASE("leaving a capture drops its work, whatever state it is in", "[backend]")
{
  forked it;
  it.capture.leave();
  it.capture.begin(it.origin);
  it.kernel(it.origin, 1);
  it.capture.leave();  // whole
  it.capture.begin(it.origin);
  CHECK(it.capture.connect(it.origin, it.edge, it.side));
  it.kernel(it.side, 2);
  it.capture.leave();  // not joined
  it.capture.begin(it.origin);
  CHECK(it.gpu.synchronize_stream(it.origin) == 900);
  CHECK_FALSE(it.capture.connect(it.origin, it.edge, it.side));
  it.capture.leave();  // invalid
  CHECK_FALSE(it.capture.is_on());
  CHECK_FALSE(it.calls.is_lost());
  it.kernel(it.origin, 3);
  it.kernel(it.side, 4);
  CHECK((it.gpu.synchronize_stream(it.origin) == 0 && it.gpu.synchronize_stream(it.side) == 0));
  CHECK(it.ran == std::vector{3, 4});
}

TEST_CASE("a capture that cannot be left loses the session", "[backend]")
{
  forked it;
  it.capture.begin(it.origin);
  for (std::uint64_t i = 1; i <= 2; ++i) it.gpu.fail_call_of("end_capture", i, 1);
  it.capture.leave();
  CHECK(it.calls.is_lost());
  CHECK(it.gpu.end_capture(it.origin, it.graph) == 0);
  CHECK(it.gpu.destroy_graph(it.graph) == 0);
}

}  // namespace cuda_capture_test

namespace cuda_tasks_test {

using namespace chunkmem;
using backend::cuda_tasks;
using backend::inline_task;

TEST_CASE("captures are let go of when a task has run, or was taken back", "[backend]")
{
  cuda_tasks tasks;
  const auto kept = std::make_shared<int>(3);
  void* const slot = tasks.put(inline_task{[kept] { *kept = 4; }});
  tasks.keep();
  CHECK(kept.use_count() == 2);
  cuda_tasks::run(slot);
  CHECK(*kept == 4);
  CHECK(kept.use_count() == 1);
  (void)tasks.put(inline_task{[kept] { *kept = 5; }});
  CHECK(kept.use_count() == 2);
  tasks.take_back();
  CHECK(kept.use_count() == 1);
  CHECK(*kept == 4);
  CHECK(tasks.given() == 1);
}

TEST_CASE("a task that a lost device may still run stays where it is", "[backend]")
{
  int ran = 0;
  void* late = nullptr;
  for (int lost = 0; lost < 3; ++lost) {
    cuda_tasks tasks;
    // callables that never run are no leak
    late = tasks.put(inline_task{[&ran, kept = std::make_shared<int>(1)] { ran += *kept; }});
    tasks.keep();
  }
  cuda_tasks::run(late);
  CHECK(ran == 1);
}

}  // namespace cuda_tasks_test

namespace cuda_lane_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::tested_session;
using tested_lane = backend::cuda_lane<fake_cuda>;

TEST_CASE("the latest value of an entry is never below the one asked for", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  tested_lane one{it};
  for (const std::uint64_t given : {1u, 255u, 256u, 257u, 1'000u}) {
    one.given = given;
    for (std::uint64_t value = 1; value <= given; ++value) {
      const std::uint64_t latest = one.latest(value);
      REQUIRE(latest >= value);
      REQUIRE(latest <= given);
      REQUIRE(latest + tested_lane::ring > given);
      REQUIRE(one.point(latest) == one.point(value));
    }
  }
  one.finished(7);
  one.finished(3);
  CHECK(one.done == 7);
}

TEST_CASE("a lane that cannot be finished building leaves nothing", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call_of("create_event", 100, 2);
  CHECK_THROWS_AS(tested_lane{it}, device_error);
  under_test::check_clean(gpu);
  support::fake_stream_handle mine;
  REQUIRE(gpu.create_stream(mine) == 0);
  {
    const tested_lane foreign{it, mine};
    CHECK(foreign.stream() == mine);
  }
  CHECK(gpu.live().streams == 1);
  CHECK(gpu.live().events == 0);
}

}  // namespace cuda_lane_test

namespace cuda_streams_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::fault_of;
using under_test::tested_session;
using tested_streams = backend::cuda_streams<fake_cuda>;

namespace {

/// Work runs only when a caller waits for it, so a missing order gives a wrong number every time.
struct lazy_gpu {
  explicit lazy_gpu(support::fake_schedule when = support::fake_schedule::latest)
      : gpu{support::fake_cuda_options{.when = when}}, calls{gpu}
  {
    all.emplace(calls, groups);
  }
  ~lazy_gpu()
  {
    CHECK(all->finish_all());
    all.reset();
    under_test::check_clean(gpu);
  }

  void kernel(agent stream, int value)
  {
    gpu.launch_kernel(all->stream(stream), [this, value] { order.push_back(value); });
  }

  std::vector<int> order;
  fake_cuda gpu;
  tested_session calls;
  backend::peer_groups groups;
  std::optional<tested_streams> all;
};

}  // namespace

TEST_CASE("a wait for what is known to be over makes no call", "[backend]")
{
  lazy_gpu it;
  it.kernel(agent::compute, 1);
  const event first = it.all->record(agent::compute);
  const event second = it.all->record(agent::compute);
  it.all->wait(agent::host, first);
  CHECK(it.order == std::vector{1});
  const std::uint64_t calls = it.calls.calls();
  it.all->wait(agent::host, first);
  it.all->wait(agent::to_host, first);
  it.all->wait(agent::compute, second);
  it.all->wait(agent::compute, it.all->record(agent::host));
  it.all->wait(agent::to_host, {.value = 0, .source = agent::compute});
  CHECK(it.calls.calls() == calls);
  it.all->wait(agent::to_host, second);
  CHECK(it.calls.calls() == calls + 1);
  CHECK(it.calls.synchronizations() == 1);
}

TEST_CASE("an event is reached where a wait of the calling thread would end at once", "[backend]")
{
  lazy_gpu it{support::fake_schedule::earliest};
  std::mutex gate;
  std::unique_lock closed{gate};
  it.gpu.launch_kernel(it.all->stream(agent::compute), [&gate] { const std::lock_guard through{gate}; });
  const event early = it.all->record(agent::to_host);
  const event late = it.all->record(agent::compute);
  CHECK(it.all->is_reached(it.all->record(agent::host)));
  while (!it.all->is_reached(early)) std::this_thread::yield();
  CHECK_FALSE(it.all->is_reached(late));
  CHECK(it.calls.synchronizations() == 0);
  closed.unlock();
  while (!it.all->is_reached(late)) std::this_thread::yield();
  it.all->wait(agent::host, late);
  const std::uint64_t calls = it.calls.calls();
  CHECK(it.all->is_reached(late));  // known, without a call
  CHECK(it.calls.calls() == calls);
  CHECK_THROWS_AS(it.all->is_reached({.value = 9, .source = agent::compute}), usage_error);
}

TEST_CASE("events stay good when the ring has come round", "[backend]")
{
  lazy_gpu it;
  std::vector<event> events;
  for (int i = 0; i < 1'000; ++i) {
    it.kernel(agent::compute, i);
    events.push_back(it.all->record(agent::compute));
  }
  it.all->wait(agent::to_host, events[3]);  // 744 values ago: waits for a later one
  it.kernel(agent::to_host, 5'000);
  it.all->wait(agent::host, it.all->record(agent::to_host));
  REQUIRE(it.order.size() >= 5);
  CHECK(it.order.back() == 5'000);
  CHECK(it.order.size() <= 1'001);
  it.all->wait(agent::host, events[999]);
  CHECK(it.order.size() == 1'001);
  const std::uint64_t calls = it.calls.calls();
  for (const event point : events) it.all->wait(agent::host, point);
  CHECK(it.calls.calls() == calls);
  CHECK_THROWS_AS(it.all->wait(agent::host, {.value = 1'001, .source = agent::compute}), usage_error);
}

TEST_CASE("waiting for an old event of the ring makes all known that its entry stands for", "[backend]")
{
  lazy_gpu it;
  event first;
  for (int i = 0; i < 300; ++i) {
    it.kernel(agent::to_device, i);
    const event point = it.all->record(agent::to_device);
    if (i == 9) first = point;
  }
  it.all->wait(agent::host, first);  // value 10 shares its entry with 266
  CHECK(it.order.size() == 266);
  const std::uint64_t calls = it.calls.calls();
  it.all->wait(agent::host, {.value = 266, .source = agent::to_device});
  it.all->wait(agent::to_host, {.value = 200, .source = agent::to_device});
  CHECK(it.calls.calls() == calls);
}

TEST_CASE("a failed record or wait is made up for by waiting, and the order holds", "[backend]")
{
  for (const char* const function : {"record_event", "wait_event", "synchronize_event"}) {
    CAPTURE(function);
    lazy_gpu it;
    it.gpu.fail_call_of(function, 1, 1, true);
    it.kernel(agent::compute, 1);
    it.all->wait(agent::to_host, it.all->record(agent::compute));
    it.kernel(agent::to_host, 2);
    it.all->wait(agent::compute, it.all->record(agent::to_host));
    it.kernel(agent::compute, 3);
    it.all->wait(agent::host, it.all->record(agent::compute));
    CHECK(it.order == std::vector{1, 2, 3});
    CHECK(it.calls.recoveries() > 0);
    CHECK_FALSE(it.calls.is_lost());
  }
}

TEST_CASE("a callable on a stream is slowed down where 256 are queued, and none is lost", "[backend]")
{
  lazy_gpu it{GENERATE(support::fake_schedule::latest, support::fake_schedule::random)};
  int ran = 0;
  for (int i = 0; i < 2'000; ++i)
    it.all->enqueue(agent::to_host, backend::inline_task{[&ran, i] { ran += static_cast<int>(ran == i); }});
  it.all->wait(agent::host, it.all->record(agent::to_host));
  CHECK(ran == 2'000);
  if (it.gpu.calls("synchronize_event") > 1) CHECK(it.all->throttled() >= 1);
  const std::uint64_t part = backend::cuda_tasks::part;
  CHECK(it.all->throttled() <= 2'000 / part);
}

TEST_CASE("under the latest schedule each part of the queue is waited for once", "[backend]")
{
  lazy_gpu it;
  for (int i = 0; i < 256 + 128; ++i) it.all->enqueue(agent::compute, backend::inline_task{[] {}});
  CHECK(it.all->throttled() == 2);
  CHECK(it.calls.synchronizations() == 2);
}

TEST_CASE("a launch of a callable that is refused leaves the queue as it was", "[backend]")
{
  lazy_gpu it;
  it.gpu.fail_call_of("launch_host", 3, 1);
  std::vector<int> ran;
  for (int i = 0; i < 5; ++i) {
    const auto captured = std::make_shared<int>(i);
    const auto enqueue = [&] {
      it.all->enqueue(agent::compute, backend::inline_task{[&ran, captured] { ran.push_back(*captured); }});
    };
    if (i == 2) {
      CHECK(fault_of(enqueue).number == 1);
      CHECK(captured.use_count() == 1);
    } else {
      CHECK_NOTHROW(enqueue());
    }
  }
  it.all->wait(agent::host, it.all->record(agent::compute));
  CHECK(ran == std::vector{0, 1, 3, 4});
}

TEST_CASE("a stream of the caller is probed before it is taken", "[backend]")
{
  lazy_gpu it;
  support::fake_stream_handle mine;
  REQUIRE(it.gpu.create_stream(mine) == 0);
  CHECK(it.all->adopt(&mine) == static_cast<agent>(4));
  CHECK(it.all->stream(static_cast<agent>(4)) == mine);
  support::fake_stream_handle dead;
  REQUIRE(it.gpu.create_stream(dead) == 0);
  REQUIRE(it.gpu.destroy_stream(dead) == 0);
  const auto live = it.gpu.live();
  CHECK(fault_of([&] { (void)it.all->adopt(&dead); }).number == 400);
  CHECK(it.gpu.live() == live);
  CHECK(it.all->agents() == 5);
  it.kernel(static_cast<agent>(4), 1);
  it.all->wait(agent::to_host, it.all->record(static_cast<agent>(4)));
  it.kernel(agent::to_host, 2);
  it.all->wait(agent::host, it.all->record(agent::to_host));
  CHECK(it.order == std::vector{1, 2});
  REQUIRE(it.all->finish_all());
  it.all.reset();
  CHECK(it.gpu.live().streams == 1);
  CHECK(it.gpu.destroy_stream(mine) == 0);
  it.all.emplace(it.calls, it.groups);
}

TEST_CASE("a captured graph runs after everything before it and before everything after it", "[backend]")
{
  lazy_gpu it;
  support::fake_executable_handle executable;
  it.kernel(agent::to_host, 1);
  it.all->begin_capture();
  it.kernel(agent::to_device, 2);
  it.all->wait(agent::to_host, it.all->record(agent::to_device));
  it.kernel(agent::to_host, 3);
  auto graph = it.all->end_capture();
  REQUIRE(it.gpu.instantiate(executable, graph) == 0);
  REQUIRE(it.gpu.destroy_graph(graph) == 0);
  it.kernel(agent::to_device, 4);
  it.all->launch(executable);
  it.kernel(agent::to_host, 5);
  it.all->wait(agent::host, it.all->record(agent::to_host));
  CHECK(it.order == std::vector{1, 4, 2, 3, 5});
  CHECK(it.gpu.destroy_executable(executable) == 0);
}

TEST_CASE("events of a capture are reached with the graph, and not before", "[backend]")
{
  lazy_gpu it;
  const event old = it.all->record(agent::compute);
  it.all->begin_capture();
  it.kernel(agent::compute, 1);
  const event inside = it.all->record(agent::compute);
  CHECK_NOTHROW(it.all->wait(agent::to_host, old));
  CHECK_NOTHROW(it.all->wait(agent::to_host, inside));
  CHECK_THROWS_AS(it.all->wait(agent::host, inside), usage_error);
  CHECK_THROWS_AS(it.all->wait(agent::host, old), usage_error);
  CHECK_THROWS_AS(it.all->begin_capture(), usage_error);
  CHECK_THROWS_AS(it.all->adopt(nullptr), usage_error);
  const auto graph = it.all->end_capture();
  CHECK_THROWS_AS(it.all->wait(agent::host, inside), usage_error);
  CHECK_THROWS_AS(it.all->wait(agent::to_device, inside), usage_error);
  CHECK_NOTHROW(it.all->wait(agent::host, old));
  support::fake_executable_handle executable;
  REQUIRE(it.gpu.instantiate(executable, graph) == 0);
  it.all->launch(executable);
  const std::uint64_t calls = it.calls.calls();
  it.all->wait(agent::to_device, inside);
  CHECK(it.calls.calls() == calls);
  it.all->wait(agent::host, inside);
  CHECK(it.order == std::vector{1});
  CHECK(it.calls.calls() == calls + 1);
  CHECK(it.gpu.destroy_executable(executable) == 0);
  CHECK(it.gpu.destroy_graph(graph) == 0);
}

TEST_CASE("an agent adopted after a graph was launched follows it", "[backend]")
{
  lazy_gpu it;
  it.all->begin_capture();
  it.kernel(agent::compute, 1);
  const event inside = it.all->record(agent::compute);
  const auto graph = it.all->end_capture();
  support::fake_executable_handle executable;
  REQUIRE(it.gpu.instantiate(executable, graph) == 0);
  it.all->launch(executable);
  const agent fresh = it.all->adopt(nullptr);
  it.all->wait(fresh, inside);
  it.kernel(fresh, 2);
  it.all->wait(agent::host, it.all->record(fresh));
  CHECK(it.order == std::vector{1, 2});
  CHECK(it.gpu.destroy_executable(executable) == 0);
  CHECK(it.gpu.destroy_graph(graph) == 0);
}

TEST_CASE("a capture ends only where it began", "[backend]")
{
  lazy_gpu it;
  CHECK_THROWS_AS(it.all->end_capture(), usage_error);
  it.all->begin_capture();
  std::thread{[&] { CHECK_THROWS_AS(it.all->end_capture(), usage_error); }}.join();
  CHECK(it.all->is_capturing());
  const auto graph = it.all->end_capture();
  CHECK(it.gpu.destroy_graph(graph) == 0);
  CHECK_FALSE(it.all->is_capturing());
}

TEST_CASE("a capture that fails to begin has not begun, and one that fails to end loses the session", "[backend]")
{
  lazy_gpu it;
  it.gpu.fail_call_of("begin_capture", 1, 1);
  CHECK(fault_of([&] { it.all->begin_capture(); }).number == 1);
  CHECK_FALSE(it.all->is_capturing());
  const auto waits = it.gpu.calls("wait_event");
  for (std::uint64_t i = 6; i <= 7; ++i)
    it.gpu.fail_call_of("wait_event", waits + i, 1);  // after four of the cover, the second fork
  CHECK(fault_of([&] { it.all->begin_capture(); }).number == 1);
  CHECK_FALSE(it.all->is_capturing());
  CHECK_FALSE(it.calls.is_lost());
  it.kernel(agent::to_host, 1);
  it.all->wait(agent::host, it.all->record(agent::to_host));
  CHECK(it.order == std::vector{1});
  it.all->begin_capture();
  it.kernel(agent::to_device, 2);
  for (std::uint64_t i = 1; i <= 2; ++i) it.gpu.fail_call_of("end_capture", it.gpu.calls("end_capture") + i, 1);
  CHECK(fault_of([&] { (void)it.all->end_capture(); }).number == 1);
  CHECK(it.calls.is_lost());
  CHECK(it.gpu.live().graphs == 0);
  CHECK(it.order == std::vector{1});
}

TEST_CASE("a capture that the runtime calls invalid loses the session and leaves nothing behind", "[backend]")
{
  lazy_gpu it;
  it.all->begin_capture();
  CHECK(it.gpu.synchronize_stream(it.all->stream(agent::compute)) == 900);  // somebody breaks the rules
  CHECK(fault_of([&] { (void)it.all->end_capture(); }).number == 901);
  CHECK(it.calls.is_lost());
  CHECK(it.gpu.live().graphs == 0);
}

}  // namespace cuda_streams_test
