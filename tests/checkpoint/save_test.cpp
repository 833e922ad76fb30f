// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save.hpp>

#include "disk_trouble.hpp"
#include "small_model.hpp"

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <support/figures.hpp>
#include <support/forked_child.hpp>
#include <support/own_disk.hpp>
#include <support/power_cut_search.hpp>
#include <support/sanitized.hpp>
#include <support/short_files.hpp>
#include <support/simulated_folder.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace save_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

namespace {

/// One byte of a file, changed.
void damage(const std::string& path)
{
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
  file.seekg(-20, std::ios::end);
  const auto at = file.tellg();
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 4));
  REQUIRE(file.good());
}

/// errno of a save, 0 where it did not fail.
int errno_of_save(small_model& model, posix_folder& folder)
{
  try {
    (void)checkpoint::save(model.m, folder, {.file_size = 100_B});
    return 0;
  } catch (const cm::io_error& failed) {
    return failed.fault().number;
  }
}

}  // namespace

TEST_CASE("a save writes files of the size asked for, each tensor whole and aligned", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  const auto saved = checkpoint::save(model.m, folder, {.file_size = 32_B});
  CHECK(saved.number == 1);
  CHECK(saved.files == 3);
  const checkpoint::whole_generation found = checkpoint::check_generation(folder, 1).generation();
  REQUIRE(found.files.size() == 3);
  CHECK(found.files[0].tensors == std::vector<checkpoint::stored_tensor>{{"a", cm::dtype::float32, {2, 4}, 0, 32}});
  CHECK(found.files[1].tensors[0].name == "b");
  CHECK(found.files[2].tensors[0].name == "half");
  std::uint64_t all = 0;
  for (const auto& file : found.content.files) all += file.size;
  CHECK(saved.size.count() == all);
  for (const auto& file : found.files) CHECK(file.payload % 256 == 0);

  auto file = folder.open(found.content.files[1].name);
  std::vector<float> values(300);
  cm::io::read_all(file, found.files[1].payload, std::as_writable_bytes(std::span{values}));
  CHECK(std::count(values.begin(), values.end(), -3.0F) == 300);
}

TEST_CASE("as many generations stay as are to be kept, and other files", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  for (const char* const name : {"notes.txt", "generation-000001.safetensors", "generation-7.manifest"})
    folder.create(name).close();
  for (int turn = 0; turn < 4; ++turn) (void)checkpoint::save(model.m, folder, {.keep = 2});
  CHECK(checkpoint::finish_save(model.m).view().empty());
  CHECK(sorted_names(folder) ==
        std::vector<std::string>{"generation-000001.safetensors", "generation-000003-00000.safetensors",
                                 "generation-000003.manifest", "generation-000004-00000.safetensors",
                                 "generation-000004.manifest", "generation-7.manifest", "notes.txt"});
  CHECK(checkpoint::save(model.m, folder, {.keep = 1}).number == 5);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{5});
}

TEST_CASE("what a killed save left behind is removed by the next one", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  (void)checkpoint::save(model.m, folder);
  for (const char* const name : {"generation-000002-00000.safetensors", "generation-000002-00001.safetensors.tmp",
                                 "generation-000003.manifest.tmp"})
    folder.create(name).close();
  // the other numbers may be in use by ranks of a dead job that live on
  CHECK(checkpoint::save(model.m, folder).number == 4);
  CHECK(folder.names().size() == 4);
}

TEST_CASE("a save costs the trainer no bit, also where the host has no frame left", "[checkpoint]")
{
  // Everything on the device, and a host that has room for one chunk: what it cannot take is read where it lies.
  temporary_folder place;
  posix_folder folder{place.path()};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 4_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto stack = m.add_stacked<float>(6, {1024}, cm::role::frozen);
  for (std::uint32_t layer = 0; layer < 6; ++layer)
    for (float& value : m.acquire(stack.slice(layer), cm::access::write).span()) value = static_cast<float>(layer);
  CHECK(checkpoint::save(m, folder).size > 24_KiB);
  for (std::uint32_t layer = 0; layer < 6; ++layer)
    CHECK(m.acquire(stack.slice(layer), cm::access::read).span()[1023] == static_cast<float>(layer));
}

