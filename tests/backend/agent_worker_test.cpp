// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/agent_worker.hpp>

#include <support/catch.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace operation_test {

using chunkmem::bytes;
using chunkmem::backend::inline_task;
using chunkmem::backend::operation;
using chunkmem::backend::operation_kind;

TEST_CASE("an operation says what it is and does it once it is run", "[backend]")
{
  std::array<std::byte, 4> from{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::array<std::byte, 4> to{};
  operation nothing;
  nothing.run();
  CHECK(nothing.kind == operation_kind::marker);

  operation copy = operation::copying(to.data(), from.data(), bytes{3});
  CHECK(copy.kind == operation_kind::copy);
  CHECK(to[0] == std::byte{});
  copy.run();
  CHECK(to == std::array<std::byte, 4>{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{}});

  operation fill = operation::filling(to.data(), std::byte{9}, bytes{2});
  fill.run();
  CHECK(to == std::array<std::byte, 4>{std::byte{9}, std::byte{9}, std::byte{3}, std::byte{}});

  operation empty = operation::copying(nullptr, nullptr, bytes{0});
  empty.run();

  operation wait = operation::waiting({.value = 7, .source = chunkmem::agent::to_host});
  wait.run();
  CHECK(wait.kind == operation_kind::wait);
  CHECK(wait.point.value == 7);
}

TEST_CASE("a copy whose bytes overlap moves them as if they did not", "[backend]")
{
  std::array<std::byte, 4> place{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  operation::copying(place.data() + 1, place.data(), bytes{3}).run();
  CHECK(place == std::array<std::byte, 4>{std::byte{1}, std::byte{1}, std::byte{2}, std::byte{3}});
}

TEST_CASE("a launched callable moves with its operation and is destroyed exactly once", "[backend]")
{
  auto counted = std::make_shared<int>(0);
  {
    operation work = operation::launching([counted] { ++*counted; });
    CHECK(counted.use_count() == 2);
    operation moved = std::move(work);
    CHECK(counted.use_count() == 2);
    operation assigned;
    assigned = std::move(moved);
    assigned.run();
    assigned.run();
    CHECK(*counted == 2);
    assigned.task.reset();
    CHECK(counted.use_count() == 1);
    assigned.run();
    CHECK(*counted == 2);
    operation other = operation::launching([counted] { *counted += 10; });
    assigned = std::move(other);
    CHECK(counted.use_count() == 2);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("a callable of 128 bytes and one that only moves fit an inline task", "[backend]")
{
  std::array<unsigned char, inline_task::room - sizeof(int*)> ballast{};
  ballast.back() = 5;
  int seen = 0;
  inline_task large{[&seen, ballast] { seen = ballast.back(); }};
  large();
  CHECK(seen == 5);

  inline_task moving{[&seen, owned = std::make_unique<int>(6)] { seen = *owned; }};
  inline_task elsewhere{std::move(moving)};
  CHECK(static_cast<bool>(elsewhere));
  elsewhere();
  CHECK(seen == 6);

  inline_task nothing;
  CHECK_FALSE(static_cast<bool>(nothing));
  nothing();
}

TEST_CASE("an operation is small enough that a ring of 256 stays below 64 KiB", "[backend]")
{
  STATIC_REQUIRE(sizeof(operation) * 256 <= 64 * 1024);
}

}  // namespace operation_test

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
