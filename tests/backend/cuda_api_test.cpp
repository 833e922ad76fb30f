// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_api.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <cstddef>

namespace cuda_api_test {

using namespace chunkmem;

namespace {

/// Has what the concept asks for and nothing else.
struct archetype {
  struct stream_type {
    bool operator==(const stream_type&) const = default;
  };
  using event_type = stream_type;
  using pool_type = stream_type;
  using graph_type = stream_type;
  using executable_type = stream_type;

  static int count_devices(int&) noexcept { return 0; }
  static int current_device(int&) noexcept { return 0; }
  static int use_device(int) noexcept { return 0; }
  static int memory_info(std::size_t&, std::size_t&) noexcept { return 0; }
  static int create_pool(pool_type&, int, std::size_t) noexcept { return 0; }
  static int destroy_pool(pool_type) noexcept { return 0; }
  static int allocate_device(void*&, std::size_t, pool_type, stream_type) noexcept { return 0; }
  static int free_device(void*, stream_type) noexcept { return 0; }
  static int allocate_pinned(void*&, std::size_t) noexcept { return 0; }
  static int free_pinned(void*) noexcept { return 0; }
  static int create_stream(stream_type&) noexcept { return 0; }
  static int destroy_stream(stream_type) noexcept { return 0; }
  static int synchronize_stream(stream_type) noexcept { return 0; }
  static int create_event(event_type&) noexcept { return 0; }
  static int destroy_event(event_type) noexcept { return 0; }
  static int record_event(event_type, stream_type) noexcept { return 0; }
  static int wait_event(stream_type, event_type) noexcept { return 0; }
  static int synchronize_event(event_type) noexcept { return 0; }
  static int query_event(event_type, bool&) noexcept { return 0; }
  static int copy(void*, const void*, std::size_t, stream_type) noexcept { return 0; }
  static int copy_batch(void* const*, const void* const*, const std::size_t*, std::size_t, stream_type) noexcept
  {
    return 0;
  }
  static int fill(void*, int, std::size_t, stream_type) noexcept { return 0; }
  static int launch_host(stream_type, void (*)(void*), void*) noexcept { return 0; }
  static int last_error() noexcept { return 0; }
  static int begin_capture(stream_type) noexcept { return 0; }
  static int end_capture(stream_type, graph_type&) noexcept { return 0; }
  static int instantiate(executable_type&, graph_type) noexcept { return 0; }
  static int destroy_graph(graph_type) noexcept { return 0; }
  static int destroy_executable(executable_type) noexcept { return 0; }
  static int launch_graph(executable_type, stream_type) noexcept { return 0; }
  static const char* name_of(int) noexcept { return "archetype"; }
};

/// A failure of it would be an exception, and nobody expects one.
struct throwing : archetype {
  static int last_error() { return 0; }
};

/// Numbers are the runtime's own, and not answers of yes and no.
struct answering : archetype {
  static bool use_device(int) noexcept { return true; }
};

}  // namespace

static_assert(cuda_api<archetype>);
static_assert(!cuda_api<throwing> && !cuda_api<answering> && !cuda_api<int>);

TEST_CASE("the fake runtime is one that a CUDA backend can stand on", "[backend]")
{
  STATIC_REQUIRE(cuda_api<support::fake_cuda>);
  STATIC_REQUIRE(names_cuda_handles<support::fake_cuda> && gives_cuda_memory<support::fake_cuda>);
  STATIC_REQUIRE(orders_cuda_work<support::fake_cuda> && captures_cuda_graphs<support::fake_cuda>);
}

}  // namespace cuda_api_test
