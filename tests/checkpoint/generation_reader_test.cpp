// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_reader.hpp>

#include <support/catch.hpp>
#include <support/disk_mutants.hpp>
#include <support/oracles/dice.hpp>
#include <support/power_cut_search.hpp>
#include <support/sanitized.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace generation_reader_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using checkpoint::newest_whole;
using checkpoint::remove_leftovers;
using checkpoint::remove_older;
using support::newest_seed;
using support::power_cut_search;
using support::simulated_folder;
using support::stored_generation;

namespace {

const std::vector<stored_generation>& known()
{
  static const std::vector<stored_generation> all{stored_generation{11}, stored_generation{12}, stored_generation{13},
                                                  stored_generation{14}};
  return all;
}

support::disk_content disk_of(std::size_t generations)
{
  simulated_folder folder;
  for (std::size_t index = 0; index < generations; ++index) known()[index].write(folder);
  return folder.content();
}

std::int64_t newest_of(const support::disk_content& disk)
{
  return newest_seed(simulated_folder{disk}, known());
}

/// Saves as a model is saved, through folders that know no locks and that lie (save_test.cpp searches the save itself).
/// `acknowledged()` is called when the caller may believe that it is safe.
template <class Folder, class Acknowledged>
void save(Folder& folder, const stored_generation& what, std::size_t keep, Acknowledged acknowledged)
{
  remove_leftovers(folder);
  what.write(folder);
  acknowledged();
  const std::uint64_t newest = checkpoint::generations_in(folder).front();
  remove_older(folder, keep, [&](std::uint64_t generation) {
    return generation == newest || checkpoint::is_whole(folder, generation);
  });
  remove_leftovers(folder);
}

struct how_to_cut {
  std::size_t keep = 1;
  std::uint64_t short_seed = 0;  ///< not 0: writes are short, so that there are many
  bool keeps_left = false;       ///< also remembers the different disks that are left
};

/// The power goes at every moment of a save.
template <class Folder>
power_cut_search::result cut_everywhere(const support::disk_content& before, const stored_generation& what,
                                        const how_to_cut& how, Folder wrap)
{
  power_cut_search search{before, known()};
  if (how.keeps_left) search.keep_what_is_left();
  search.allow({newest_of(before), what.seed()});
  search.folder().set_faults({.short_seed = how.short_seed});
  search.during([&] {
    auto folder = wrap(search.folder());
    save(folder, what, how.keep, [&] { search.allow({what.seed()}); });
  });
  return search.found();
}

const auto honest = [](simulated_folder& folder) { return folder; };

power_cut_search::result cut_with(support::lies how)
{
  return cut_everywhere(disk_of(1), known()[1], {}, [&](simulated_folder& folder) {
    return support::lying_folder{folder, how};
  });
}

}  // namespace

TEST_CASE("the newest whole generation is found, with the reasons why newer ones are not", "[checkpoint]")
{
  std::vector<checkpoint::skipped_generation> skipped;
  CHECK_FALSE(newest_whole(simulated_folder{}, skipped));
  simulated_folder folder{disk_of(3)};
  const auto newest = newest_whole(folder, skipped);
  REQUIRE(newest);
  CHECK(newest->content().generation == 3);
  CHECK(known()[2].is_in(folder, newest->generation()));
  CHECK(skipped.empty());

  REQUIRE(folder.remove("generation-000003-00001.safetensors"));
  folder.put("generation-000002.manifest", "nothing that one would write into a manifest");
  const auto oldest = newest_whole(folder, skipped);
  REQUIRE(oldest);
  CHECK(known()[0].is_in(folder, oldest->generation()));
  REQUIRE(skipped.size() == 2);
  CHECK(skipped[0].number == 3);
  CHECK_THAT(skipped[0].why, ContainsSubstring("generation-000003-00001.safetensors"));
  CHECK(skipped[1].number == 2);
  CHECK_THAT(skipped[1].why, ContainsSubstring("damaged"));
}

TEST_CASE("a generation whose files were exchanged is not whole", "[checkpoint]")
{
  const support::disk_content two = disk_of(2);
  const std::string files[] = {"generation-000002.manifest", "generation-000002-00000.safetensors",
                               "generation-000002-00001.safetensors"};
  const std::string others[] = {"generation-000001.manifest", "generation-000001-00000.safetensors",
                                "generation-000001-00001.safetensors"};
  for (std::size_t index = 0; index < 3; ++index) {
    support::disk_content changed = two;
    changed[files[index]] = two.at(others[index]);  // an older version of the same
    CHECK(newest_of(changed) == 11);
  }
  support::disk_content swapped = two;
  std::swap(swapped[files[1]], swapped[files[2]]);
  CHECK(newest_of(swapped) == 11);
  // Without files only its number tells whose manifest it is.
  support::disk_content renamed = two;
  renamed["generation-000009.manifest"] = checkpoint::write_manifest({.generation = 8});
  CHECK(newest_of(renamed) == 12);
  renamed["generation-000009.manifest"] = checkpoint::write_manifest({.generation = 9, .lists = {{"all", 1}}});
  CHECK(newest_of(renamed) == -1);
}

