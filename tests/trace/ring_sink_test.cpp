// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/sinks.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <conformance/recalling_sink.hpp>
#include <support/catch.hpp>

#include <string>

namespace ring_sink_test {

using namespace chunkmem;

TEST_CASE("ring_sink keeps the laws of a sink", "[trace]")
{
  trace::event_ring ring{7};
  conformance::recalling_sink_laws(trace::ring_sink{ring});
  CHECK(ring.size() == 7);
  CHECK(ring.seen() == 4'005 * happening_count);
}

TEST_CASE("a ring holds the last events, the newest first", "[trace]")
{
  trace::event_ring ring{3};
  CHECK(ring.size() == 0);
  CHECK_THROWS_AS(ring.last(0), usage_error);
  for (std::uint64_t bytes = 1; bytes <= 5; ++bytes) ring.add({.bytes = bytes});
  CHECK(ring.size() == 3);
  for (std::size_t age = 0; age < 3; ++age) CHECK(ring.last(age).bytes == 5 - age);
  CHECK_THROWS_AS(ring.last(3), usage_error);
  CHECK_THROWS_AS(trace::event_ring{0}, usage_error);
}

TEST_CASE("beside an error the last events say how it came", "[trace]")
{
  using arena = backend::host_arena;
  trace::event_ring ring{4};
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  manager<arena, trace::ring_sink> m{memory, {.chunk_bytes = 4_KiB}, trace::ring_sink{ring}};
  const auto stack = m.add_stacked<float>(4, {1024}, role::parameter);
  for (std::uint32_t layer = 0; layer < 4; ++layer) m.acquire(stack.slice(layer), access::write).release();
  const auto first = m.acquire(stack.slice(0), access::read);
  const auto second = m.acquire(stack.slice(1), access::read);
  CHECK_THROWS_AS(m.acquire(stack.slice(2), access::read), out_of_memory);
  const std::string text = to_string(ring);
  CHECK(text.find("load of chunk 1, bytes 4096, from host to device\n") != std::string::npos);
  CHECK(text.find("evict of chunk ") != std::string::npos);
}

TEST_CASE("a ring recalls the last events and no more lines than asked for", "[trace]")
{
  trace::event_ring ring{6};
  const trace::ring_sink sink{ring};
  CHECK(sink.recall(10).empty());
  for (std::uint64_t bytes = 1; bytes <= 8; ++bytes) ring.add({.bytes = bytes});
  CHECK(sink.recall(0).empty());
  CHECK(sink.recall(2) == "load, bytes 7, from host to device\nload, bytes 8, from host to device\n");
  CHECK(sink.recall(6) == to_string(ring));
  CHECK(sink.recall(SIZE_MAX) == to_string(ring));
}

}  // namespace ring_sink_test
