// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <conformance/stream_backend.hpp>

#include <cstdint>
#include <optional>

namespace conformance {

[[nodiscard]] inline std::byte number(std::uint64_t index)
{
  return static_cast<std::byte>(index % 256);
}

/// Each agent's captured work: it runs only when the graph is launched, and again with each launch.
template <class Backend, class Make>
void a_graph_is_done_as_often_as_it_is_launched(Make make)
{
  using namespace chunkmem;
  constexpr std::uint64_t size = 5'000;
  Backend backend = make(bytes{8 * size}, bytes{8 * size});
  const agent fifth = backend.adopt();
  const block input{backend, tier::host, bytes{size}};
  const block first{backend, tier::device, bytes{size}};
  const block second{backend, tier::device, bytes{size}};
  const block result{backend, tier::host, bytes{size}};
  backend.fill(input.data(), number(1), bytes{size});
  backend.fill(result.data(), number(2), bytes{size});
  REQUIRE_FALSE(backend.is_capturing());
  backend.begin_capture();
  REQUIRE(backend.is_capturing());
  backend.copy(first.data(), input.data(), bytes{size}, agent::to_device);
  backend.wait(fifth, backend.record(agent::to_device));
  backend.copy(second.data(), first.data(), bytes{size}, fifth);
  backend.wait(agent::compute, backend.record(fifth));
  backend.fill(second.data(), number(9), bytes{1}, agent::compute);
  backend.wait(agent::to_host, backend.record(agent::compute));
  backend.copy(result.data(), second.data(), bytes{size}, agent::to_host);
  auto graph = backend.end_capture();
  REQUIRE_FALSE(backend.is_capturing());
  CHECK(all_are(backend, result.data(), size, number(2)));
  for (std::uint64_t round = 10; round < 14; ++round) {
    backend.fill(input.data(), number(round), bytes{size});
    backend.launch(graph);
    backend.wait(agent::host, backend.record(agent::to_host));
    CHECK(all_are(backend, result.data() + 1, size - 1, number(round)));
    CHECK(all_are(backend, result.data(), 1, number(9)));
  }
}

/// The graph follows the work that agents got before it, and later work of any agent follows the graph.
template <class Backend, class Make>
void a_graph_lies_between_what_was_given_before_and_after(Make make)
{
  using namespace chunkmem;
  constexpr std::uint64_t size = 20'000;
  Backend backend = make(bytes{8 * size}, bytes{8 * size});
  const block here{backend, tier::host, bytes{size}};
  const block middle{backend, tier::device, bytes{size}};
  const block after{backend, tier::device, bytes{size}};
  const block back{backend, tier::host, bytes{size}};
  backend.adopt();
  const auto agents = all_agents(backend);
  std::optional<typename Backend::graph_type> graph;
  std::uint64_t round = 0;
  for (const agent before : agents) {
    for (const agent behind : agents) {
      if (behind == agent::host) continue;
      ++round;
      backend.fill(here.data(), number(round), bytes{size});
      backend.copy(middle.data(), here.data(), bytes{size}, before);
      if (!graph) {
        backend.begin_capture();
        backend.copy(after.data(), middle.data(), bytes{size}, agent::to_host);
        graph.emplace(backend.end_capture());
      }
      backend.launch(*graph);
      backend.copy(back.data(), after.data(), bytes{size}, behind);
      backend.fill(middle.data(), number(round + 100), bytes{size}, behind);
      backend.wait(agent::host, backend.record(behind));
      CAPTURE(index_of(before), index_of(behind));
      CHECK(all_are(backend, back.data(), size, number(round)));
    }
  }
}

/// Events of before and of the capture itself are good afterwards, for every agent and again after every launch.
template <class Backend, class Make>
void events_are_reached_with_the_graph(Make make)
{
  using namespace chunkmem;
  constexpr std::uint64_t size = 30'000;
  Backend backend = make(bytes{8 * size}, bytes{8 * size});
  const block here{backend, tier::host, bytes{size}};
  const block there{backend, tier::device, bytes{size}};
  const block back{backend, tier::host, bytes{size}};
  backend.fill(here.data(), number(5), bytes{size});
  backend.copy(there.data(), here.data(), bytes{size}, agent::to_device);
  const event before = backend.record(agent::to_device);
  backend.begin_capture();
  backend.wait(agent::to_host, before);
  backend.copy(back.data(), there.data(), bytes{size}, agent::to_host);
  const event inside = backend.record(agent::to_host);
  backend.wait(agent::compute, inside);
  backend.wait(agent::compute, inside);
  auto graph = backend.end_capture();
  for (int round = 0; round < 3; ++round) {
    backend.fill(back.data(), number(6), bytes{size});
    backend.launch(graph);
    backend.wait(agent::to_device, inside);
    backend.wait(agent::host, inside);
    CHECK(all_are(backend, back.data(), size, number(5)));
    backend.wait(agent::host, before);
    backend.wait(agent::compute, before);
  }
}

template <class Backend, class Make>
void what_cannot_be_captured_is_refused_and_the_capture_goes_on(Make make)
{
  using namespace chunkmem;
  constexpr std::uint64_t size = 256;
  Backend backend = make(bytes{16 * size}, bytes{16 * size});
  const block here{backend, tier::host, bytes{size}};
  const block there{backend, tier::device, bytes{size}};
  const event before = backend.record(agent::compute);
  REQUIRE_THROWS_AS((void)backend.end_capture(), usage_error);
  backend.begin_capture();
  REQUIRE_THROWS_AS(backend.begin_capture(), usage_error);
  REQUIRE_THROWS_AS(backend.copy(there.data(), here.data(), bytes{size}, agent::host), usage_error);
  REQUIRE_THROWS_AS(backend.fill(here.data(), number(1), bytes{size}, agent::host), usage_error);
  REQUIRE_THROWS_AS(backend.launch(agent::host, [] {}), usage_error);
  REQUIRE_THROWS_AS(backend.launch(agent::compute, [] {}), usage_error);
  REQUIRE_THROWS_AS(backend.wait(agent::host, backend.record(agent::compute)), usage_error);
  REQUIRE_THROWS_AS((void)backend.allocate(tier::device, bytes{size}), usage_error);
  REQUIRE_THROWS_AS(backend.adopt(), usage_error);
  backend.wait(agent::compute, before);
  backend.fill(there.data(), number(7), bytes{size}, agent::compute);
  auto graph = backend.end_capture();
  backend.launch(graph);
  backend.wait(agent::host, backend.record(agent::compute));
  CHECK(all_are(backend, there.data(), size, number(7)));
}

/// The laws of graph_backend.
///
/// @param make   make(device capacity, host capacity) gives a fresh backend by value
template <chunkmem::graph_backend Backend, class Make>
void graph_backend_laws(Make make)
{
  a_graph_is_done_as_often_as_it_is_launched<Backend>(make);
  a_graph_lies_between_what_was_given_before_and_after<Backend>(make);
  events_are_reached_with_the_graph<Backend>(make);
  what_cannot_be_captured_is_refused_and_the_capture_goes_on<Backend>(make);
}

}  // namespace conformance
