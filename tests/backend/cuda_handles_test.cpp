// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_session.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <type_traits>
#include <utility>
#include <vector>

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

TEST_CASE("the caller's stream is left alone", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  support::fake_stream_handle mine;
  REQUIRE(gpu.create_stream(mine) == 0);
  {
    const cuda_stream stream{it, mine};
    CHECK(stream.get() == mine);
  }
  CHECK(gpu.live().streams == 1);
  CHECK(it.calls() == 0);
}

TEST_CASE("what the runtime does not give is an error and leaves nothing", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  gpu.fail_call_of("create_event", 1, 2);
  gpu.fail_call_of("create_stream", 1, 2);
  CHECK_THROWS_AS(cuda_event{it}, device_error);
  CHECK_THROWS_AS(cuda_stream{it}, device_error);
  under_test::check_clean(gpu);
}

TEST_CASE("after an error that ends CUDA nothing is destroyed", "[backend]")
{
  const fake_cuda gpu;
  tested_session it{gpu};
  {
    const cuda_stream stream{it};
    const cuda_event point{it};
    gpu.fail_call(it.calls() + 1, 700);
    CHECK_FALSE(it.synchronize(stream.get()));
  }
  CHECK(gpu.calls_after_sticky() == 0);
  CHECK(gpu.live().total() == 2);
}

}  // namespace cuda_handles_test
