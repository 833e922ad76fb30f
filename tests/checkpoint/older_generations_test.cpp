// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/older_generations.hpp>

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/stored_generation.hpp>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace older_generations_test {

using namespace chunkmem;
using collective::local_threads;
using support::memory_folder;
using support::stored_generation;

namespace {

constexpr std::uint32_t ranks = 3;

/// The generations of a folder after `keep(communicator)` on each of three ranks. A single rank leaves the same.
template <class Keep>
std::vector<std::uint64_t> left_by_all(const std::vector<std::uint64_t>& damaged, Keep keep)
{
  const auto begin = [&](memory_folder& folder) {
    for (std::uint32_t seed = 1; seed < 4; ++seed) stored_generation{seed, 3, 1000}.write(folder);
    for (const std::uint64_t it : damaged) folder.flip(checkpoint::detail::tensors_name(it, 1), 3000);
  };
  memory_folder folder, of_one;
  begin(folder);
  begin(of_one);
  collective::thread_group group{ranks};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    local_threads here{group, rank_id{rank}};
    keep(here, folder);
  });
  collective::self alone;
  keep(alone, of_one);
  CHECK(checkpoint::generations_in(folder) == checkpoint::generations_in(of_one));
  return checkpoint::generations_in(folder);
}

/// The ranks that read the older generations before the newest exists.
enum class readers : std::uint8_t { none, some, all };

/// Numbers that stay behind the fourth of four, some of which are damaged.
std::vector<std::uint64_t> kept(const std::vector<std::uint64_t>& damaged, const checkpoint::save_options& options,
                                readers before)
{
  return left_by_all(damaged, [&](auto& here, memory_folder& folder) {
    const std::uint32_t rank = index_of(here.rank());
    checkpoint::older_generations older{here, folder, options};
    older.find();
    if (before == readers::all || (before == readers::some && rank != 1)) older.check_own_part([](std::uint64_t) {});
    (void)collective::words_of_all(here, 0);
    if (rank == 0) stored_generation{4, 3, 1000}.write(folder);
    (void)collective::words_of_all(here, 0);
    if (!older.remove(4).view().empty()) throw std::runtime_error{"older generations stay"};
  });
}

}  // namespace

TEST_CASE("the newest whole generations stay, whoever reads the older ones and when", "[checkpoint]")
{
  using numbers = std::vector<std::uint64_t>;
  for (const readers before : {readers::none, readers::some, readers::all}) {
    CAPTURE(before);
    CHECK(kept({}, {.keep = 2}, before) == numbers{4, 3});
    CHECK(kept({}, {.keep = 3}, before) == numbers{4, 3, 2});
    CHECK(kept({3}, {.keep = 2}, before) == numbers{4, 3, 2});
    CHECK(kept({3}, {.keep = 3}, before) == numbers{4, 3, 2, 1});
    CHECK(kept({3, 2}, {.keep = 2}, before) == numbers{4, 3, 2, 1});
    CHECK(kept({3}, {.keep = 2, .check_older = false}, before) == numbers{4, 3});
    CHECK(kept({}, {.keep = 1}, before) == numbers{4});
  }
}

TEST_CASE("as many whole generations stay while a new one is written as are asked for", "[checkpoint]")
{
  using numbers = std::vector<std::uint64_t>;
  const auto stay = [](const std::vector<std::uint64_t>& damaged, std::uint32_t meanwhile) {
    return left_by_all(damaged, [&](auto& here, memory_folder& folder) {
      checkpoint::older_generations older{
          here, folder, checkpoint::save_options{.keep = 2, .check_older = false, .keep_while_writing = meanwhile}};
      older.make_room();
    });
  };
  CHECK(stay({}, 0) == numbers{3, 2, 1});
  CHECK(stay({}, 1) == numbers{3});
  CHECK(stay({}, 2) == numbers{3, 2});
  CHECK(stay({3}, 1) == numbers{3, 2});
  CHECK(stay({3, 2, 1}, 1) == numbers{3, 2, 1});
}

TEST_CASE("what every rank has read before is not read again", "[checkpoint]")
{
  memory_folder folder;
  for (std::uint32_t seed = 1; seed < 4; ++seed) stored_generation{seed, 3, 1000}.write(folder);
  collective::thread_group group{ranks};
  std::vector<std::uint64_t> read(ranks);
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    local_threads here{group, rank_id{rank}};
    checkpoint::older_generations older{here, folder, checkpoint::save_options{.keep = 2}};
    older.find();
    older.check_own_part([&](std::uint64_t bytes) { read[rank] += bytes; });
    (void)collective::words_of_all(here, 0);
    if (rank == 0) folder.flip(checkpoint::detail::tensors_name(3, 1), 3000);  // nobody looks again
    if (rank == 0) stored_generation{4, 3, 1000}.write(folder);
    (void)collective::words_of_all(here, 0);
    (void)older.remove(4);
  });
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{4, 3});
  for (const std::uint64_t it : read) CHECK(it > 0);
}

}  // namespace older_generations_test
