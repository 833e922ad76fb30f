// SPDX-License-Identifier: Apache-2.0
// Every disk that a power cut may leave while several ranks save, every file operation that may fail, and every moment
// at which a rank may end.
#include "cut_rig.hpp"

#include <support/catch.hpp>
#include <support/power_cut_search.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace power_cut_test {

using namespace resharding;
using support::disk_content;
using support::power_cut_search;
using support::simulated_folder;
namespace checkpoint = cm::checkpoint;

namespace {

bool all_are(const std::vector<std::string>& ends, std::string_view what)
{
  for (const std::string& it : ends) UNSCOPED_INFO(it);
  return std::ranges::all_of(ends, [&](const std::string& it) { return it.starts_with(what); });
}

/// A folder with the values of a seed, saved by some ranks.
disk_content saved(std::uint32_t ranks, std::uint32_t seed, const disk_content& before = {})
{
  simulated_folder folder{before};
  REQUIRE(all_are(save_once(folder, {.ranks = ranks, .seed = seed}).how, "saved"));
  return folder.content();
}
known_values values_of(std::uint32_t ranks)
{
  known_values known;
  for (const std::uint32_t seed : {1U, 2U, 3U}) known.learn(seed, simulated_folder{saved(ranks, seed)});
  return known;
}

/// Cuts the power at every moment of a save of seed 2 (or `how.seed`). Once it is acknowledged on any rank nothing else
/// may be found.
power_cut_search::result cut(const disk_content& before, const attempt& how, known_values& known, std::int64_t older)
{
  std::atomic<bool> is_acknowledged{false};
  power_cut_search search{before, [&](const simulated_folder& left) {
                            const std::int64_t found = known.newest(left);
                            return is_acknowledged && found != how.seed ? -2 : found;
                          }};
  search.allow({older, how.seed});
  std::vector<std::string> ends;
  search.during([&] { ends = save_once(search.folder(), how, [&] { is_acknowledged = true; }).how; });
  search.look();
  CHECK(all_are(ends, "saved"));
  return search.found();
}

/// How loads of a seed's values over two ranks end. @param ranks   that saved it
std::vector<std::string> loaded(const disk_content& disk, std::uint32_t ranks, std::uint32_t seed)
{
  return on_folder(
      simulated_folder{disk}, {.ranks = 2, .sized_for = ranks},
      [&](std::uint32_t, counting_ranks&, tiny_type& model, tiny_tensors& tensors, rank_folder& view, turns&) {
        (void)checkpoint::load(model, view);
        if (!tensors.holds(seed)) throw std::runtime_error{"other values"};
      });
}

/// Every generation that has a manifest is whole: there is nothing that a loader would have to skip.
bool has_no_damaged(const simulated_folder& folder)
{
  for (const std::uint64_t it : checkpoint::generations_in(folder))
    if (!checkpoint::is_whole(folder, it)) return false;
  return true;
}

}  // namespace

