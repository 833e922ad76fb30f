// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_reader.hpp>

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>

#include <support/catch.hpp>
#include <support/disk_mutants.hpp>
#include <support/emulated.hpp>
#include <support/forked_child.hpp>
#include <support/memory_folder.hpp>
#include <support/oracles/dice.hpp>
#include <support/power_cut_search.hpp>
#include <support/sanitized.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "small_model.hpp"

namespace whole_generation_test {

using namespace chunkmem;
using support::simulated_folder;
using support::stored_generation;

TEST_CASE("manifest and headers say what is where, without a byte of tensors", "[checkpoint]")
{
  const stored_generation content{3};
  simulated_folder folder;
  content.write(folder);
  std::vector<simulated_folder::reader> open;
  const auto found = checkpoint::read_generation(folder, 1, {}, &open);
  CHECK(open.size() == 2);
  CHECK(content.is_in(folder, found));
  for (std::size_t file = 0; file < 2; ++file) CHECK(found.files[file].payload == found.content.files[file].header);

  support::disk_content changed = folder.content();
  changed["generation-000001-00001.safetensors"].back() ^= 1;  // of a tensor
  CHECK(content.lists() == checkpoint::read_generation(simulated_folder{changed}, 1).content.lists);
  changed["generation-000001-00001.safetensors"][20] ^= 1;  // of a header
  CHECK_THROWS_AS(checkpoint::read_generation(simulated_folder{changed}, 1), corrupt_data);
}

TEST_CASE("each block of a file is proven by itself", "[checkpoint]")
{
  const stored_generation content{3};
  simulated_folder folder;
  content.write(folder);
  const checkpoint::stored_file it = checkpoint::read_generation(folder, 1).content.files[0];
  std::vector<std::byte> room;
  auto file = folder.open(it.name);
  const auto block = checkpoint::detail::read_block(file, it, 1, room);
  const std::string whole = folder.content().at(it.name);
  CHECK(std::string_view{reinterpret_cast<const char*>(block.data()), block.size()} ==
        std::string_view{whole}.substr(it.header));
  support::disk_content changed = folder.content();
  changed[it.name].back() ^= 1;
  const simulated_folder other{changed};
  auto damaged = other.open(it.name);
  CHECK_NOTHROW(checkpoint::detail::read_block(damaged, it, 0, room));
  CHECK_THROWS_AS(checkpoint::detail::read_block(damaged, it, 1, room), corrupt_data);
}

}  // namespace whole_generation_test

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

/// Saves like a model, through folders that have no locks and that lie (save_test.cpp searches the save itself).
/// `acknowledged()` is called when the caller may rely on the save.
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

