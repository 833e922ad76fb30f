// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_session.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuda_session_test {

using namespace chunkmem;
using backend::cuda_current_device;
using support::fake_cuda;
using under_test::fault_of;
using under_test::tested_session;

namespace {

int count(const fake_cuda& api)
{
  int devices = 0;
  return api.count_devices(devices);
}

std::string text_of(const tested_session& it)
{
  return support::refusal<device_error>([&] { it.raise(); });
}

int device_of_this_thread(const fake_cuda& gpu)
{
  int device = -1;
  REQUIRE(gpu.current_device(device) == 0);
  return device;
}

}  // namespace

TEST_CASE("a session counts its calls and says which one failed", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  CHECK(it.attempt("counting", count) == 0);
  CHECK(it.attempt("counting", count) == 0);
  gpu.fail_call(3, 1);
  CHECK(it.attempt("counting", count) == 1);
  CHECK(text_of(it) ==
        "chunkmem: counting failed: cudaErrorInvalidValue (number 1), call 3 (the call did nothing and may be tried "
        "again)");
  const device_fault fault = fault_of([&] { it.raise(); });
  CHECK((fault.number == 1 && fault.call == 3 && !fault.is_sticky));
  CHECK(it.calls() == gpu.calls());
  CHECK_NOTHROW(it.require("counting", count));
  CHECK_FALSE(it.is_lost());
}

TEST_CASE("an error that passes is fetched once, so that nobody else meets it", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call(1, 9);
  CHECK_THROWS_AS(it.require("counting", count), device_error);
  CHECK(gpu.calls("last_error") == 1);
  CHECK(gpu.last_error() == 0);
}