TEST_CASE("a power cut leaves the older generation of all ranks or the new one, whatever order they write in",
          "[resharding]")
{
  std::uint64_t states = 0;
  for (const std::uint32_t ranks : {2U, 3U}) {
    known_values known = values_of(ranks);
    const disk_content before = saved(ranks, 1);
    for (std::uint64_t order = 1; order <= (ranks == 2 ? 6U : 2U); ++order) {
      INFO(ranks << " ranks, order " << order);
      for (const auto& found : {cut(before, {.ranks = ranks, .order = order, .seed = 2}, known, 1),
                                cut({}, {.ranks = ranks, .order = order, .seed = 2}, known, 0)}) {
        CHECK(found.corrupt == 0);
        states += found.states;
      }
    }
    // Two saves deep, and loads over ranks, for some of what was left.
    std::uint64_t index = 0;
    const auto left = known.asked();
    for (const auto& [disk, newest] : left) {
      if (index++ % (left.size() / 6 + 1) != 0) continue;
      INFO("disk " << index);
      if (newest > 0) CHECK(all_are(loaded(disk, ranks, static_cast<std::uint32_t>(newest)), "saved"));
      const auto found = cut(disk, {.ranks = ranks, .order = index, .seed = 3}, known, newest);
      CHECK(found.corrupt == 0);
      states += found.states;
    }
  }
  CHECK(states > 10'000);
}

TEST_CASE("the same search finds a rank whose syncs do nothing", "[resharding]")
{
  known_values known = values_of(2);
  const disk_content before = saved(2, 1);
  const auto corrupt = [&](std::array<rank_lies, 4> lies) {
    std::uint64_t wrong = 0;
    for (std::uint64_t order = 1; order <= 3; ++order)
      wrong += cut(before, {.ranks = 2, .order = order, .seed = 2, .lies = lies}, known, 1).corrupt;
    return wrong;
  };
  CHECK(corrupt({}) == 0);
  CHECK(corrupt({rank_lies{}, {.file_syncs = true}}) > 0);
  CHECK(corrupt({rank_lies{.file_syncs = true}, {}}) > 0);
  CHECK(corrupt({rank_lies{.folder_syncs = true}, {.folder_syncs = true}}) > 0);
}

TEST_CASE("a file operation that fails on one rank fails the save on all, and the next one succeeds", "[resharding]")
{
  for (const std::uint32_t ranks : {2U, 3U}) {
    known_values known = values_of(ranks);
    const disk_content before = saved(ranks, 1);
    std::uint64_t failed = 0;
    for (std::uint64_t index = 0;; ++index) {
      INFO(ranks << " ranks, operation " << index);
      simulated_folder folder{before};
      folder.set_faults({.at = index});
      bool is_over = false;
      std::vector<std::string> first(ranks);
      std::vector<std::string> clean_up(ranks);
      const auto ends = on_folder(folder, {.ranks = ranks, .order = index},
                                  [&](std::uint32_t rank, counting_ranks& all, tiny_type& model, tiny_tensors& tensors,
                                      rank_folder& view, turns&) {
                                    model.shares().content().belongs_to(1);
                                    tensors.fill(2);
                                    first[rank] = outcome_of([&] {
                                      clean_up[rank] = cm::checkpoint::save(model, view, {.keep = 1}).clean_up.view();
                                    });
                                    const auto met = cm::collective::words_of_all(all, 0);
                                    if (rank == 0) {
                                      is_over = folder.failures() == 0;
                                      folder.set_faults({});
                                    }
                                    (void)cm::collective::words_of_all(all, 0);
                                    if (!tensors.holds(2)) throw std::runtime_error{"other values"};
                                    tensors.fill(3);
                                    (void)cm::checkpoint::save(model, view, {.keep = 1});
                                  });
      CHECK(all_are(ends, "saved"));
      CHECK(known.newest(folder) == 3);
      CHECK(has_no_damaged(folder));
      if (is_over) break;
      if (first[0] != "saved") ++failed;
      CHECK((all_are(first, "saved") || all_are(first, "io: ")));
    }
    CHECK(failed > 10);
  }
}

TEST_CASE("a failed save leaves the older generation on every disk that a power cut leaves", "[resharding]")
{
  known_values known = values_of(2);
  const disk_content before = saved(2, 1);
  for (std::uint64_t index = 0;; ++index) {
    INFO("operation " << index);
    power_cut_search search{before, [&](const simulated_folder& left) { return known.newest(left); }};
    search.allow({1, 2});
    search.folder().set_faults({.at = index});
    std::vector<std::string> ends;
    search.during([&] { ends = save_once(search.folder(), {.ranks = 2, .order = index, .seed = 2}).how; });
    CHECK(search.found().corrupt == 0);
    if (search.folder().failures() == 0) break;
    CHECK((all_are(ends, "saved") || all_are(ends, "io: ")));
  }
}

TEST_CASE("where a manifest can neither be made safe nor taken back for good its files stay", "[resharding]")
{
  known_values known = values_of(2);
  const disk_content before = saved(2, 1);
  for (std::uint32_t good = 0; good < 5; ++good) {
    INFO("after " << good << " syncs of the folder by rank 0");
    power_cut_search search{before, [&](const simulated_folder& left) { return known.newest(left); }};
    search.allow({1, 2});
    std::vector<std::string> ends;
    search.during([&] {
      ends = save_once(search.folder(), {.ranks = 2, .seed = 2, .lies = {rank_lies{.good_syncs = good}}}).how;
    });
    search.look();
    CHECK(search.found().corrupt == 0);
    // of the claim, of the files, of the manifest; removing what is older may fail
    CHECK(all_are(ends, good < 3 ? "io: " : "saved"));
  }
}

TEST_CASE("a rank that ends at any exchange of a save, or hears of none, ends it for all, and leaves the folder whole",
          "[resharding]")
{
  for (const std::uint32_t ranks : {2U, 3U}) {
    known_values known = values_of(ranks);
    const disk_content before = saved(ranks, 1);
    simulated_folder undisturbed{before};
    const std::uint64_t exchanges = save_once(undisturbed, {.ranks = ranks, .seed = 2}).exchanges;
    REQUIRE(exchanges > 8);
    const auto end_at = [&](std::uint64_t index, std::uint32_t who, ending kind, std::uint64_t order) {
      INFO("rank " << who << " of " << ranks << ", ending " << static_cast<int>(kind) << ", exchange " << index
                   << " of " << exchanges << ", order " << order);
      simulated_folder folder{before};
      const auto ends =
          save_once(folder,
                    {.ranks = ranks, .order = order, .seed = 2, .ends_at = index, .who_ends = who, .kind = kind})
              .how;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        INFO(ends[rank]);
        const bool may_succeed = index + 1 == exchanges && kind != ending::before && rank != who;
        CHECK(((rank == who && kind != ending::unheard ? ends[rank] == "died" : ends[rank].starts_with("comm: ")) ||
               (may_succeed && ends[rank] == "saved")));
      }
      const std::int64_t newest = known.newest(folder);
      CHECK((newest == 1 || newest == 2));
      CHECK(has_no_damaged(folder));
      CHECK(all_are(save_once(folder, {.ranks = ranks, .seed = 3}).how, "saved"));
      CHECK(known.newest(folder) == 3);
    };
    for (std::uint64_t index = 0; index < exchanges; ++index)
      for (std::uint32_t who = 0; who < ranks; ++who)
        for (const ending kind : {ending::before, ending::behind, ending::unheard})
          for (std::uint64_t order = 1; order <= (kind == ending::before ? 1U : ranks == 2 ? 3U : 2U); ++order)
            end_at(index, who, kind, order);
  }
}

}  // namespace power_cut_test
