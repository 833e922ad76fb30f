// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/agent_worker.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace agent_worker_test {

using namespace chunkmem;
using backend::agent_worker;
using backend::operation;
using backend::progress_table;

TEST_CASE("a worker does what it was given in order and counts it", "[backend]")
{
  progress_table table;
  backend::wait_totals totals;
  std::vector<int> order;
  agent_worker worker{agent::to_device, table, totals};
  for (int i = 0; i < 1'000; ++i) worker.enqueue(operation::launching([&order, i] { order.push_back(i); }));
  CHECK(worker.given() == 1'000);
  table[index_of(agent::to_device)].wait_for(worker.given());
  REQUIRE(order.size() == 1'000);
  for (int i = 0; i < 1'000; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == i);
  CHECK(table[index_of(agent::to_device)].count() == 1'000);
}

TEST_CASE("a full queue makes the caller wait, and that is counted", "[backend]")
{
  progress_table table;
  backend::wait_totals totals;
  agent_worker worker{agent::to_host, table, totals};
  int ran = 0;
  // The first operation ends only once the caller was throttled, so the queue is full by then on any machine.
  worker.enqueue(operation::launching([&worker] {
    while (worker.throttled() == 0) std::this_thread::yield();
  }));
  for (std::size_t i = 0; i < 2 * agent_worker::queue_length; ++i)
    worker.enqueue(operation::launching([&ran] { ++ran; }));
  CHECK(worker.throttled() >= 1);
  CHECK(totals.of(wait_cause::throttle).count <= worker.throttled());  // the queue may have got room meanwhile
  worker.stop();
  CHECK(ran == 2 * int{agent_worker::queue_length});
}

TEST_CASE("workers that wait for each other over and over lose no wake-up", "[backend]")
{
  progress_table table;
  backend::wait_totals totals;
  agent_worker ping{agent::to_device, table, totals};
  agent_worker pong{agent::to_host, table, totals};
  std::uint64_t shared = 0;  // plain: only the waits keep this from being a race
  for (int i = 0; i < 3'000; ++i) {
    ping.enqueue(operation::waiting({.value = pong.given(), .source = agent::to_host}));
    ping.enqueue(operation::launching([&shared] { shared = shared * 2 + 1; }));
    pong.enqueue(operation::waiting({.value = ping.given(), .source = agent::to_device}));
    pong.enqueue(operation::launching([&shared] { shared = shared + 1; }));
  }
  std::uint64_t expected = 0;
  for (int i = 0; i < 3'000; ++i) expected = expected * 2 + 2;
  table[index_of(agent::to_host)].wait_for(pong.given());
  CHECK(shared == expected);
}

TEST_CASE("waits of a worker are added up where they name a cause and block", "[backend]")
{
  progress_table table;
  backend::wait_totals totals;
  agent_worker first{agent::to_device, table, totals};
  agent_worker second{agent::to_host, table, totals};
  const auto why = [](wait_cause cause) { return static_cast<std::uint8_t>(1 + static_cast<unsigned>(cause)); };
  // nearly always the first one
  for (int round = 0; round < 100'000 && totals.of(wait_cause::other).count == 0; ++round) {
    std::atomic<bool> open{false};
    first.enqueue(operation::launching([&open] {
      while (!open.load()) std::this_thread::yield();
    }));
    second.enqueue(operation::waiting({.value = first.given(), .source = agent::to_device}));
    second.enqueue(
        operation::waiting({.value = first.given(), .source = agent::to_device}, why(wait_cause::demand_miss)));
    second.enqueue(operation::launching([&open] {
      if (!open.load()) std::abort();  // it went on too early
    }));
    second.enqueue(
        operation::waiting({.value = first.given(), .source = agent::to_device}, why(wait_cause::optimizer_input)));
    open.store(true);
    table[index_of(agent::to_host)].wait_for(second.given());
    std::atomic<bool> other{false};
    first.enqueue(operation::launching([&other] {
      while (!other.load()) std::this_thread::yield();
    }));
    second.enqueue(operation::waiting({.value = first.given(), .source = agent::to_device}, why(wait_cause::other)));
    for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
    other.store(true);
    table[index_of(agent::to_host)].wait_for(second.given());
  }
  CHECK(totals.of(wait_cause::other).count > 0);
  CHECK(totals.of(wait_cause::other).nanoseconds > 0);
  CHECK(totals.of(wait_cause::optimizer_input) == wait_total{});  // it was reached before
  CHECK(totals.of(wait_cause::demand_miss) == wait_total{});      // so was this, by the wait without a cause
}

TEST_CASE("stopping finishes what is queued, may be repeated, and lets go of what callables hold", "[backend]")
{
  progress_table table;
  backend::wait_totals totals;
  const auto held = std::make_shared<int>(1);
  std::atomic<int> ran{0};
  {
    agent_worker worker{agent::compute, table, totals};
    for (int i = 0; i < 100; ++i) worker.enqueue(operation::launching([held, &ran] { ran += *held; }));
    worker.stop();
    worker.stop();
    CHECK(ran == 100);
    CHECK(held.use_count() == 1);
  }
  agent_worker idle{agent::to_host, table, totals};  // ends without ever having worked
}

}  // namespace agent_worker_test
