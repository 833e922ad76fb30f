// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <conformance/memory_backend.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace conformance {

/// True where all bytes of [place, place + size) are `value`; true also where the calling thread may not read them.
template <class Backend>
[[nodiscard]] bool all_are(const std::byte* place, std::uint64_t size, std::byte value)
{
  if constexpr (!Backend::host_addressable) return true;
  return std::all_of(place, place + size, [value](std::byte found) { return found == value; });
}

/// The same for any tier of any backend, by a copy back. True also where there are no bytes.
template <class Backend>
[[nodiscard]] bool all_are(Backend& backend, const std::byte* place, std::uint64_t size, std::byte value)
{
  const auto found = contents(backend, place, size);
  return std::all_of(found.begin(), found.end(), [value](std::byte it) { return it == value; });
}

template <class Backend>
[[nodiscard]] std::vector<chunkmem::agent> all_agents(Backend& backend)
{
  (void)backend.adopt();
  (void)backend.adopt();
  std::vector<chunkmem::agent> agents;
  for (std::size_t i = 0; i < backend.agents(); ++i) agents.push_back(static_cast<chunkmem::agent>(i));
  return agents;
}

template <class Backend, class Make>
void work_of_one_agent_happens_in_order(Make make)
{
  using chunkmem::bytes;
  constexpr std::uint64_t size = 10'000;
  Backend backend = make(bytes{4 * size}, bytes{4 * size});
  const block here{backend, chunkmem::tier::host, bytes{size}};
  const block there{backend, chunkmem::tier::device, bytes{size}};
  const block back{backend, chunkmem::tier::host, bytes{size}};
  std::vector<int> order;
  order.reserve(64);
  for (const chunkmem::agent stream : all_agents(backend)) {
    order.clear();
    for (int i = 0; i < 8; ++i) {
      backend.fill(here.data(), std::byte(i), bytes{size}, stream);
      backend.copy(there.data(), here.data(), bytes{size}, stream);
      backend.launch(stream, [&order, i] { order.push_back(i); });
      backend.fill(here.data(), std::byte{0xEE}, bytes{size}, stream);
      backend.copy(back.data(), there.data(), bytes{size}, stream);
    }
    backend.wait(chunkmem::agent::host, backend.record(stream));
    CHECK(all_are(backend, back.data(), size, std::byte{7}));
    CHECK(all_are(backend, here.data(), size, std::byte{0xEE}));
    if constexpr (carries_bytes<Backend>()) CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  }
}

/// Read after write, write after read and write after write, from every agent to every agent.
template <class Backend, class Make>
void a_wait_orders_every_pair_of_agents(Make make)
{
  using chunkmem::agent;
  using chunkmem::bytes;
  constexpr std::uint64_t size = 20'000;
  Backend backend = make(bytes{4 * size}, bytes{4 * size});
  const block source{backend, chunkmem::tier::host, bytes{size}};
  const block between{backend, chunkmem::tier::device, bytes{size}};
  const block target{backend, chunkmem::tier::host, bytes{size}};
  const auto agents = all_agents(backend);
  unsigned round = 0;
  for (const agent first : agents) {
    for (const agent second : agents) {
      const std::byte value{static_cast<unsigned char>(1 + round++ % 200)};
      backend.fill(source.data(), value, bytes{size}, agent::host);
      backend.copy(between.data(), source.data(), bytes{size}, first);
      const auto written = backend.record(first);
      backend.wait(second, written);
      backend.copy(target.data(), between.data(), bytes{size}, second);
      const auto read = backend.record(second);
      backend.wait(first, read);
      backend.fill(between.data(), std::byte{0xDD}, bytes{size}, first);
      backend.wait(second, backend.record(first));
      backend.fill(between.data(), value, bytes{size}, second);
      backend.wait(agent::host, backend.record(second));
      CAPTURE(index_of(first), index_of(second));
      CHECK(all_are(backend, target.data(), size, value));
      CHECK(all_are(backend, between.data(), size, value));
    }
  }
}

/// A plain integer passed around all agents: correct only where waits order launches, and a race where they do not.
template <class Backend, class Make>
void a_chain_of_waits_runs_through_all_agents(Make make)
{
  Backend backend = make(chunkmem::bytes{256}, chunkmem::bytes{256});
  const auto agents = all_agents(backend);
  constexpr int rounds = 50;
  std::uint64_t sum = 1;
  std::uint64_t expected = 1;
  chunkmem::event last{};
  for (int round = 0; round < rounds; ++round) {
    for (const chunkmem::agent stream : agents) {
      const std::uint64_t step = index_of(stream) + 1u;
      backend.wait(stream, last);
      backend.launch(stream, [&sum, step] { sum = sum * 3 + step; });
      expected = expected * 3 + step;
      last = backend.record(stream);
    }
  }
  backend.wait(chunkmem::agent::host, last);
  if constexpr (carries_bytes<Backend>()) CHECK(sum == expected);
}