/// The power fails at every moment of a save.
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
  CHECK_THAT(reason({{own, UINT64_MAX, 0, {}}}, empty), ContainsSubstring("an impossible file"));
  CHECK_THAT(reason({{own}}, "1234567"), ContainsSubstring("an impossible file"));
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
    CHECK_THAT(reason({wrong}, more), ContainsSubstring("an impossible file"));
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
  // Whatever a cut has left, the next save is cut too.
  std::size_t number = 0;
  for (const support::disk_content& disk : left)
    if (number++ % (support::sanitized ? 75 : 5) == 0 && states < 1'000'000 && corrupt == 0)
      add(cut_everywhere(disk, known()[3], {}, honest));
  CHECK(corrupt == 0);
  CHECK(after_one > (support::sanitized ? 200 : 10'000));
  CHECK(left.size() > (support::sanitized ? 20 : 100));
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

  // 7 has no factor in common with the 8 of a length, and of the lengths that are filled up
  constexpr std::size_t byte_pace = support::sanitized ? 7 : 1;
  for (const std::string& name : names) {
    const std::string& content = whole.at(name);
    for (std::size_t size = 0; size < content.size(); size += size < 256 ? byte_pace : 512) {
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
  for (int flips = support::sanitized ? 300 : 10'000; flips > 0; --flips) {
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

namespace older_check_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using cm::io::posix_folder;
using numbers = std::vector<std::uint64_t>;

namespace {

/// Counts how often each file is opened, in a thread too, and fails to sync while it is stuck.
class counted_folder {
  struct state {
    explicit state(const std::string& path) : folder{path} {}
    posix_folder folder;
    std::mutex mutex;
    std::map<std::string, int> opened;
    bool is_stuck = false;
  };

 public:
  using writer = posix_folder::writer;
  using reader = posix_folder::reader;

  explicit counted_folder(const std::string& path) : state_{std::make_shared<state>(path)} {}
  [[nodiscard]] counted_folder again() const { return *this; }
  [[nodiscard]] auto identity() const { return state_->folder.identity(); }

  /// Files of tensors. No reader is active.
  [[nodiscard]] const std::map<std::string, int>& opened() const { return state_->opened; }
  void stick(bool is_stuck) { state_->is_stuck = is_stuck; }

  [[nodiscard]] writer create(std::string_view name) { return state_->folder.create(name); }
  [[nodiscard]] reader open(std::string_view name) const
  {
    const std::lock_guard guard{state_->mutex};
    if (name.ends_with(".safetensors")) ++state_->opened[std::string{name}];
    return state_->folder.open(name);
  }
  void rename(std::string_view from, std::string_view to) { state_->folder.rename(from, to); }
  bool remove(std::string_view name) noexcept { return state_->folder.remove(name); }
  void sync()
  {
    if (state_->is_stuck) throw cm::io::failed("syncing", "a folder", EIO);
    state_->folder.sync();
  }
  [[nodiscard]] std::vector<std::string> names() const { return state_->folder.names(); }

 private:
  std::shared_ptr<state> state_;
};
static_assert(cm::shareable_folder<counted_folder> && cm::shareable_folder<posix_folder>);

constexpr checkpoint::save_options keeps_three{.keep = 3};

}  // namespace

TEST_CASE("a generation is read at most once, and not by the save that writes it", "[checkpoint]")
{
  temporary_folder place;
  counted_folder folder{place.path()};
  small_model model;
  for (std::uint64_t turn = 1; turn <= 8; ++turn) {
    (void)checkpoint::save(model.m, folder, keeps_three);
    CHECK(checkpoint::finish_save(model.m).view().empty());
  }
  CHECK(checkpoint::generations_in(folder) == numbers{8, 7, 6});
  CHECK(folder.opened().size() == 6);  // 2 and 3 at the fourth save, then one at each
  for (const auto& [name, times] : folder.opened()) {
    INFO(name);
    CHECK(times == 1);
  }
  CHECK_FALSE(folder.opened().contains("generation-000008-00000.safetensors"));
}

TEST_CASE("what was read in one folder says nothing of another, nor of a number that is given again", "[checkpoint]")
{
  temporary_folder one, two;
  counted_folder first{one.path()}, second{two.path()};
  small_model model;
  const auto save = [&](counted_folder& folder) {
    (void)checkpoint::save(model.m, folder);
    CHECK(checkpoint::finish_save(model.m).view().empty());
  };
  for (int turn = 0; turn < 3; ++turn) save(first);
  for (int turn = 0; turn < 3; ++turn) save(second);
  const std::string both = "generation-000002-00000.safetensors";
  CHECK(first.opened().at(both) == 1);
  CHECK(second.opened().at(both) == 1);
  for (const std::string& name : second.names()) REQUIRE(second.remove(name));
  for (int turn = 0; turn < 3; ++turn) save(second);
  CHECK(second.opened().at(both) == 2);
}

TEST_CASE("a removal that failed behind a save is said once, by the next save where nobody asked", "[checkpoint]")
{
  temporary_folder place;
  counted_folder folder{place.path()};
  small_model model;
  for (const bool asks : {true, false}) {
    for (int turn = 0; turn < 2; ++turn) (void)checkpoint::save(model.m, folder);
    (void)checkpoint::finish_save(model.m);
    // The manifest of an older one is removed, and then the folder does not sync.
    const auto saved = checkpoint::save(model.m, folder);
    CHECK(saved.clean_up.view().empty());
    (void)checkpoint::finish_save(model.m);
    checkpoint::detail::older_check& older = checkpoint::detail::older_check_of(model.m);
    for (int more = 0; more < 2; ++more) (void)checkpoint::save(model.m, folder, {.keep = 9});
    (void)checkpoint::finish_save(model.m);
    folder.stick(true);
    older.start(folder, saved.number + 2, 2);
    older.wait();
    folder.stick(false);
    if (asks) {
      CHECK_THAT(std::string{checkpoint::finish_save(model.m).view()}, ContainsSubstring("errno 5"));
      CHECK(checkpoint::finish_save(model.m).view().empty());
    } else {
      CHECK_THAT(std::string{checkpoint::save(model.m, folder).clean_up.view()}, ContainsSubstring("errno 5"));
    }
  }
}

TEST_CASE("the folder's object may end before older generations are removed", "[checkpoint]")
{
  temporary_folder place;
  small_model model;
  for (int turn = 0; turn < 4; ++turn) {
    posix_folder folder{place.path()};
    (void)checkpoint::save(model.m, folder);
  }
  (void)checkpoint::finish_save(model.m);
  CHECK(checkpoint::generations_in(posix_folder{place.path()}) == numbers{4, 3});
}

TEST_CASE("a load and the end of the manager wait for the removal, and a background save goes on beside it",
          "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  for (int turn = 0; turn < 3; ++turn) {
    small_model model;
    for (int save = 0; save < 3; ++save) (void)checkpoint::save(model.m, folder);
    const auto newest = checkpoint::generations_in(folder).front();
    if (turn == 0) CHECK(checkpoint::load(model.m, folder).number == newest);
    if (turn == 1) CHECK(checkpoint::save_async(model.m, folder).wait().number == newest + 1);
    if (turn == 1) CHECK(checkpoint::finish_save(model.m).view().empty());
    if (turn < 2) CHECK(checkpoint::generations_in(folder).size() == 2);
  }
  CHECK(checkpoint::generations_in(folder).size() == 2);
}

TEST_CASE("a child that is forked behind a save leaves the removal to its parent, and saves for itself", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children are not for it
  if (support::is_emulated()) SKIP("the emulator does not fork a process with threads");
  temporary_folder place;
  posix_folder folder{place.path()};
  std::optional<small_model> model{std::in_place};
  for (int save = 0; save < 3; ++save) (void)checkpoint::save(model->m, folder);
  const pid_t child = support::fork_child();
  REQUIRE(child >= 0);
  if (child == 0) {  // the thread does not exist here: nobody waits for it
    bool is_saved = false;
    try {
      for (int save = 0; save < 2; ++save) (void)checkpoint::save(model->m, folder);
      is_saved = checkpoint::finish_save(model->m).view().empty();
    } catch (...) {
    }
    model.reset();
    std::_Exit(is_saved ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(checkpoint::finish_save(model->m).view().empty());
  CHECK(checkpoint::generations_in(folder) == numbers{5, 4});
}

}  // namespace older_check_test

namespace run_number_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using support::memory_folder;

TEST_CASE("a first save draws a number for its training, which a load takes over", "[checkpoint]")
{
  std::set<std::uint64_t> drawn;
  for (int turn = 0; turn < 100; ++turn) drawn.insert(checkpoint::draw_run());
  CHECK(drawn.size() == 100);
  CHECK_FALSE(drawn.contains(0));

  memory_folder folder;
  small_model model;
  model.m.content().belongs_to(0);  // as a fresh one does
  (void)checkpoint::save(model.m, folder);
  const std::uint64_t run = model.m.content().run();
  CHECK(run != 0);
  (void)checkpoint::save(model.m, folder);
  CHECK(model.m.content().run() == run);
  small_model after;
  (void)checkpoint::load(after.m, folder);
  CHECK(after.m.content().run() == run);
  CHECK(checkpoint::save(after.m, folder).number == 3);
}

TEST_CASE("a save into a folder of another training is refused, and its generations stay", "[checkpoint]")
{
  memory_folder folder;
  small_model model;
  (void)checkpoint::save(model.m, folder);
  const auto before = folder.names();
  for (const std::uint64_t run : {std::uint64_t{0}, std::uint64_t{2}}) {
    small_model other;
    other.m.content().belongs_to(run);
    CHECK_THROWS_AS(checkpoint::save(other.m, folder), cm::config_error);
    CHECK_THROWS_WITH(checkpoint::save(other.m, folder),
                      ContainsSubstring("generation-000001.manifest is of run 1, this is run " + std::to_string(run)));
    CHECK_THROWS_AS(checkpoint::save_async(other.m, folder), cm::config_error);
    CHECK(other.m.content().run() == run);
  }
  CHECK(folder.names() == before);
}

TEST_CASE("a manifest that cannot be read says nothing of a training", "[checkpoint]")
{
  memory_folder folder;
  small_model model;
  (void)checkpoint::save(model.m, folder);
  folder.flip("generation-000001.manifest", 30);
  small_model other;
  other.m.content().belongs_to(2);
  CHECK(checkpoint::save(other.m, folder).number == 2);
}

TEST_CASE("a folder with generations of another version is not saved into, and what this version wrote still loads",
          "[checkpoint]")
{
  memory_folder folder;
  small_model model;
  (void)checkpoint::save(model.m, folder);
  std::string text = "chunkmem checkpoint 4\ngeneration 2\nsomething new\n";
  text += "checksum " + checkpoint::detail::as_digits(cm::io::checksum_of(std::as_bytes(std::span{text}))) + '\n';
  auto file = folder.create("generation-000002.manifest");
  CHECK(file.write(std::as_bytes(std::span{text})) == text.size());
  CHECK_THROWS_WITH(checkpoint::save(model.m, folder),
                    ContainsSubstring("generation 2 of this folder has format 4 of another version"));
  CHECK_THROWS_AS(checkpoint::save_async(model.m, folder), cm::config_error);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{2, 1});
  const auto found = checkpoint::load(model.m, folder);
  CHECK(found.number == 1);
  CHECK(found.skipped.size() == 1);
  folder.flip("generation-000002.manifest", 40);  // damaged: nobody knows what it was
  CHECK(checkpoint::save(model.m, folder).number == 3);
}

TEST_CASE("two trainings in one folder are not loaded as one", "[checkpoint]")
{
  memory_folder folder;
  small_model model;
  (void)checkpoint::save(model.m, folder);
  folder.flip("generation-000001.manifest", 30);
  small_model other;
  other.m.content().belongs_to(2);
  (void)checkpoint::save(other.m, folder);
  folder.flip("generation-000001.manifest", 30);  // it was hidden
  small_model after;
  CHECK_THROWS_AS(checkpoint::load(after.m, folder), cm::config_error);
  CHECK_THROWS_WITH(
      checkpoint::load(after.m, folder),
      ContainsSubstring(
          "of two trainings: generation-000002.manifest is of run 2, generation-000001.manifest of run 1"));
}

}  // namespace run_number_test
