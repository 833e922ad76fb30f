// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/agreed_outcome.hpp>

#include <chunkmem/collective/local_threads.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace named_words_test {

using namespace chunkmem;
using words = std::vector<std::pair<std::uint64_t, std::string>>;

/// What every rank is told, which has to be the same.
std::string said(const std::vector<words>& of_ranks)
{
  const auto ranks = static_cast<std::uint32_t>(of_ranks.size());
  std::vector<std::string> all(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    collective::local_threads here{group, rank_id{rank}};
    collective::named_words mine;
    for (const auto& [word, text] : of_ranks[rank]) mine.add(text.substr(0, 1), word, text);
    all[rank] = mine.difference(here, {"they differ", "rank", "do the same"}).view();
  });
  for (const std::string& it : all) CHECK(it == all[0]);
  return all[0];
}

TEST_CASE("the first word that differs is named, with the ranks that differ from most of them", "[collective]")
{
  const words usual{{1, "a = 1"}, {2, "b = 2"}, {3, "c = 3"}};
  const words other{{1, "a = 1"}, {9, "b = 9"}, {8, "c = 8"}};
  CHECK(said({usual, other}) == "chunkmem: they differ: b = 9 on rank 1, and b = 2 on rank 0 (do the same)");
  CHECK(said({other, usual, usual}) == "chunkmem: they differ: b = 9 on rank 0, and b = 2 on rank 1 (do the same)");
  CHECK(said({usual, other, usual, other, usual}) ==
        "chunkmem: they differ: b = 9 on rank 1, and b = 2 on rank 0; ranks 1, 3 differ from rank 0 (do the same)");
}

TEST_CASE("a rank without the word says so, and of a long text both ends are said", "[collective]")
{
  const words usual{{0, "a = 0"}};
  CHECK(said({usual, {{0, "a = 0"}, {0, "b = 0"}}}) ==
        "chunkmem: they differ: b = 0 on rank 1, and nothing like it on rank 0 (do the same)");
  CHECK(said({{{1, "a = 1"}, {3, "c = 3"}}, {{1, "a = 1"}, {2, "b = 2"}, {3, "c = 3"}}}) ==
        "chunkmem: they differ: b = 2 on rank 1, and nothing like it on rank 0 (do the same)");
  CHECK(said({usual, {}}) == "chunkmem: they differ: nothing like it on rank 1, and a = 0 on rank 0 (do the same)");
  const auto of_long_name = [](const std::string& end) { return "weight " + std::string(500, 'x') + end; };
  const std::string all = said({{{1, of_long_name(" of 3")}}, {{2, of_long_name(" of 4")}}});
  for (const char* one : {"weight xxx", "x ... x", "xxx of 3 on rank 0", "xxx of 4 on rank 1"})
    CHECK(all.find(one) != all.npos);
}

}  // namespace named_words_test
