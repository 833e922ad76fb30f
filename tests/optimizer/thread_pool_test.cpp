// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/thread_pool.hpp>

#include <support/count_allocations.hpp>

#include <conformance/executor.hpp>
#include <support/catch.hpp>

#include <atomic>
#include <cfenv>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace thread_pool_test {

using namespace chunkmem;
using optimizer::thread_pool;

namespace {

static_assert(!std::is_copy_constructible_v<thread_pool> && !std::is_move_constructible_v<thread_pool>);

/// Starts threads until there are `most`, counts them, and counts again when they end.
struct counting_starter {
  unsigned most;
  std::atomic<int>& alive;

  template <class Serve>
  std::thread operator()(Serve serve, thread_pool* pool)
  {
    if (most == 0) throw std::system_error{std::make_error_code(std::errc::resource_unavailable_try_again)};
    --most;
    ++alive;
    return std::thread{[serve, pool, &count = alive] {
      serve(pool);
      --count;
    }};
  }
};

/// Long enough that threads of a pool without work fall asleep.
void let_them_sleep()
{
  for (int round = 0; round < 200; ++round) std::this_thread::yield();
  std::atomic<unsigned> steps{0};
  while (steps.fetch_add(1) < 300000) {
  }
}

}  // namespace

TEST_CASE("a pool of any size keeps the laws of an executor", "[optimizer]")
{
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    thread_pool workers{threads};
    CHECK(workers.threads() == threads);
    conformance::executor_laws(workers);
  }
}

TEST_CASE("thousands of short runs one after another lose no part and take none twice", "[optimizer]")
{
  thread_pool workers{4};
  std::vector<std::atomic<unsigned>> seen(16);
  unsigned expected[16] = {};
  std::uint32_t state = 1;
  for (int round = 0; round < 5000; ++round) {
    state = state * 1664525U + 1013904223U;
    const unsigned parts = state >> 28U;
    workers.run(parts, [&seen](unsigned part) { seen[part].fetch_add(1, std::memory_order_relaxed); });
    for (unsigned part = 0; part < parts; ++part) ++expected[part];
  }
  for (unsigned part = 0; part < 16; ++part) CHECK(seen[part].load() == expected[part]);
}

TEST_CASE("what one run wrote another thread reads in the next", "[optimizer]")
{
  thread_pool workers{3};
  std::vector<unsigned> numbers(64, 0);
  for (unsigned round = 0; round < 500; ++round)
    workers.run(63, [&numbers, round](unsigned part) {
      if (part % 2 == round % 2) numbers[part + 1] = numbers[part] + 1;
    });
  unsigned sum = 0;
  for (const unsigned number : numbers) sum += number;
  CHECK(sum > 0);
  CHECK(numbers[0] == 0);
  CHECK(numbers[1] == 1);
  CHECK(numbers[63] == 63);
}

TEST_CASE("sleeping threads wake up for the next run, and for the end", "[optimizer]")
{
  thread_pool workers{3};
  for (int round = 0; round < 5; ++round) {
    let_them_sleep();
    std::atomic<unsigned> arrived{0};
    workers.run(3, [&arrived](unsigned) {
      ++arrived;
      while (arrived.load() < 3) std::this_thread::yield();
    });
    CHECK(arrived.load() == 3);
  }
  let_them_sleep();
}

TEST_CASE("a caller that sleeps until the last part is over wakes up", "[optimizer]")
{
  thread_pool workers{2};
  const auto caller = std::this_thread::get_id();
  for (int round = 0; round < 5; ++round) {
    std::atomic<unsigned> arrived{0};
    std::atomic<bool> is_over{false};
    workers.run(2, [&](unsigned) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
      if (std::this_thread::get_id() == caller) return;
      let_them_sleep();
      is_over = true;
    });
    CHECK(is_over.load());
  }
}

TEST_CASE("more than one thread works where parts wait for each other", "[optimizer]")
{
  thread_pool workers{3};
  std::atomic<unsigned> arrived{0};
  std::thread::id who[3];
  workers.run(3, [&](unsigned part) {
    who[part] = std::this_thread::get_id();
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  CHECK(who[0] != who[1]);
  CHECK(who[1] != who[2]);
  CHECK(who[0] != who[2]);
}

TEST_CASE("a run inside a run takes its parts on the thread that asks", "[optimizer]")
{
  thread_pool workers{3};
  std::atomic<unsigned> inner{0};
  std::atomic<unsigned> elsewhere{0};
  workers.run(8, [&](unsigned) {
    const auto self = std::this_thread::get_id();
    workers.run(5, [&](unsigned) {
      ++inner;
      if (std::this_thread::get_id() != self) ++elsewhere;
    });
  });
  CHECK(inner.load() == 40);
  CHECK(elsewhere.load() == 0);
}

TEST_CASE("two threads may use one pool at once", "[optimizer]")
{
  thread_pool workers{3};
  std::atomic<unsigned> sums[2] = {{0}, {0}};
  const auto use = [&](unsigned who) {
    for (int round = 0; round < 500; ++round) workers.run(7, [&sums, who](unsigned part) { sums[who] += part; });
  };
  std::thread other{use, 1U};
  use(0);
  other.join();
  CHECK(sums[0].load() == 500 * 21);
  CHECK(sums[1].load() == 500 * 21);
}

TEST_CASE("every thread of a pool rounds to nearest, whatever the caller does", "[optimizer]")
{
  if (!float_environment::is_supported) SKIP("nothing is known of this processor's floating-point settings");
  const auto third = [] {
    const volatile float one = 1.0F;
    const volatile float three = 3.0F;
    return one / three;
  };
  const float nearest = third();
  const int before = std::fegetround();
  for (const unsigned parts : {1U, 3U}) {
    REQUIRE(std::fesetround(FE_DOWNWARD) == 0);
    float found[3] = {nearest, nearest, nearest};
    std::atomic<unsigned> arrived{0};
    {
      thread_pool workers{3};
      workers.run(parts, [&](unsigned part) {
        found[part] = third();
        ++arrived;
        while (arrived.load() < parts) std::this_thread::yield();
      });
    }
    const float after = third();
    std::fesetround(before);
    for (const float value : found) CHECK(value == nearest);
    CHECK(after != nearest);
  }
}

TEST_CASE("a run allocates nothing", "[optimizer]")
{
  if (!support::counts_allocations) SKIP("a sanitizer needs the functions that count");
  thread_pool workers{3};
  std::atomic<unsigned> done{0};
  const auto before = support::allocations_so_far();
  for (int round = 0; round < 100; ++round) workers.run(10, [&done](unsigned) { ++done; });
  const auto used = support::allocations_so_far() - before;
  CHECK(used.all() == 0);
  CHECK(done.load() == 1000);
}

TEST_CASE("where a thread cannot be started the others are gone before the error arrives", "[optimizer]")
{
  for (const unsigned most : {0U, 1U, 3U}) {
    std::atomic<int> alive{0};
    CHECK_THROWS_AS((thread_pool{5, counting_starter{most, alive}}), std::system_error);
    CHECK(alive.load() == 0);
  }
  std::atomic<int> alive{0};
  {
    thread_pool workers{4, counting_starter{3, alive}};
    CHECK(workers.threads() == 4);
    conformance::executor_laws(workers);
  }
  CHECK(alive.load() == 0);
}

TEST_CASE("a pool of no threads is refused", "[optimizer]")
{
  CHECK_THROWS_AS(thread_pool{0}, usage_error);
}

}  // namespace thread_pool_test