TEST_CASE("two whole generations stay, whatever lies damaged between them", "[checkpoint]")
{
  for (const char* const which : {".manifest", "-00000.safetensors"})
    for (const bool check : {true, false}) {
      temporary_folder place;
      posix_folder folder{place.path()};
      small_model model;
      const auto save = [&](float value) {
        model.fill(value);
        (void)checkpoint::save(model.m, folder, {.check_older = check});
        CHECK(checkpoint::finish_save(model.m).view().empty());
        return checkpoint::generations_in(folder);
      };
      save(1.0F);
      save(2.0F);
      damage(place.path() + "/generation-000002" + which);
      CHECK(save(3.0F) == (check ? std::vector<std::uint64_t>{3, 2, 1} : std::vector<std::uint64_t>{3, 2}));
      damage(place.path() + "/generation-000003" + which);
      small_model after;
      if (check)
        CHECK((checkpoint::load(after.m, folder).number == 1 && after.holds(1.0F)));
      else
        CHECK_THROWS_AS(checkpoint::load(after.m, folder), cm::io_error);
      // They go with what is older than two that are whole.
      if (!check) continue;
      CHECK(save(4.0F) == std::vector<std::uint64_t>{4, 3, 2, 1});
      CHECK(save(5.0F) == std::vector<std::uint64_t>{5, 4});
      CHECK(folder.names().size() == 4);
    }
}

