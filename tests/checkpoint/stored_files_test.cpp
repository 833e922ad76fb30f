// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/stored_files.hpp>

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <cstdint>
#include <vector>

namespace stored_files_test {

using namespace chunkmem;
using checkpoint::stored_file;

TEST_CASE("all ranks hear of the files of all, those of rank 0 first", "[checkpoint]")
{
  constexpr std::uint64_t block = checkpoint::sum_block;
  const std::vector<std::vector<stored_file>> files{
      {},
      {{"generation-000009-00000.safetensors", 300, 100, {1, 2}},
       {"generation-000009-00001.safetensors", 50 + 2 * block, 50, {3, 4, 5}}},
      {{"generation-000009-00002.safetensors", 8, 8, {6}}},
      {{"generation-000009-00003.safetensors", 51 + 2 * block, 50, {7, 8, 9, 10}}},
  };
  std::vector<stored_file> all;
  for (const auto& of_rank : files) all.insert(all.end(), of_rank.begin(), of_rank.end());
  std::vector<std::vector<stored_file>> heard(4);
  collective::thread_group group{4};
  support::on_ranks(4, [&](std::uint32_t rank) {
    collective::local_threads own{group, rank_id{rank}};
    heard[rank] = checkpoint::files_of_all(own, files[rank], 9);
  });
  for (const auto& it : heard) CHECK(it == all);
  collective::self alone;
  CHECK(checkpoint::files_of_all(alone, files[1], 9) == files[1]);
}

TEST_CASE("where nobody wrote a file there are none", "[checkpoint]")
{
  collective::thread_group group{1};
  collective::local_threads own{group, rank_id{0}};
  CHECK(checkpoint::files_of_all(own, {}, 1).empty());
}

}  // namespace stored_files_test