TEST_CASE("a manifest with a right checksum cannot point elsewhere, or at what is no table", "[checkpoint]")
{
  const std::string outside = "generation-000001-00000.safetensors";
  const auto reason = [&](std::vector<checkpoint::stored_file> files, const std::string& content) {
    simulated_folder folder{disk_of(1)};
    folder.put("generation-000002-00000.safetensors", content);
    for (checkpoint::stored_file& it : files)
      if (it.size == 0)
        it = {it.name, content.size(), content.size(), {io::checksum_of(stored_generation::bytes_of(content))}};
    folder.put("generation-000002.manifest", checkpoint::write_manifest({.generation = 2, .files = files}));
    std::vector<checkpoint::skipped_generation> skipped;
    const auto found = newest_whole(folder, skipped);
    return found && found->content().generation == 1 ? skipped.at(0).why : "it is taken";
  };
  const std::string own = "generation-000002-00000.safetensors";
  const std::string empty = checkpoint::write_table({});
  CHECK(reason({{own}}, empty) == "it is taken");
  for (const std::string& name :
       {outside, std::string{"../secret"}, std::string{}, std::string{"generation-000002-00001.safetensors"}})
    CHECK_THAT(reason({{name}}, empty), ContainsSubstring("names a file that is not its own"));
  CHECK_THAT(reason({{own}, {own}}, empty), ContainsSubstring("names a file that is not its own"));
  CHECK_THAT(reason({{own, UINT64_MAX, 0, {}}}, empty), ContainsSubstring("a file that cannot be"));
  CHECK_THAT(reason({{own}}, "1234567"), ContainsSubstring("a file that cannot be"));
  for (const char last : {'\0', '\1', '\x7f', '\xff'}) {  // lengths up to 2^64 - 1
    const std::string length = std::string(6, '\xff') + '\0' + last;
    CHECK_THAT(reason({{own}}, length + "{}"), ContainsSubstring("has another length than its manifest says"));
  }
  CHECK_THAT(reason({{own}}, std::string("\3\0\0\0\0\0\0\0{}", 10)),
             ContainsSubstring("has another length than its manifest says"));
  const std::string more("\2\0\0\0\0\0\0\0{}x", 11);
  const auto sum_of = [&](std::size_t begin, std::size_t end) {
    return io::checksum_of(stored_generation::bytes_of(more).subspan(begin, end - begin));
  };
  CHECK_THAT(reason({{own, 11, 10, {sum_of(0, 10), sum_of(10, 11)}}}, more),
             ContainsSubstring("goes on after its last tensor"));
  for (const checkpoint::stored_file& wrong : {checkpoint::stored_file{own, 11, 10, {sum_of(0, 10)}},
                                               {own, 11, 10, {}},
                                               {own, 11, 12, {1}},
                                               {own, 11, 7, {1, 2}},
                                               {own, 11, UINT64_MAX, {1}},
                                               {own, 11, 10, {sum_of(0, 10), sum_of(10, 11), 1}}})
    CHECK_THAT(reason({wrong}, more), ContainsSubstring("a file that cannot be"));
  CHECK_THAT(reason({{own, 11, 10, {sum_of(0, 10), 1}}}, more), ContainsSubstring("goes on after its last tensor"));
}

TEST_CASE("a generation that cannot be read is passed over, a folder that cannot be listed is an error", "[checkpoint]")
{
  simulated_folder folder{disk_of(2)};
  std::vector<checkpoint::skipped_generation> skipped;
  (void)newest_whole(folder, skipped);
  const std::size_t operations = folder.requests().size();
  folder.set_faults({.at = 0});
  CHECK_THROWS_AS(newest_whole(folder, skipped), io_error);
  for (std::uint64_t index = 1; index < operations; ++index) {
    INFO("operation " << index);
    folder.set_faults({.at = index});
    skipped.clear();
    const auto found = newest_whole(folder, skipped);
    REQUIRE(found);
    REQUIRE(found->content().generation == 1);
    REQUIRE(skipped.size() == 1);
    REQUIRE_THAT(skipped[0].why, ContainsSubstring("errno"));
    folder.set_faults({.at = index, .retained = true});
    REQUIRE_FALSE(newest_whole(folder, skipped));
  }
}

