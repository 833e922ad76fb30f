// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/agreed_outcome.hpp>

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/collective/thread_group.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace agreed_outcome_test {

using namespace chunkmem;
using collective::agreed;
using collective::all_or_none;
using collective::local_threads;

namespace {

/// The error of each rank, by the name of its class.
struct met {
  std::string what;
  std::string said;
};

met outcome_of(const std::function<void()>& work)
{
  try {
    work();
    return {"nothing", ""};
  } catch (const out_of_memory& it) {
    return {
        "out_of_memory of " + std::to_string(it.shortage().requested) + " of " + std::to_string(it.shortage().capacity),
        it.what()};
  } catch (const io_error& it) {
    return {"io " + std::to_string(it.fault().number) + " at " + std::to_string(it.fault().offset), it.what()};
  } catch (const config_error& it) {
    return {"config", it.what()};
  } catch (const usage_error& it) {
    return {"usage", it.what()};
  } catch (const corrupt_data& it) {
    return {"corrupt", it.what()};
  } catch (const format_error& it) {
    return {"format", it.what()};
  } catch (const device_error& it) {
    return {"device", it.what()};
  } catch (const internal_error& it) {
    return {"internal", it.what()};
  } catch (const size_overflow& it) {
    return {"overflow", it.what()};
  } catch (const comm_error& it) {
    return {"comm", it.what()};
  } catch (const std::bad_alloc& it) {
    return {"bad_alloc", it.what()};
  } catch (const std::exception& it) {
    return {"other", it.what()};
  }
}

/// @param work   `work(rank)` of one rank
std::vector<met> on(std::uint32_t ranks, const std::function<void(std::uint32_t)>& work)
{
  std::vector<met> all(ranks);
  collective::thread_group group{ranks, {.deadline = 500'000'000}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    local_threads own{group, rank_id{rank}};
    all[rank] = outcome_of([&] { all_or_none(own, [&] { work(rank); }); });
    if (all[rank].what == "comm" || all[rank].what == "other") return;
    // the group goes on
    if (collective::words_of_all(own, rank) != std::vector<std::uint64_t>{0, 1, 2}) all[rank].what += ", and others";
  });
  return all;
}

}  // namespace

TEST_CASE("work that succeeds everywhere is over when all say so", "[collective]")
{
  collective::thread_group group{3};
  support::on_ranks(3, [&](std::uint32_t rank) {
    local_threads own{group, rank_id{rank}};
    std::uint32_t rounds = 0;
    while (!agreed(own, [&] { return ++rounds > rank * 2; })) {
    }
    if (rounds != 5) throw std::runtime_error{std::to_string(rounds) + " rounds"};  // those of rank 2
  });
}

TEST_CASE("what one rank meets all throw, in its class and with its numbers", "[collective]")
{
  const std::vector<std::pair<std::string, std::function<void()>>> errors{
      {"config", [] { throw config_error{"a sentence"}; }},
      {"usage", [] { throw usage_error{"a sentence"}; }},
      {"corrupt", [] { throw corrupt_data{"a sentence"}; }},
      {"format", [] { throw format_error{"a sentence"}; }},
      {"device", [] { throw device_error{"a sentence"}; }},
      {"internal", [] { throw internal_error{"a sentence"}; }},
      {"io 28 at 4096",
       [] {
         throw io_error{error_text{} << "chunkmem: a sentence", {28, 4096}};
       }},
  };
  for (const auto& [name, raise] : errors)
    for (std::uint32_t who = 0; who < 3; ++who) {
      const auto all = on(3, [&, &it = raise](std::uint32_t rank) {
        if (rank == who) it();
      });
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        INFO(name << " of rank " << who << " on rank " << rank);
        CHECK(all[rank].what == name);
        CHECK(all[rank].said ==
              (rank == who ? "chunkmem: a sentence" : "chunkmem: rank " + std::to_string(who) + ": a sentence"));
      }
    }
}

TEST_CASE("a shortage of memory is told with its numbers, and a size that does not fit as a config_error on others",
          "[collective]")
{
  for (const met& it : on(3, [](std::uint32_t rank) {
         if (rank == 1) throw out_of_memory{{tier::host, 77, 99, 50, 127, false}};
       })) {
    CHECK(it.what == "out_of_memory of 77 of 99");
    CHECK(
        it.said.find("this moment fits in 127 B (raise the capacity, drop tensors that are dead, or hold fewer pins") !=
        std::string::npos);
  }
  for (const met& it : on(3, [](std::uint32_t rank) {
         if (rank == 1) throw out_of_memory{{tier::device, 77, 99, 33, 110, false, 0, 33}};
       }))
    CHECK(it.said.find("33 B of it were allocated from this backend before") != std::string::npos);
  for (const met& it : on(3, [](std::uint32_t rank) {
         if (rank == 2) throw std::bad_alloc{};
       }))
    CHECK(it.what == "bad_alloc");
  const auto sizes = on(3, [](std::uint32_t rank) {
    if (rank == 1) throw size_overflow{"something", 1, 2};
  });
  CHECK(sizes[0].what == "config");
  CHECK(sizes[1].what == "overflow");
  CHECK(sizes[2].what == "config");
}

TEST_CASE("of several errors the first rank's is thrown everywhere, and long sentences are cut", "[collective]")
{
  const auto all = on(3, [](std::uint32_t rank) {
    if (rank == 1) throw config_error{std::string(600, 'x')};
    if (rank == 2) throw io_error{"another"};
  });
  for (const met& it : all) CHECK(it.what == "config");
  CHECK(all[2].said == all[0].said);
  CHECK(all[0].said.starts_with("chunkmem: rank 1: xxxx"));
}

TEST_CASE("a rank that ends instead is heard of by the deadline", "[collective]")
{
  const auto all = on(3, [](std::uint32_t rank) {
    if (rank == 1) throw std::runtime_error{"killed"};
  });
  CHECK(all[0].what == "comm");
  CHECK(all[1].what == "other");
  CHECK(all[2].what == "comm");
}

TEST_CASE("a group of one by its type is that very type: one that derives from it may have more members",
          "[collective]")
{
  struct derived : collective::self {};
  CHECK(collective::is_alone<collective::self>);
  CHECK_FALSE(collective::is_alone<derived>);
}

}  // namespace agreed_outcome_test

namespace named_words_test {

using namespace chunkmem;
using words = std::vector<std::pair<std::uint64_t, std::string>>;

/// The error of every rank, which has to be the same.
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
