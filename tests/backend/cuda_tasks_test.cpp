// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_streams.hpp>

#include <support/catch.hpp>

#include <memory>
#include <thread>
#include <vector>

namespace cuda_tasks_test {

using namespace chunkmem;
using backend::cuda_tasks;
using backend::inline_task;

TEST_CASE("tasks run from the address that they were put at, and their slots come back", "[backend]")
{
  cuda_tasks tasks;
  std::vector<int> order;
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::vector<void*> queued;
    for (int i = 0; i < int{cuda_tasks::room}; ++i) {
      REQUIRE_FALSE(tasks.is_full());
      queued.push_back(tasks.put(inline_task{[&order, i] { order.push_back(i); }}));
      tasks.keep();
    }
    CHECK(tasks.is_full());
    CHECK(tasks.given() == (round + 1) * cuda_tasks::room);
    for (void* const slot : queued) cuda_tasks::run(slot);
    CHECK(tasks.finished() == tasks.given());
  }
  REQUIRE(order.size() == 3 * cuda_tasks::room);
  for (std::size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == static_cast<int>(i % cuda_tasks::room));
}

TEST_CASE("captures are let go of when a task has run, or was taken back", "[backend]")
{
  cuda_tasks tasks;
  const auto kept = std::make_shared<int>(3);
  void* const slot = tasks.put(inline_task{[kept] { *kept = 4; }});
  tasks.keep();
  CHECK(kept.use_count() == 2);
  cuda_tasks::run(slot);
  CHECK(*kept == 4);
  CHECK(kept.use_count() == 1);
  (void)tasks.put(inline_task{[kept] { *kept = 5; }});
  CHECK(kept.use_count() == 2);
  tasks.take_back();
  CHECK(kept.use_count() == 1);
  CHECK(*kept == 4);
  CHECK(tasks.given() == 1);
}

TEST_CASE("a task that a lost device may still run stays where it is", "[backend]")
{
  int ran = 0;
  void* late = nullptr;
  for (int lost = 0; lost < 3; ++lost) {
    cuda_tasks tasks;
    // those that never run are no leak
    late = tasks.put(inline_task{[&ran, kept = std::make_shared<int>(1)] { ran += *kept; }});
    tasks.keep();
  }
  cuda_tasks::run(late);
  CHECK(ran == 1);
}

TEST_CASE("slots may be taken again as soon as another thread has run them", "[backend]")
{
  cuda_tasks tasks;
  std::uint64_t sum = 0;
  std::vector<void*> queued;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    if (tasks.is_full()) {
      std::thread{[&] {
        for (void* const slot : queued) cuda_tasks::run(slot);
      }}.join();
      queued.clear();
    }
    queued.push_back(tasks.put(inline_task{[&sum, i] { sum += i; }}));
    tasks.keep();
  }
  for (void* const slot : queued) cuda_tasks::run(slot);
  CHECK(sum == 10'000 * 9'999 / 2);
}

}  // namespace cuda_tasks_test
