// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_streams.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

namespace cuda_order_test {

using namespace chunkmem;
using support::fake_cuda;
using under_test::fault_of;
using under_test::tested_session;

namespace {

struct two_streams {
  explicit two_streams(support::fake_schedule when = support::fake_schedule::latest)
      : gpu{support::fake_cuda_options{.when = when}}, calls{gpu}, order{calls}
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
