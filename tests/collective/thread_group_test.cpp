// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <atomic>
#include <cstdint>

namespace thread_rendezvous_test {

using namespace chunkmem;
using collective::operation;
using collective::rendezvous_lane;
using collective::rendezvous_request;
using collective::thread_rendezvous;

constexpr std::uint64_t minute = 60'000'000'000;
constexpr rendezvous_request barrier{.asked = {.what = operation::barrier}};

TEST_CASE("a wait longer than was called slow is counted, with the rank that came last", "[collective]")
{
  thread_rendezvous rendezvous{2, minute, 0};
  CHECK(rendezvous.waits().slow_rendezvous == 0);
  support::on_ranks(2, [&](std::uint32_t rank) { (void)rendezvous.meet(rendezvous_lane::callers, rank, barrier); });
  const auto waits = rendezvous.waits();
  CHECK(waits.slow_rendezvous == (waits.longest > 0 ? 1 : 0));
  if (waits.longest > 0) CHECK(waits.longest_at == operation::barrier);
  thread_rendezvous patient{2, minute, minute};
  support::on_ranks(2, [&](std::uint32_t rank) { (void)patient.meet(rendezvous_lane::callers, rank, barrier); });
  CHECK(patient.waits().slow_rendezvous == 0);
}

TEST_CASE("a deadline of centuries does not overflow", "[collective]")
{
  thread_rendezvous rendezvous{2, UINT64_MAX, minute};
  std::atomic<int> met{0};
  support::on_ranks(
      2, [&](std::uint32_t rank) { met += rendezvous.meet(rendezvous_lane::agents, rank, barrier) ? 1 : 0; });
  CHECK(met == 2);
}

TEST_CASE("a deadline that passes while the last rank comes fails for both or for none", "[collective]")
{
  for (int round = 0; round < 300; ++round) {
    thread_rendezvous rendezvous{2, 20'000, minute};  // about as long as a thread takes to start
    std::atomic<int> met{0};
    support::on_ranks(
        2, [&](std::uint32_t rank) { met += rendezvous.meet(rendezvous_lane::agents, rank, barrier) ? 1 : 0; });
    CHECK((met == 0 || met == 2));
    if (met == 0) CHECK_THROWS_AS(rendezvous.check(), comm_error);
  }
}

TEST_CASE("a rank that has left is missed only beyond the calls that it gave", "[collective]")
{
  thread_rendezvous rendezvous{2, minute, minute};
  rendezvous.leave(1, 1);  // one is still queued
  std::atomic<int> met{0};
  support::on_ranks(
      2, [&](std::uint32_t rank) { met += rendezvous.meet(rendezvous_lane::agents, rank, barrier) ? 1 : 0; });
  CHECK(met == 2);
  CHECK_FALSE(rendezvous.meet(rendezvous_lane::agents, 0, barrier));
  CHECK_THROWS_WITH(rendezvous.check(), Catch::Matchers::ContainsSubstring("rank 1 has left its group of 2"));
}

TEST_CASE("two ranks that wait for each other in different rendezvous are a mismatch at once", "[collective]")
{
  thread_rendezvous rendezvous{3, minute, minute};
  const rendezvous_request from_0{.asked = {.what = operation::send, .size = 8, .root = 0}, .other = rank_id{1}};
  std::atomic<int> met{0};
  support::on_ranks(2, [&](std::uint32_t rank) {
    met += rendezvous.meet(rendezvous_lane::agents, rank, rank == 0 ? from_0 : barrier) ? 1 : 0;
  });
  CHECK(met == 0);
  CHECK_THROWS_WITH(rendezvous.check(), Catch::Matchers::ContainsSubstring("ranks ask for different things"));
}

using collective::thread_group;

TEST_CASE("a group has ranks and a deadline", "[collective]")
{
  CHECK(thread_group{3}.ranks() == 3);
  CHECK_THROWS_AS(thread_group{0}, usage_error);
  CHECK_THROWS_AS((thread_group{2, {.deadline = 0}}), config_error);
}

TEST_CASE("what ranks share outlives their group", "[collective]")
{
  const auto rendezvous = thread_group{2}.rendezvous();
  CHECK(rendezvous->ranks() == 2);
}

}  // namespace thread_rendezvous_test