TEST_CASE(
    "a power cut at any moment of a save leaves the older or the newer generation, and the newer one once it was "
    "acknowledged",
    "[checkpoint]")
{
  std::uint64_t states = 0;
  std::uint64_t corrupt = 0;
  std::set<support::disk_content> left;
  const auto add = [&](const power_cut_search::result& found) {
    states += found.states;
    corrupt += found.corrupt;
    left.insert(found.left.begin(), found.left.end());
  };
  for (std::uint64_t seed = 0; seed <= (support::sanitized ? 1 : 6); ++seed)
    for (std::size_t keep = 1; keep <= 2; ++keep)
      for (std::size_t generations = 0; generations <= 2; ++generations)
        if (corrupt == 0) add(cut_everywhere(disk_of(generations), known()[2], {keep, seed, seed == 0}, honest));
  const std::uint64_t after_one = states;
  // Whatever a cut has left, the next save is cut as well.
  std::size_t number = 0;
  for (const support::disk_content& disk : left)
    if (number++ % (support::sanitized ? 25 : 5) == 0 && states < 1'000'000 && corrupt == 0)
      add(cut_everywhere(disk, known()[3], {}, honest));
  CHECK(corrupt == 0);
  CHECK(after_one > (support::sanitized ? 1'000 : 10'000));
  CHECK(left.size() > 100);
}

TEST_CASE("a power cut after an error leaves the older generation, or all of the newer one", "[checkpoint]")
{
  simulated_folder counted{disk_of(1)};
  counted.set_faults({});
  save(counted, known()[1], 1, [] {});
  std::uint64_t states = 0;
  for (std::uint64_t index = 0; index < counted.requests().size(); index += support::sanitized ? 3 : 1)
    for (const bool retained : {false, true}) {
      power_cut_search search{disk_of(1), known()};
      simulated_folder& folder = search.folder();
      search.allow({11, 12});
      folder.set_faults({.at = index, .retained = retained});
      folder.set_observer([&] {
        if (folder.failures() > 0) search.look();
      });
      try {
        save(folder, known()[1], 1, [&] { search.allow({12}); });
      } catch (const io_error&) {
      }
      folder.set_observer({});
      search.look();
      INFO("operation " << index << (retained ? " and all after it" : ""));
      REQUIRE(search.found().corrupt == 0);
      states += search.found().states;
    }
  CHECK(states > (support::sanitized ? 200 : 600));
}

TEST_CASE("a protocol that forgets a sync, or does things in another order, is caught by the same search",
          "[checkpoint]")
{
  CHECK(cut_with({}).corrupt == 0);
  CHECK(cut_with({.file_syncs = true}).corrupt > 0);
  CHECK(cut_with({.folder_syncs = true}).corrupt > 0);
  CHECK(cut_with({.late_renames = true}).corrupt > 0);
  // Final names from the begin lose nothing: checksums tell a whole file from a torn one, and the manifest comes last.
  CHECK(cut_with({.early_names = true}).corrupt == 0);

  power_cut_search early{disk_of(1), known()};  // the older generation goes first
  early.allow({11, 12});
  early.during([&] {
    remove_older(early.folder(), 0);
    known()[1].write(early.folder());
  });
  CHECK(early.found().corrupt > 0);
}

TEST_CASE("every flipped bit and every lost byte of a generation is found, and the older one is taken", "[checkpoint]")
{
  const stored_generation older{21, 2, 5'500};
  const stored_generation newer{22, 2, 5'500};
  simulated_folder folder;
  older.write(folder);
  newer.write(folder);
  const support::disk_content whole = folder.content();
  std::vector<std::string> names;
  for (const auto& [name, content] : whole)
    if (name.starts_with("generation-000002-")) names.push_back(name);
  REQUIRE(names.size() == 2);
  const auto takes_the_older_one = [&] {
    std::vector<checkpoint::skipped_generation> skipped;
    const auto found = newest_whole(folder, skipped);
    return found && found->content().generation == 1 && skipped.size() == 1 && skipped[0].number == 2 &&
           !skipped[0].why.empty();
  };
  CHECK_FALSE(takes_the_older_one());

  for (const std::string& name : names) {
    const std::string& content = whole.at(name);
    for (std::size_t size = 0; size < content.size(); size += size < 256 ? 1 : 512) {
      folder.put(name, content.substr(0, size));
      if (!takes_the_older_one()) FAIL(name << " cut to " << size);
      if (size % 8 != 0) continue;
      folder.put(name, content.substr(0, size) + std::string(content.size() - size, '\0'));  // the same length
      if (!takes_the_older_one()) FAIL(name << " with zeros from " << size);
    }
    folder.put(name, content + '\0');
    CHECK(takes_the_older_one());
    folder.put(name, content);
  }
  support::dice dice{5};
  for (int flips = support::sanitized ? 1'000 : 10'000; flips > 0; --flips) {
    const std::string& name = dice.pick(names);
    const std::size_t bit = dice.below(static_cast<std::uint32_t>(whole.at(name).size() * 8));
    std::string content = whole.at(name);
    content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << bit % 8));
    folder.put(name, content);
    if (!takes_the_older_one()) FAIL("bit " << bit << " of " << name);
    folder.put(name, whole.at(name));
  }
  CHECK(newest_seed(folder, {older, newer}) == 22);
}

}  // namespace generation_reader_test
