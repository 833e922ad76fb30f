// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/agreed_generation.hpp>

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/call_ref.hpp>

#include <support/catch.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>
#include <support/stored_generation.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace agreed_generation_test {

using namespace chunkmem;
using collective::local_threads;
using support::memory_folder;
using support::stored_generation;

namespace {

std::vector<std::string> said_on(std::uint32_t ranks, call_ref<std::string(local_threads& ranks)> work)
{
  std::vector<std::string> said(ranks);
  collective::thread_group group{ranks};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    local_threads own{group, rank_id{rank}};
    said[rank] = support::complaint_of([&] { return work(own); });
  });
  return said;
}

}  // namespace

TEST_CASE("all ranks hear which generations rank 0 sees", "[checkpoint]")
{
  memory_folder folder;
  memory_folder other;
  for (std::uint32_t seed = 1; seed <= 3; ++seed) stored_generation{seed}.write(folder);
  for (const std::string& it : said_on(3, [&](local_threads& ranks) {
         std::string text;
         for (const std::uint64_t number :
              checkpoint::generations_of_first(ranks, index_of(ranks.rank()) == 0 ? folder : other))
           text += std::to_string(number);
         return text;
       }))
    CHECK(it == "321");
}

TEST_CASE("a damaged byte is found by the rank whose block it is in, and all hear of it", "[checkpoint]")
{
  constexpr std::uint32_t elements = 1'100'000;  // two blocks in each file, and some
  const stored_generation content{5, 3, elements};
  memory_folder folder;
  content.write(folder);
  const auto check = [&](std::uint32_t ranks) {
    const auto say = [&](auto& own) {
      return checkpoint::is_whole(own, folder, 1) ? std::string{"whole"} : std::string{"damaged"};
    };
    std::vector<std::string> said = said_on(ranks, [&](local_threads& own) { return say(own); });
    collective::self alone;
    said.push_back(say(alone));
    return said;
  };
  for (const std::uint32_t ranks : {1U, 2U, 3U, 7U})
    for (const std::string& it : check(ranks)) CHECK(it == "whole");
  for (int file = 0; file < 3; ++file)
    for (const std::size_t byte :
         {std::size_t{3}, std::size_t{100}, std::size_t{300}, std::size_t{4'000'000}, std::size_t{6'000'000}}) {
      INFO("byte " << byte << " of file " << file);
      const std::string name = "generation-000001-0000" + std::to_string(file) + ".safetensors";
      folder.flip(name, byte);
      for (const std::string& it : check(3)) REQUIRE(it == "damaged");
      folder.flip(name, byte);
    }
  for (const std::string& it : check(3)) CHECK(it == "whole");
}

TEST_CASE("ranks that see another generation of the same number are refused", "[checkpoint]")
{
  memory_folder folder;
  memory_folder other;
  stored_generation{1}.write(folder);
  stored_generation{2}.write(other);
  for (const std::string& it : said_on(3, [&](local_threads& ranks) {
         (void)checkpoint::check_generation(ranks, index_of(ranks.rank()) == 1 ? other : folder, 1);
         return std::string{};
       }))
    CHECK(it.find("generation 1 is another one than rank 0 sees") != it.npos);
  memory_folder empty;
  for (const std::string& it : said_on(2, [&](local_threads& ranks) {
         return checkpoint::is_whole(ranks, index_of(ranks.rank()) == 1 ? empty : folder, 1) ? std::string{"whole"}
                                                                                             : std::string{"not"};
       }))
    CHECK(it == "not");
}

}  // namespace agreed_generation_test
