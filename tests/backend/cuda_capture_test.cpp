// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_streams.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <thread>
#include <vector>

namespace cuda_capture_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::tested_session;

namespace {

struct forked {
  forked()
      : gpu{support::fake_cuda_options{.when = support::fake_schedule::latest}},
        calls{gpu},
        order{calls},
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
  backend::cuda_order<fake_cuda> order;
  backend::cuda_capture<fake_cuda> capture;
  support::fake_stream_handle origin, side;
  support::fake_event_handle edge;
  support::fake_graph_handle graph;
};

}  // namespace

TEST_CASE("a capture begins on one stream, forks, joins and ends", "[backend]")
{
  forked it;
  it.capture.begin(it.origin);
  CHECK(it.capture.is_on());
  CHECK_THROWS_AS(it.capture.require_none("this"), usage_error);
  CHECK(it.capture.connect(it.origin, it.edge, it.side));
  it.kernel(it.side, 1);
  CHECK(it.capture.connect(it.side, it.edge, it.origin));
  it.kernel(it.origin, 2);
  CHECK(it.capture.end(it.graph));
  CHECK_FALSE(it.capture.is_on());
  CHECK_NOTHROW(it.capture.require_none("this"));
  support::fake_executable_handle executable;
  REQUIRE(it.gpu.instantiate(executable, it.graph) == 0);
  REQUIRE(it.gpu.launch_graph(executable, it.origin) == 0);
  REQUIRE(it.gpu.synchronize_stream(it.origin) == 0);
  CHECK(it.ran == std::vector{1, 2});
  CHECK(it.gpu.destroy_graph(it.graph) == 0);
  CHECK(it.gpu.destroy_executable(executable) == 0);
}

TEST_CASE("a capture without its join is lost, and the streams are out of it", "[backend]")
{
  forked it;
  it.capture.begin(it.origin);
  CHECK(it.capture.connect(it.origin, it.edge, it.side));
  it.kernel(it.side, 1);
  CHECK_FALSE(it.capture.end(it.graph));
  CHECK_FALSE(it.capture.is_on());
  it.kernel(it.side, 2);
  CHECK(it.gpu.synchronize_stream(it.side) == 0);
  CHECK(it.ran == std::vector{2});
}

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

TEST_CASE("a capture belongs to the thread where it began", "[backend]")
{
  forked it;
  CHECK_THROWS_AS(it.capture.require_own(), usage_error);
  it.capture.begin(it.origin);
  CHECK_NOTHROW(it.capture.require_own());
  std::thread{[&] { CHECK_THROWS_AS(it.capture.require_own(), usage_error); }}.join();
  it.capture.leave();
}

TEST_CASE("a capture that does not begin is an error and nothing more", "[backend]")
{
  forked it;
  it.gpu.fail_call_of("begin_capture", 1, 900);
  CHECK_THROWS_AS(it.capture.begin(it.origin), device_error);
  CHECK_FALSE(it.capture.is_on());
  it.kernel(it.origin, 1);
  CHECK(it.gpu.synchronize_stream(it.origin) == 0);
  CHECK(it.ran == std::vector{1});
}

}  // namespace cuda_capture_test