TEST_CASE("what no loader would take is refused before anything is written", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  // of a save that was killed: not even this is touched
  folder.create("generation-000009-00000.safetensors.tmp").close();
  SECTION("a header of more than 100 MB: names of control characters, each of which JSON writes as six")
  {
    if (support::sanitized) return;  // minutes; the limit is one comparison
    constexpr std::uint32_t count = 100'000'000 / (6 * 4096) + 1;
    arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 16_KiB}};
    const auto stack = m.add_stacked<std::uint8_t>(count, {1}, cm::role::buffer);
    for (std::uint32_t index = 0; index < count; ++index)
      m.name(stack.slice(index), std::to_string(index) + std::string(4096 - std::to_string(index).size(), '\1'));
    for (std::uint32_t index = 0; index < count; ++index)
      m.acquire(stack.slice(index), cm::access::write).span()[0] = 1;
    CHECK_THROWS_AS(checkpoint::save(m, folder), cm::config_error);
    CHECK_THROWS_AS(checkpoint::save_async(m, folder), cm::config_error);
    CHECK(folder.names().size() == 1);
    CHECK_THROWS_AS(checkpoint::export_values(m, folder, "values"), cm::config_error);
    CHECK(folder.names().size() == 1);
    CHECK(checkpoint::save(m, folder, {.file_size = cm::bytes{count / 2 + 1}}).files == 2);
    CHECK(checkpoint::is_whole(folder, 10));
  }
  SECTION("a name of a tensor without bytes that fills a line of the manifest")
  {
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
    CHECK_THROWS_AS(m.name(m.add<float>({2}, cm::role::buffer), std::string(20'000, 'n')), cm::config_error);
  }
  SECTION("a name that is no UTF-8")
  {
    small_model model;
    CHECK_THROWS_AS(model.m.name(model.b, "\xff"), cm::config_error);
  }
}

TEST_CASE("an error behind the end of a save is no error of it: it is said, and the generation is there",
          "[checkpoint]")
{
  const bool in_background = GENERATE(false, true);
  int said = 0;
  support::simulated_folder folder;
  small_model model;
  for (int turn = 0; turn < 2; ++turn) (void)checkpoint::save(model.m, folder, {.keep = 1});
  folder.set_faults({});
  (void)checkpoint::save(model.m, folder, {.keep = 1});
  const auto operations = folder.requests();
  std::uint64_t manifest = 0;
  while (!(operations[manifest].what == support::disk_operation::rename &&
           operations[manifest].name.ends_with(".manifest.tmp")))
    ++manifest;
  for (std::uint64_t index = manifest + 2; index < operations.size(); ++index) {
    INFO("operation " << index);
    folder.set_faults({.at = index});
    model.fill(static_cast<float>(index));
    const auto saved = in_background ? checkpoint::save_async(model.m, folder, {.files = {.keep = 1}}).wait()
                                     : checkpoint::save(model.m, folder, {.keep = 1});
    CHECK(folder.failures() == 1);
    CHECK(saved.number == checkpoint::generations_in(folder).front());
    // what stays goes with the next save
    if (operations[index].what == support::disk_operation::remove)
      CHECK(saved.clean_up.view().empty());
    else
      CHECK_THAT(std::string{saved.clean_up.view()}, Catch::Matchers::ContainsSubstring("errno 5"));
    said += saved.clean_up.view().empty() ? 0 : 1;
    folder.set_faults({});
    small_model after;
    CHECK(checkpoint::load(after.m, folder).skipped.empty());
    CHECK(after.holds(static_cast<float>(index)));
    (void)checkpoint::save(model.m, folder, {.keep = 1});
    CHECK(folder.names().size() == 2);
  }
  CHECK(manifest + 4 < operations.size());
  CHECK(said >= 3);  // two lists and a sync
}

namespace {

constexpr checkpoint::save_options three_files{.keep = 1, .file_size = 32_B};

/// The result of a trainer on a disk: the value of its model after a load, 0 for no generation, -1 for a mixture.
class finder {
 public:
  [[nodiscard]] std::int64_t operator()(const support::simulated_folder& left)
  {
    try {
      if (checkpoint::load(model_->m, left, {.allow_fresh_start = true}).number == 0) return 0;
    } catch (const cm::io_error&) {
      return 0;
    }
    const float value = model_->m.acquire(model_->a, cm::access::read).span()[0];
    return model_->holds(value) ? static_cast<std::int64_t>(value) : -1;
  }

 private:
  std::shared_ptr<small_model> model_ = std::make_shared<small_model>();
};

/// Generations of the values 1, 2 and so on.
support::disk_content disk_with(int generations)
{
  support::simulated_folder folder;
  small_model model;
  for (int value = 1; value <= generations; ++value) {
    model.fill(static_cast<float>(value));
    (void)checkpoint::save(model.m, folder, {.keep = 9, .file_size = three_files.file_size});
  }
  return folder.content();
}

/// The power fails at every moment of `saves(model, folder)`, which saves the value 5.
template <class Save>
support::power_cut_search::result cut_everywhere(const support::disk_content& before, std::uint64_t short_seed,
                                                 Save saves)
{
  finder find;
  support::power_cut_search search{before, find};
  search.keep_what_is_left();
  search.allow({find(support::simulated_folder{before}), 5});
  search.folder().set_faults({.short_seed = short_seed});
  small_model model;
  model.fill(5.0F);
  search.during([&] { saves(model, search.folder()); });
  search.allow({5});
  return search.found();
}

void write_figures(std::uint64_t states, std::uint64_t corrupt)
{
  if (support::sanitized) return;  // it tries fewer disks
  support::write_figures("test_checkpoint.checkpoint", "build/bench/bin/test_checkpoint.checkpoint",
                         {{"checkpoint.power_cut_states", states, "disks", ">=", 10'000},
                          {"checkpoint.power_cut_corrupt", corrupt, "disks", "==", 0}});
}

}  // namespace

TEST_CASE(
    "a power cut at any moment of a save of a model leaves the older or the newer generation, and the newer one once "
    "it returned",
    "[checkpoint]")
{
  std::uint64_t states = 0;
  std::uint64_t corrupt = 0;
  std::set<support::disk_content> left;
  const auto add = [&](const support::disk_content& before, std::uint64_t seed, std::uint32_t keep) {
    const auto found = cut_everywhere(before, seed, [&](small_model& model, support::simulated_folder& folder) {
      CHECK(checkpoint::save(model.m, folder, {.keep = keep, .file_size = three_files.file_size})
                .clean_up.view()
                .empty());
    });
    states += found.states;
    corrupt += found.corrupt;
    return found.left;
  };
  for (std::uint64_t seed = 0; seed <= (support::sanitized ? 0 : 2); ++seed)
    for (std::uint32_t keep = 1; keep <= 2; ++keep)
      for (int generations = 0; generations <= (support::sanitized ? 2 : 3); ++generations)
        if (corrupt == 0) left.merge(add(disk_with(generations), seed, keep));
  const std::uint64_t after_one = states;
  // Whatever a cut has left, the next save is cut too.
  std::size_t number = 0;
  for (const support::disk_content& disk : left)
    if (number++ % (left.size() / (support::sanitized ? 1 : 20) + 1) == 0 && corrupt == 0)
      (void)add(disk, 0, 1 + number % 2);
  CHECK(corrupt == 0);
  CHECK(after_one > (support::sanitized ? 200 : 1'000));
  CHECK(left.size() > (support::sanitized ? 20 : 100));
  if (!support::sanitized) CHECK(states > 10'000);
  write_figures(states, corrupt);
}

TEST_CASE("a save that removes older generations too early is caught by the same search", "[checkpoint]")
{
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}}) {
    const auto found = cut_everywhere(disk_with(2), 0, [&](small_model& model, support::simulated_folder& folder) {
      checkpoint::remove_older(folder, kept, [](std::uint64_t) { return true; });
      (void)checkpoint::save(model.m, folder, three_files);
    });
    CHECK((found.corrupt > 0) == (kept == 0));  // one that stays is enough
  }
}

TEST_CASE("while somebody saves, nobody else does, and nothing of theirs is touched", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  posix_folder same{place.path()};
  small_model model;
  CHECK(errno_of_save(model, folder) == 0);
  {
    const auto held = same.lock();
    same.create("generation-000002-00000.safetensors.tmp").close();
    const auto before = sorted_names(folder);
    CHECK(errno_of_save(model, folder) == EWOULDBLOCK);
    CHECK_THROWS_AS(checkpoint::save_async(model.m, folder), cm::io_error);
    CHECK_THROWS_AS(checkpoint::export_values(model.m, folder, "values"), cm::io_error);
    CHECK(sorted_names(folder) == before);
    small_model reader;
    CHECK(checkpoint::load(reader.m, folder).number == 1);  // who only reads need not wait
  }
  CHECK(errno_of_save(model, folder) == 0);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 1});
}

namespace {

/// Saves into the folder until it is killed. @return   the child
pid_t start_saver(const std::string& path, float value)
{
  const pid_t child = support::fork_child();
  REQUIRE(child >= 0);
  if (child != 0) return child;
  try {
    posix_folder folder{path};
    small_model model;
    model.fill(value);
    for (;;)
      if (const int number = errno_of_save(model, folder); number != 0 && number != EWOULDBLOCK) std::_Exit(2);
  } catch (...) {
  }
  std::_Exit(3);
}

}  // namespace

TEST_CASE("two processes that save into one folder, and are killed, leave whole generations", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children are not for it
  for (int turn = 0; turn < (support::sanitized ? 2 : 5); ++turn) {
    temporary_folder place;
    posix_folder folder{place.path()};
    const pid_t savers[] = {start_saver(place.path(), 1.0F), start_saver(place.path(), 2.0F)};
    while (checkpoint::next_generation(folder) < 12) ::usleep(500);  // both are at it
    for (const pid_t saver : savers) {
      int status = 0;
      ::kill(saver, SIGKILL);
      REQUIRE(::waitpid(saver, &status, 0) == saver);
      CHECK(WIFSIGNALED(status));  // no error but that the other one saves
    }
    std::vector<std::uint64_t> all = checkpoint::generations_in(folder);
    REQUIRE(all.size() >= 2);
    for (const std::uint64_t number : {all[0], all[1]}) CHECK(checkpoint::is_whole(folder, number));
    small_model after;
    CHECK(checkpoint::load(after.m, folder).number == all[0]);
    CHECK((after.holds(1.0F) || after.holds(2.0F)));
    CHECK(errno_of_save(after, folder) == 0);
    CHECK(checkpoint::finish_save(after.m).view().empty());
    CHECK(checkpoint::generations_in(folder).size() == 2);
  }
}

TEST_CASE("training goes on through a file size limit, and the next save is whole", "[checkpoint]")
{
  for (const bool in_background : {false, true}) {
    temporary_folder place;
    posix_folder folder{place.path()};
    std::optional<support::short_files> limit;
    CHECK(troubled_training{in_background}.run(
              folder, EFBIG, [&] { return limit.emplace(6'000), true; }, [&] { return limit.reset(), true; }) == "");
  }
}

TEST_CASE("training goes on through a full disk, and the next save is whole", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children are not for it
  for (const bool in_background : {false, true})
    for (const std::size_t room : {std::size_t{0}, std::size_t{4096}, std::size_t{20'480}}) {
      // under a sanitizer each room once, by turns in the background
      if (support::sanitized && (room == 4096) != in_background) continue;
      temporary_folder place;
      const std::string wrong = support::on_own_disk(place.path(), 1 << 20, [&](support::own_disk& disk) {
        posix_folder folder{disk.path() + "/checkpoints"};
        return troubled_training{in_background}.run(
            folder, ENOSPC, [&] { return disk.fill_up_to(room); }, [&] { return disk.empty_again(); });
      });
      if (wrong.starts_with("SKIPPED: ")) SKIP(wrong.substr(9));
      CHECK(wrong == "");
    }
}

TEST_CASE("training goes on where its folder cannot be written any more, and the next save is whole", "[checkpoint]")
{
  if (support::thread_sanitized) return;  // children are not for it
  for (const bool in_background : {false, true}) {
    temporary_folder place;
    const std::string wrong = support::on_own_disk(place.path(), 1 << 20, [&](support::own_disk& disk) {
      posix_folder folder{disk.path() + "/checkpoints"};
      return troubled_training{in_background}.run(
          folder, EROFS, [&] { return disk.set_read_only(true); }, [&] { return disk.set_read_only(false); });
    });
    if (wrong.starts_with("SKIPPED: ")) SKIP(wrong.substr(9));
    CHECK(wrong == "");
  }
}

TEST_CASE("training goes on through any error of any operation of a save, and the next save is whole", "[checkpoint]")
{
  // EIO of a sync is the one that no disk of this machine can be made to give.
  using support::disk_operation;
  const mixed::recipe how = recipe_for(mixed::precision::bf16, troubled_training::steps);
  for (const bool in_background : {false, true}) {
    const troubled_training training{in_background};
    support::simulated_folder counted;
    {
      arena_rig<cm::bf16> it{surroundings{}, how};
      it.initialise();
      it.train(2);
      REQUIRE(training.save(it, counted) == 0);
      it.train(4);
      counted.set_faults({});
      REQUIRE(training.save(it, counted) == 0);
    }
    auto operations = counted.requests();
    // After its last sync a generation exists: a later failure is reported, and changes nothing.
    while (operations.back().what != disk_operation::sync_folder) operations.pop_back();
    std::size_t syncs = 0;
    for (std::uint64_t index = 0; index < operations.size(); ++index) {
      const disk_operation what = operations[index].what;
      const bool is_of_a_file =
          what == disk_operation::write || what == disk_operation::create || what == disk_operation::close;
      syncs += what == disk_operation::sync ? 1 : 0;
      if (index % (support::sanitized ? 41 : 7) != 0 && (is_of_a_file || index + 12 < operations.size())) continue;
      // under a sanitizer each of the last operations once, by turns in the background
      if (support::sanitized && index % 41 != 0 && index % 2 != (in_background ? 1U : 0U)) continue;
      for (const int number : {EIO, ENOSPC}) {
        if (number == ENOSPC && index % 14 != 0) continue;
        support::simulated_folder folder;
        INFO("operation " << index << ", errno " << number << (in_background ? ", in the background" : ""));
        CHECK(training.run(
                  folder, number, [&] { return folder.set_faults({.at = index, .number = number}), true; },
                  [&] { return folder.failures() == 1 && (folder.set_faults({}), true); }) == "");
      }
    }
    CHECK(syncs > 10);
  }
}

}  // namespace save_test
