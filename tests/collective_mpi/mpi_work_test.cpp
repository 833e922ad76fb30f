// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi_work.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>

#include <bit>
#include <vector>

namespace mpi_work_test {

using namespace chunkmem;
using collective::mpi_group;
using collective::mpi_work;
using collective::operation;
using collective::shares;
using part = mpi_group::part;

struct own_work {
  own_work(std::uint64_t staging, std::uint64_t largest)
      : group{world.session, MPI_COMM_WORLD, mpi_world::patience}, work{group, bytes{staging}, bytes{largest}}
  {
    work.prepare_sums();
  }
  ~own_work()
  {
    group.leave();
    while (group.look_back() == collective::mpi_session::left_group::state::waiting) {
    }
  }

  void run(operation what, std::vector<float>& numbers, std::uint32_t root = 0)
  {
    const std::uint64_t size = numbers.size() * sizeof(float);
    mpi_group::attempt this_attempt{.what = {.what = what,
                                             .type = dtype::float32,
                                             .size = size,
                                             .root = root,
                                             .scale = std::bit_cast<std::uint32_t>(0.5F)},
                                    .each = shares::of(bytes{size}, group.ranks()).each,
                                    .sequence = ++sequence};
    if (what == operation::send) {
      this_attempt.of = part::pair;
      this_attempt.peer = group.rank() == root ? 1 - root : root;
      this_attempt.sequence = ++pairs[this_attempt.peer];
    }
    work.expect();
    work.run({.at = this_attempt, .place = reinterpret_cast<std::byte*>(numbers.data())});
    REQUIRE(!group.has_failed());
    REQUIRE(!work.is_expected());
  }

  mpi_world::doomed world;
  mpi_group group;
  mpi_work work;
  std::uint64_t sequence = 0;
  std::uint64_t pairs[8] = {};
};

float number_of(std::uint32_t rank, std::size_t index)
{
  return static_cast<float>(rank + 1) * 1e7F / static_cast<float>(3 * index + 7);
}

std::vector<float> numbers_of(std::uint32_t rank, std::size_t count)
{
  std::vector<float> result;
  for (std::size_t index = 0; index < count; ++index) result.push_back(number_of(rank, index));
  return result;
}

// In order of ranks, then halved: the rule, once more and plainly.
std::vector<float> sums_of(std::uint32_t ranks, std::size_t count)
{
  std::vector<float> result;
  for (std::size_t index = 0; index < count; ++index) {
    volatile float sum = number_of(0, index);
    for (std::uint32_t rank = 1; rank < ranks; ++rank) sum = sum + number_of(rank, index);
    result.push_back(sum * 0.5F);
  }
  return result;
}

constexpr std::size_t counts[] = {0, 1, 64, 65, 127, 1'000, 4'096};

TEST_CASE("shares in pieces of any length become the whole on every rank", "[collective_mpi]")
{
  for (const std::uint64_t largest : {256U, 512U, 1'024U, 1U << 30U}) {
    own_work own{1 << 20, largest};
    for (const std::size_t count : counts) {
      const shares parts = shares::of(bytes{count * 4}, own.group.ranks());
      std::vector<float> numbers(count, -1.0F);
      std::vector<float> expected(count);
      for (std::uint32_t rank = 0; rank < own.group.ranks(); ++rank)
        for (std::size_t index = parts.begin(rank) / 4; index < parts.end(rank) / 4; ++index) {
          expected[index] = number_of(rank, index);
          if (rank == own.group.rank()) numbers[index] = expected[index];
        }
      own.run(operation::all_gather, numbers);
      CHECK(numbers == expected);
    }
  }
}

TEST_CASE("sums in pieces of any length are those in order of ranks, with any staging", "[collective_mpi]")
{
  for (const std::uint64_t staging : {0U, 700U, 1U << 20U}) {
    for (const std::uint64_t largest : {256U, 1U << 30U}) {
      own_work own{staging, largest};
      for (const std::size_t count : counts) {
        std::vector<float> numbers = numbers_of(own.group.rank(), count);
        own.run(operation::all_reduce, numbers);
        CHECK(numbers == sums_of(own.group.ranks(), count));

        numbers = numbers_of(own.group.rank(), count);
        own.run(operation::reduce_scatter, numbers);
        const shares parts = shares::of(bytes{count * 4}, own.group.ranks());
        const std::vector<float> expected = sums_of(own.group.ranks(), count);
        for (std::size_t index = parts.begin(own.group.rank()) / 4; index < parts.end(own.group.rank()) / 4; ++index)
          REQUIRE(std::bit_cast<std::uint32_t>(numbers[index]) == std::bit_cast<std::uint32_t>(expected[index]));
      }
    }
  }
}

TEST_CASE("a broadcast reaches every rank from every root, in pieces", "[collective_mpi]")
{
  for (const std::uint64_t largest : {256U, 1U << 30U}) {
    own_work own{0, largest};
    for (std::uint32_t root = 0; root < own.group.ranks(); ++root)
      for (const std::size_t count : counts) {
        std::vector<float> numbers = numbers_of(own.group.rank(), count);
        own.run(operation::broadcast, numbers, root);
        CHECK(numbers == numbers_of(root, count));
      }
  }
}

TEST_CASE("what one rank hands to another arrives, in pieces", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank has nobody to send to");
  for (const std::uint64_t largest : {256U, 1U << 30U}) {
    own_work own{0, largest};
    for (const std::size_t count : counts) {
      std::vector<float> numbers = numbers_of(own.group.rank(), count);
      if (own.group.rank() < 2) own.run(operation::send, numbers, 1);
      CHECK(numbers == numbers_of(own.group.rank() < 2 ? 1 : own.group.rank(), count));
    }
  }
}

}  // namespace mpi_work_test