template <class Backend, class Make>
void events_of_a_source_never_go_back(Make make)
{
  using chunkmem::agent;
  Backend backend = make(chunkmem::bytes{4'096}, chunkmem::bytes{4'096});
  const block place{backend, chunkmem::tier::host, chunkmem::bytes{4'096}};
  for (const agent stream : all_agents(backend)) {
    backend.wait(stream, chunkmem::event{});  // value 0 is always reached, of any source
    backend.wait(agent::host, {.value = 0, .source = stream});
    chunkmem::event before = backend.record(stream);
    CHECK(before.source == stream);
    for (int i = 0; i < 20; ++i) {
      backend.fill(place.data(), std::byte(i), chunkmem::bytes{4'096}, stream);
      const chunkmem::event after = backend.record(stream);
      CHECK(after.source == stream);
      CHECK(after.value > before.value);
      CHECK(backend.record(stream).value >= after.value);
      before = after;
    }
    backend.wait(stream, before);  // its own past orders nothing
    backend.wait(agent::host, before);
    backend.wait(agent::host, before);  // an event is never used up
    CHECK(all_are(backend, place.data(), 4'096, std::byte{19}));
  }
  backend.wait(agent::host, backend.record(agent::host));
}

/// Work on the calling thread is done at return, and waits of other agents do not affect it.
template <class Backend, class Make>
void the_host_works_at_once(Make make)
{
  using chunkmem::agent;
  using chunkmem::bytes;
  Backend backend = make(bytes{8'192}, bytes{8'192});
  const block place{backend, chunkmem::tier::host, bytes{8'192}};
  const block there{backend, chunkmem::tier::device, bytes{8'192}};
  bool ran = false;
  backend.fill(place.data(), std::byte{5}, bytes{8'192}, agent::host);
  CHECK(all_are(backend, place.data(), 8'192, std::byte{5}));
  backend.copy(there.data(), place.data(), bytes{8'192}, agent::host);
  CHECK(all_are(backend, there.data(), 8'192, std::byte{5}));
  backend.launch(agent::host, [&ran] { ran = true; });
  if constexpr (carries_bytes<Backend>()) CHECK(ran);
}

/// More operations than any queue holds: the caller is slowed down, and nothing is lost.
template <class Backend, class Make>
void long_queues_lose_nothing(Make make)
{
  using chunkmem::agent;
  using chunkmem::bytes;
  constexpr std::uint64_t count = 700;
  Backend backend = make(bytes{2 * count}, bytes{2 * count});
  const block here{backend, chunkmem::tier::host, bytes{count}};
  const block there{backend, chunkmem::tier::device, bytes{count}};
  const block back{backend, chunkmem::tier::host, bytes{count}};
  backend.fill(here.data(), std::byte{3}, bytes{count}, agent::host);
  const std::uint64_t throttled_before = backend.throttled();
  for (std::uint64_t i = 0; i < count; ++i) {
    backend.copy(there.data() + i, here.data() + i, bytes{1}, agent::to_device);
    backend.wait(agent::to_host, backend.record(agent::to_device));
    backend.copy(back.data() + i, there.data() + i, bytes{1}, agent::to_host);
  }
  backend.wait(agent::host, backend.record(agent::to_host));
  CHECK(all_are(backend, back.data(), count, std::byte{3}));
  CHECK(backend.throttled() >= throttled_before);
}

template <class Backend, class Make>
void agents_are_adopted_up_to_the_limit(Make make)
{
  Backend backend = make(chunkmem::bytes{4'096}, chunkmem::bytes{4'096});
  REQUIRE(backend.agents() == chunkmem::built_in_agents);
  for (std::size_t i = chunkmem::built_in_agents; i < chunkmem::max_agents; ++i) {
    REQUIRE(index_of(backend.adopt()) == i);
    REQUIRE(backend.agents() == i + 1);
  }
  REQUIRE_THROWS_AS(backend.adopt(), chunkmem::usage_error);
  REQUIRE(backend.agents() == chunkmem::max_agents);
  const auto last = static_cast<chunkmem::agent>(chunkmem::max_agents - 1);
  const block place{backend, chunkmem::tier::device, chunkmem::bytes{4'096}};
  backend.fill(place.data(), std::byte{8}, chunkmem::bytes{4'096}, last);
  backend.wait(chunkmem::agent::host, backend.record(last));
  CHECK(all_are(backend, place.data(), 4'096, std::byte{8}));
}

/// Neither hangs nor writes to released memory; a sanitizer detects the rest.
template <class Backend, class Make>
void a_backend_may_end_with_work_queued(Make make)
{
  using chunkmem::agent;
  using chunkmem::bytes;
  Backend backend = make(bytes{1} * (1 << 20), bytes{1} * (1 << 20));
  std::byte* const here = backend.allocate(chunkmem::tier::host, bytes{1 << 20});
  std::byte* const there = backend.allocate(chunkmem::tier::device, bytes{1 << 20});
  const agent fifth = backend.adopt();
  for (int i = 0; i < 20; ++i) {
    backend.copy(there, here, bytes{1 << 20}, agent::to_device);
    backend.wait(fifth, backend.record(agent::to_device));
    backend.fill(there, std::byte(i), bytes{1 << 20}, fifth);
    backend.wait(agent::to_host, backend.record(fifth));
    backend.copy(here, there, bytes{1 << 20}, agent::to_host);
    backend.wait(agent::to_device, backend.record(agent::to_host));
  }
}

/// The laws of stream_backend, those of memory_backend included.
///
/// @param make   make(device capacity, host capacity) gives a fresh backend by value
template <chunkmem::stream_backend Backend, class Make>
void stream_backend_laws(Make make)
{
  memory_backend_laws<Backend>(make);
  work_of_one_agent_happens_in_order<Backend>(make);
  a_wait_orders_every_pair_of_agents<Backend>(make);
  a_chain_of_waits_runs_through_all_agents<Backend>(make);
  events_of_a_source_never_go_back<Backend>(make);
  the_host_works_at_once<Backend>(make);
  long_queues_lose_nothing<Backend>(make);
  agents_are_adopted_up_to_the_limit<Backend>(make);
  a_backend_may_end_with_work_queued<Backend>(make);
}

}  // namespace conformance