TEST_CASE("an error that ends CUDA is the first cause for ever, and no call follows it", "[backend]")
{
  const int number = GENERATE(700, 4, 999, 31'337);
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call(2, number);
  CHECK_NOTHROW(it.require_alive());
  it.require("counting", count);
  CHECK_THROWS_AS(it.require("the second", count), device_error);
  CHECK(it.is_lost());
  CHECK_FALSE(it.may_call());
  const std::string cause = text_of(it);
  CHECK(cause.find("the second failed") != std::string::npos);
  CHECK(it.attempt("another", count) == number);
  CHECK_FALSE(it.finish({}));
  CHECK(text_of(it) == cause);
  CHECK(fault_of([&] { it.require_alive(); }).call == 2);
  CHECK(fault_of([&] { it.require_alive(); }).is_sticky);
  CHECK(gpu.calls() == 2);
}

TEST_CASE("where fetching an error finds a worse one, that is the cause", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call(1, 1);
  gpu.fail_call(2, 719);
  CHECK_THROWS_AS(it.require("counting", count), device_error);
  CHECK(fault_of([&] { it.require_alive(); }).number == 719);
  CHECK(fault_of([&] { it.require_alive(); }).call == 2);
  CHECK_FALSE(it.may_call());
}

TEST_CASE("a session lost by decision keeps its cause and still makes calls", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call(1, 400);
  CHECK(it.attempt("first", count) == 400);
  it.lose();
  CHECK(it.is_lost());
  CHECK(it.may_call());
  CHECK(it.attempt("second", count) == 0);
  gpu.fail_call(it.calls() + 1, 1);
  CHECK(it.attempt("third", count) == 1);
  CHECK(fault_of([&] { it.require_alive(); }).number == 400);
  gpu.fail_call(it.calls() + 1, 700);
  CHECK(it.attempt("fourth", count) == 700);
  CHECK_FALSE(it.may_call());
  CHECK(fault_of([&] { it.require_alive(); }).number == 400);
}

TEST_CASE("an error that others left behind is dropped, unless it ends CUDA", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  CHECK(gpu.use_device(7) != 0);
  CHECK_NOTHROW(it.forget_error());
  CHECK(gpu.last_error() == 0);
  CHECK_FALSE(it.is_lost());
  gpu.fail_call_of("last_error", gpu.calls("last_error") + 1, 716);
  CHECK(fault_of([&] { it.forget_error(); }).number == 716);
  CHECK_FALSE(it.may_call());
}

TEST_CASE("waiting for a stream is tried twice, and then the session is lost", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  support::fake_stream_handle stream;
  REQUIRE(gpu.create_stream(stream) == 0);
  CHECK(it.finish(stream));
  CHECK((it.synchronizations() == 1 && it.recoveries() == 0));
  gpu.fail_call_of("synchronize_stream", 2, 1);
  CHECK(it.finish(stream));
  CHECK((it.synchronizations() == 3 && it.recoveries() == 1));
  gpu.fail_call_of("synchronize_stream", 4, 400, true);
  CHECK_FALSE(it.finish(stream));
  CHECK(it.is_lost());
  CHECK(it.may_call());
  CHECK(fault_of([&] { it.require_alive(); }).number == 400);
}

TEST_CASE("the calling thread's device is switched only where it is another one, and put back", "[backend]")
{
  const fake_cuda gpu{support::fake_cuda_options{.devices = 3}};
  tested_session it{gpu};
  {
    const cuda_current_device current{it, 0};
    CHECK(gpu.switches() == 0);
  }
  {
    const cuda_current_device current{it, 2};
    CHECK(device_of_this_thread(gpu) == 2);
    {
      const cuda_current_device inner{it, 1};
      CHECK(device_of_this_thread(gpu) == 1);
    }
    CHECK(device_of_this_thread(gpu) == 2);
    std::thread{[&] { CHECK(device_of_this_thread(gpu) == 0); }}.join();
  }
  CHECK(device_of_this_thread(gpu) == 0);
  CHECK(gpu.switches() == 4);
  CHECK((!gpu.has_context(0) && gpu.has_context(1) && gpu.has_context(2)));
}

TEST_CASE("a device that cannot be made current is an error with nothing switched", "[backend]")
{
  const fake_cuda gpu{support::fake_cuda_options{.devices = 2}};
  tested_session it{gpu};
  CHECK(fault_of([&] { const cuda_current_device current{it, 5}; }).number == 101);
  gpu.fail_call_of("current_device", gpu.calls("current_device") + 1, 1);
  CHECK_THROWS_AS((cuda_current_device{it, 1}), device_error);
  CHECK(device_of_this_thread(gpu) == 0);
  {
    const cuda_current_device current{it, 1};
    gpu.fail_call_of("pop_context", gpu.calls("pop_context") + 1, 46);  // putting back fails once
  }
  CHECK(device_of_this_thread(gpu) == 0);
  for (const auto* const call : {"open_context", "push_context"}) {
    tested_session other{gpu};
    gpu.fail_call_of(call, gpu.calls(call) + 1, 46);
    CHECK(fault_of([&] { const cuda_current_device current{other, 1}; }).number == 46);
    CHECK(device_of_this_thread(gpu) == 0);
  }
}

TEST_CASE("the thread's device is put back after an error that ends CUDA, and is popped once", "[backend]")
{
  const fake_cuda gpu{support::fake_cuda_options{.devices = 3}};
  REQUIRE(gpu.use_device(2) == 0);
  tested_session it{gpu};
  it.live_on(1);
  SECTION("a call in the scope says so")
  {
    const cuda_current_device outer{it, 0};
    {
      const cuda_current_device current{it, 1};
      gpu.fail_call_of("count_devices", 1, 700);
      CHECK(it.attempt("counting", count) == 700);
      CHECK_FALSE(it.may_call());
    }
    CHECK(gpu.device_of_thread() == 0);
  }
  SECTION("a single call says so")
  {
    gpu.fail_call_of("count_devices", 1, 700);
    CHECK(it.attempt("counting", count) == 700);
  }
  SECTION("the pop itself says so, of earlier work")
  {
    gpu.fail_call_of("pop_context", 1, 719);
    CHECK(it.attempt("counting", count) == 0);
    CHECK(fault_of([&] { it.require_alive(); }).number == 719);
  }
  SECTION("the pop fails, and nothing was popped")
  {
    gpu.fail_call_of("pop_context", 1, 46);
    CHECK(it.attempt("counting", count) == 0);
    CHECK(it.recoveries() == 1);
  }
  SECTION("the pop tells of an error that passes, and has popped")
  {
    gpu.fail_after("pop_context", 1, 46);
    CHECK(it.attempt("counting", count) == 0);
    CHECK(it.recoveries() == 0);
  }
  CHECK(gpu.device_of_thread() == 2);
  CHECK(gpu.calls("push_context") == gpu.calls("pop_context") - it.recoveries());
  CHECK(gpu.calls_after_sticky() == 0);
  CHECK(it.calls() + 1 == gpu.calls());  // one is the test's
}

TEST_CASE("a session that lives on a device makes each call there, and asks no thread where that is device 0",
          "[backend]")
{
  const fake_cuda gpu{support::fake_cuda_options{.devices = 3}};
  const int home = GENERATE(0, 1);
  support::fake_stream_handle stream;
  {
    tested_session it{gpu};
    it.live_on(home);
    it.require("making a stream", [&](const fake_cuda& api) { return api.create_stream(stream); });
    CHECK(it.finish(stream));
    CHECK(gpu.calls("current_device") == (home == 0 ? 0U : 2U));
    CHECK(device_of_this_thread(gpu) == 0);
    CHECK(gpu.has_context(0) == (home == 0));
    CHECK(gpu.has_context(home));
    const auto before = gpu.switches();
    {
      const cuda_current_device there{it, home};
      CHECK(it.finish(stream));
      tested_session::visit inner;
      CHECK(it.enter_home(inner) == 0);
      it.leave(inner);
      CHECK(it.finish(stream));  // still inside of the outer one
    }
    CHECK(gpu.switches() == before + (home == 0 ? 0U : 2U));
    {
      const cuda_current_device elsewhere{it, 2};  // each call leaves it for the home
      CHECK(it.finish(stream));
      CHECK(device_of_this_thread(gpu) == 2);
    }
    for (const std::uint64_t failures : {1U, 2U}) {  // a second try is made
      for (std::uint64_t i = 1; i <= failures; ++i) gpu.fail_call_of("push_context", gpu.calls("push_context") + i, 46);
      CHECK(it.synchronize(stream) == (home == 0 || failures == 1));
      if (home != 0) CHECK(it.failure().fault().number == 46);
    }
    CHECK(it.finish(stream));
  }
  CHECK(gpu.has_context(0) == (home == 0));
}

}  // namespace cuda_session_test

namespace cuda_handles_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::tested_session;
using cuda_event = backend::cuda_event<fake_cuda>;
using cuda_stream = backend::cuda_stream<fake_cuda>;

static_assert(std::is_nothrow_move_constructible_v<cuda_event> && !std::is_copy_constructible_v<cuda_event>);
static_assert(!std::is_move_constructible_v<cuda_stream>);

TEST_CASE("events and streams go with their owners", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  {
    const cuda_stream stream{it};
    std::vector<cuda_event> events;
    for (int i = 0; i < 5; ++i) events.emplace_back(it);
    const cuda_event moved{std::move(events[2])};
    CHECK(events[2].get() == support::fake_event_handle{});
    CHECK(gpu.live().events == 5);
    CHECK(gpu.live().streams == 1);
    CHECK(gpu.record_event(moved.get(), stream.get()) == 0);
    CHECK(it.allocations() == gpu.allocations());
  }
  under_test::check_clean(gpu);
}

}  // namespace cuda_handles_test
