// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi.hpp>

#include "mpi_world.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace mpi_test {

using namespace chunkmem;
using collective::mpi;
using collective::mpi_options;
using collective::shares;

struct rig {
  explicit rig(const mpi_options& options = {.deadline = mpi_world::patience})
      : group{std::make_unique<mpi>(world.session, MPI_COMM_WORLD, options)}
  {
    mpi_world::meet();  // a rank that ends the group now ends that of all
  }
  void finish()
  {
    const agent host = agent::host;
    arena.wait(host, arena.record(agent::to_host));
  }

  mpi_world::doomed world;
  backend::host_arena arena{{.device_capacity = bytes{1 << 20}, .host_capacity = bytes{1 << 20}}};
  std::unique_ptr<mpi> group;
  agent stream = agent::to_host;  // a thread of its own
};

std::byte* as_bytes(std::vector<float>& numbers)
{
  return reinterpret_cast<std::byte*>(numbers.data());
}

TEST_CASE("shares gathered and sums scattered on an agent are there behind its event", "[collective_mpi]")
{
  rig one;
  const std::uint32_t ranks = one.group->ranks();
  std::vector<float> numbers(1'000, static_cast<float>(one.group->rank()) + 1);
  const shares parts = shares::of(bytes{4'000}, ranks);
  const float sum = static_cast<float>(ranks * (ranks + 1) / 2);
  one.group->reduce_scatter(one.arena, one.stream, as_bytes(numbers), parts, {}, 1);
  one.group->all_gather(one.arena, one.stream, as_bytes(numbers), parts, 2);
  one.group->barrier(one.arena, one.stream, 3);
  one.finish();
  CHECK(numbers == std::vector<float>(1'000, sum));
  one.group->all_reduce(one.arena, one.stream, as_bytes(numbers), parts, {.scale = 0.25F}, 4);
  one.group->broadcast(one.arena, one.stream, as_bytes(numbers), bytes{4'000}, rank_id{ranks - 1}, 5);
  one.finish();
  CHECK(numbers == std::vector<float>(1'000, sum * static_cast<float>(ranks) * 0.25F));
  CHECK_NOTHROW(one.group->check());
}

TEST_CASE("bytes go from rank to rank like through a pipe, while callers exchange words", "[collective_mpi]")
{
  rig one;
  const std::uint32_t mine = index_of(one.group->rank());
  const std::uint32_t ranks = one.group->ranks();
  std::vector<float> numbers(500, mine == 0 ? 7.0F : 0.0F);
  for (std::uint32_t round = 0; round < 50; ++round) {
    if (mine != 0) one.group->receive(one.arena, one.stream, as_bytes(numbers), bytes{2'000}, rank_id{mine - 1}, round);
    if (mine + 1 < ranks)
      one.group->send(one.arena, one.stream, as_bytes(numbers), bytes{2'000}, rank_id{mine + 1}, round);
    const std::uint64_t words[] = {mine, round};
    std::vector<std::uint64_t> all(2 * ranks);
    one.group->exchange(words, all);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) REQUIRE((all[2 * rank] == rank && all[2 * rank + 1] == round));
  }
  one.finish();
  CHECK(numbers == std::vector<float>(500, 7.0F));
  CHECK_NOTHROW(one.group->check());
}

TEST_CASE("the user's messages and ours do not meet", "[collective_mpi]")
{
  rig one;
  const int next = static_cast<int>((index_of(one.group->rank()) + 1) % one.group->ranks());
  std::uint64_t sent = 5;
  std::uint64_t got = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&got, 1, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  for (std::uint32_t label = 0; label < 20; ++label) one.group->barrier(one.arena, one.stream, label);
  one.finish();
  int is_there = 0;
  MPI_Test(&request, &is_there, MPI_STATUS_IGNORE);
  CHECK(is_there == 0);
  mpi_world::meet();
  MPI_Send(&sent, 1, MPI_UINT64_T, next, 0, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(got == 5);
}

// One of the calls that a schedule is made of, and what each can be turned into.
struct step {
  int what = 0;
  std::uint64_t size = 512;
  std::uint32_t root = 0;
  std::uint32_t label = 0;
  dtype type = dtype::float32;
  float scale = 1;

  void run(rig& one, std::byte* place) const
  {
    const shares parts = shares::of(bytes{size}, one.group->ranks());
    if (what == 0)
      one.group->all_gather(one.arena, one.stream, place, parts, label);
    else if (what == 1)
      one.group->reduce_scatter(one.arena, one.stream, place, parts, {type, scale}, label);
    else if (what == 2)
      one.group->all_reduce(one.arena, one.stream, place, parts, {type, scale}, label);
    else if (what == 3)
      one.group->broadcast(one.arena, one.stream, place, bytes{size}, rank_id{root}, label);
    else
      one.group->barrier(one.arena, one.stream, label);
  }
};

// Changes one thing that this kind of call has.
void mutate(step& it, std::uint32_t ranks, std::mt19937& random)
{
  const bool adds = it.what == 1 || it.what == 2;
  switch (random() % 6) {
    case 0: it.what = (it.what + 1 + static_cast<int>(random() % 4)) % 5; break;
    case 1: it.label += 1; break;
    case 2:
      if (it.what == 4)
        it.label += 1;
      else
        it.size += 4;
      break;
    case 3:
      if (adds)
        it.type = dtype::bfloat16;
      else
        it.label += 2;
      break;
    case 4:
      if (adds)
        it.scale = 0.5F;
      else
        it.label += 3;
      break;
    default:
      if (it.what == 3)
        it.root = (it.root + 1) % ranks;
      else
        it.label += 4;
      break;
  }
}

int undetected(int mutants, std::uint32_t seed)
{
  INFO("seeds from " << seed);
  int missed = 0;
  for (int mutant = 0; mutant < mutants; ++mutant) {
    std::mt19937 random{seed + static_cast<std::uint32_t>(mutant)};  // the same on every rank
    rig one;
    const std::uint32_t ranks = one.group->ranks();
    const std::uint32_t odd = static_cast<std::uint32_t>(random()) % ranks;
    step it{.what = static_cast<int>(random() % 5), .root = static_cast<std::uint32_t>(random()) % ranks};
    step changed = it;
    mutate(changed, ranks, random);
    if (mpi_world::rank() == odd) it = changed;
    const std::vector<float> before(200, static_cast<float>(mpi_world::rank()) + 2);
    std::vector<float> numbers = before;
    const comm_fault fault = mpi_world::fault_of([&] {
      it.run(one, as_bytes(numbers));
      one.finish();
      one.group->check();
    });
    missed += fault.number == -1 || fault.failure != comm_failure::mismatch || numbers != before ? 1 : 0;
  }
  return missed;
}

TEST_CASE("calls that differ on one rank are found by every rank before a byte changes", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank asks for what it asks for");
  CHECK(undetected(40, 1) == 0);
}

TEST_CASE("calls that differ are found by every rank, a thousand times", "[collective_mpi][.slow]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank asks for what it asks for");
  CHECK(undetected(1'000, 1'000) == 0);
}

TEST_CASE("ranks with other options do not become a group", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank has its own options");
  mpi_options options{.deadline = mpi_world::patience};
  if (mpi_world::rank() == 1) options.staging = bytes{4'096};
  mpi_world::doomed own;
  CHECK(mpi_world::fault_of([&] { mpi{own.session, MPI_COMM_WORLD, options}; }).failure == comm_failure::mismatch);
  CHECK(own.session.is_broken());
}

TEST_CASE("options that cannot work are refused before anything is sent", "[collective_mpi]")
{
  mpi_world::doomed own;
  CHECK_THROWS_AS((mpi{own.session, MPI_COMM_WORLD, {.deadline = std::chrono::milliseconds{0}}}), config_error);
  CHECK_THROWS_AS((mpi{own.session, MPI_COMM_WORLD, {.largest_message = bytes{100}}}), config_error);
  CHECK_THROWS_AS((mpi{own.session, MPI_COMM_WORLD, {.largest_message = bytes{std::uint64_t{1} << 31U}}}),
                  config_error);
}

TEST_CASE("what cannot be asked for is refused, and the group goes on", "[collective_mpi]")
{
  rig one;
  const std::uint32_t ranks = one.group->ranks();
  std::vector<float> numbers(64);
  std::byte* const place = as_bytes(numbers);
  const shares parts = shares::of(bytes{256}, ranks);
  CHECK_THROWS_AS(one.group->all_gather(one.arena, one.stream, place, shares::of(bytes{256}, ranks + 1), 0),
                  usage_error);
  CHECK_THROWS_AS(one.group->all_gather(one.arena, one.stream, nullptr, parts, 0), usage_error);
  CHECK_THROWS_AS(one.group->all_reduce(one.arena, one.stream, place, parts, {.type = dtype::uint8}, 0), usage_error);
  CHECK_THROWS_AS(one.group->broadcast(one.arena, one.stream, place, bytes{4}, rank_id{ranks}, 0), usage_error);
  CHECK_THROWS_AS(one.group->send(one.arena, one.stream, place, bytes{4}, one.group->rank(), 0), usage_error);
  CHECK_THROWS_AS(one.group->receive(one.arena, one.stream, place, bytes{4}, rank_id{ranks}, 0), usage_error);
  CHECK_THROWS_AS(one.group->barrier(one.arena, agent{15}, 0), usage_error);
  std::vector<std::uint64_t> all(ranks + 1);
  CHECK_THROWS_AS(one.group->exchange(std::span{all}.first(1), all), usage_error);
  one.group->barrier(one.arena, one.stream, 1);
  one.finish();
  CHECK_NOTHROW(one.group->check());
}

TEST_CASE("calls agreed on before are not agreed on again, and their fingerprints say whether ranks differed",
          "[collective_mpi]")
{
  rig one;
  std::vector<float> numbers(64);
  const shares parts = shares::of(bytes{256}, one.group->ranks());
  const std::uint64_t before = one.group->rolled();
  one.group->agreed(true);
  for (const std::uint32_t label : {1U, 2U})
    one.group->all_gather(one.arena, one.stream, as_bytes(numbers), parts, label + mpi_world::rank());
  one.group->agreed(false);
  one.finish();
  CHECK_NOTHROW(one.group->check());
  CHECK(one.group->rolled() != before);
  const std::uint64_t mine = one.group->rolled();
  std::vector<std::uint64_t> all(one.group->ranks());
  one.group->exchange({&mine, 1}, all);
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());  // each rank had labels of its own
}

TEST_CASE("a rank that ends the group ends the waits of all, for callers and agents", "[collective_mpi]")
{
  for (const bool on_agent : {true, false}) {
    rig one;
    if (mpi_world::rank() == 0) one.group->revoke();
    std::vector<std::uint64_t> all(one.group->ranks());
    const std::uint64_t word = 1;
    const comm_fault fault = mpi_world::fault_of([&] {
      if (on_agent)
        one.group->barrier(one.arena, one.stream, 0);
      else
        one.group->exchange({&word, 1}, all);
      one.finish();
      one.group->check();
    });
    CHECK(fault.number != -1);
    CHECK(fault.failure == comm_failure::revoked);
    CHECK(fault.rank == 0);
    CHECK_THROWS_AS(one.group->barrier(one.arena, one.stream, 0), comm_error);
    CHECK_THROWS_AS(one.group->check(), comm_error);
  }
}

TEST_CASE("a rank that destroys its end while others wait is lost to them", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank leaves nobody behind");
  rig one;
  one.group->barrier(one.arena, one.stream, 0);
  if (mpi_world::rank() == 0) {
    one.group.reset();  // at once
    return;
  }
  one.group->barrier(one.arena, one.stream, 1);
  one.finish();
  const comm_fault fault = mpi_world::fault_of([&] { one.group->check(); });
  CHECK(fault.number != -1);
  CHECK(fault.failure == comm_failure::peer_lost);
  CHECK(fault.rank == 0);
}

TEST_CASE("many groups come and go, and their ends do not disturb one another", "[collective_mpi]")
{
  for (std::uint32_t round = 0; round < 20; ++round) {
    rig one;
    std::vector<std::uint64_t> all(one.group->ranks());
    const std::uint64_t word = round;
    one.group->exchange({&word, 1}, all);
    one.group.reset();
    CHECK(all == std::vector<std::uint64_t>(all.size(), round));
    CHECK(!one.world.session.is_broken());
  }
}

}  // namespace mpi_test
