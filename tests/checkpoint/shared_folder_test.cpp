// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace shared_folder_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using cm::io::posix_folder;

namespace {

/// From now on all files of a generation belong to another user.
void give_away(const temporary_folder& place, const std::string& begin)
{
  for (const auto& it : std::filesystem::directory_iterator{place.path()})
    if (it.path().filename().string().starts_with(begin)) REQUIRE(::chown(it.path().c_str(), 12345, 12345) == 0);
}

/// Two generations of a training, with other values, in a folder that others may add files to.
struct shared {
  shared()
  {
    REQUIRE(::chmod(place.path().c_str(), 01777) == 0);
    (void)checkpoint::save(model.m, folder);
    model.fill(2.5F);
    (void)checkpoint::save(model.m, folder);
  }
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
};

}  // namespace

TEST_CASE("a generation of another user is passed over by every loader, and named", "[checkpoint]")
{
  if (::geteuid() != 0) SKIP("only root makes a file of another user");
  const std::string given = GENERATE("generation-000002", "generation-000002.manifest", "generation-000002-00000");
  CAPTURE(given);
  shared it;
  give_away(it.place, given);
  small_model after;
  const auto found = checkpoint::load(after.m, it.folder);
  CHECK(found.number == 1);
  CHECK(after.holds(1.5F));
  REQUIRE(found.skipped.size() == 1);
  CHECK(found.skipped[0].number == 2);
  CHECK_THAT(found.skipped[0].why,
             ContainsSubstring(given) && ContainsSubstring("is not trusted: it belongs to user 12345"));
  CHECK(checkpoint::export_generation(it.folder, it.folder, "w") == 1);
  CHECK_THROWS_AS(checkpoint::export_generation(it.folder, it.folder, "w", {.generation = 2}), cm::io_error);
}

TEST_CASE("saves go on beside generations of another user, whatever their numbers and runs, and remove none",
          "[checkpoint]")
{
  if (::geteuid() != 0) SKIP("only root makes a file of another user");
  temporary_folder place;
  REQUIRE(::chmod(place.path().c_str(), 01777) == 0);
  posix_folder folder{place.path()};
  {
    small_model other;
    other.m.content().belongs_to(99);
    (void)checkpoint::save(other.m, folder);
    (void)checkpoint::save(other.m, folder);
  }
  for (const char* const name : {"generation-000004.manifest.tmp", "generation-999999999999999.manifest",
                                 "generation-export.tmp", "generation-export-1.tmp"})
    std::ofstream{place.path() + '/' + name} << "planted";
  give_away(place, "generation-");
  small_model model;
  CHECK(checkpoint::load(model.m, folder, {.allow_fresh_start = true}).number == 0);
  CHECK_THROWS_AS(checkpoint::load(model.m, folder), cm::io_error);
  CHECK(checkpoint::save(model.m, folder).number == 3);
  model.fill(2.5F);
  CHECK(checkpoint::save_async(model.m, folder).wait().number == 5);  // 4 is another one's
  model.fill(3.5F);
  CHECK(checkpoint::save(model.m, folder).number == 6);
  CHECK(checkpoint::finish_save(model.m).view().empty());
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{6, 5});
  CHECK(checkpoint::all_generations_in(folder) == std::vector<std::uint64_t>{999'999'999'999'999, 6, 5, 2, 1});
  checkpoint::export_values(model.m, folder, "w");
  auto names = folder.names();
  CHECK(std::ranges::count(names, "generation-export.tmp") == 1);
  CHECK(std::ranges::count(names, "generation-export-2.tmp") == 0);
  small_model after;
  const auto found = checkpoint::load(after.m, folder);
  CHECK(found.number == 6);
  CHECK(found.skipped.size() == 1);
  CHECK(after.holds(3.5F));
}

TEST_CASE("a planted last number of one's own is named, and blocks until it is removed", "[checkpoint]")
{
  shared it;
  std::ofstream{it.place.path() + "/generation-999999999999999.manifest"} << "planted";
  CHECK_THROWS_AS(checkpoint::save(it.model.m, it.folder), cm::config_error);
  CHECK_THROWS_WITH(checkpoint::save(it.model.m, it.folder),
                    ContainsSubstring("this folder has generation-999999999999999.manifest"));
  CHECK(checkpoint::load(it.model.m, it.folder).number == 2);
  std::filesystem::remove(it.place.path() + "/generation-999999999999999.manifest");
  CHECK(checkpoint::save(it.model.m, it.folder).number == 3);
}

TEST_CASE("a file of a checkpoint that everybody may write to is not loaded", "[checkpoint]")
{
  shared it;
  REQUIRE(::chmod((it.place.path() + "/generation-000002-00000.safetensors").c_str(), 0666) == 0);
  small_model after;
  const auto found = checkpoint::load(after.m, it.folder);
  CHECK(found.number == 1);
  REQUIRE(found.skipped.size() == 1);
  CHECK_THAT(found.skipped[0].why,
             ContainsSubstring("generation-000002-00000.safetensors is not trusted: everybody may write to it"));
}

TEST_CASE("a save leaves the tensors of a generation whose manifest is foreign, which is whole once that is mended",
          "[checkpoint]")
{
  shared it;
  const std::string manifest = it.place.path() + "/generation-000002.manifest";
  REQUIRE(::chmod(manifest.c_str(), 0602) == 0);
  it.model.fill(3.5F);
  CHECK(checkpoint::save(it.model.m, it.folder).number == 3);
  REQUIRE(::chmod(manifest.c_str(), 0600) == 0);
  std::filesystem::remove(it.place.path() + "/generation-000003.manifest");
  small_model after;
  CHECK(checkpoint::load(after.m, it.folder).number == 2);
  CHECK(after.holds(2.5F));
}

TEST_CASE("a folder with foreign generations alone says why none is believed, and a fresh start lists them",
          "[checkpoint]")
{
  shared it;
  for (const char* const number : {"1", "2"})
    REQUIRE(::chmod((it.place.path() + "/generation-00000" + number + ".manifest").c_str(), 0602) == 0);
  small_model after;
  CHECK_THROWS_WITH(checkpoint::load(after.m, it.folder),
                    ContainsSubstring("none of the 2 generations in this folder is trusted; the newest, number 2: ") &&
                        ContainsSubstring("everybody may write to it") && !ContainsSubstring("keep = 1"));
  const auto found = checkpoint::load(after.m, it.folder, {.allow_fresh_start = true});
  CHECK(found.number == 0);
  REQUIRE(found.skipped.size() == 2);
  CHECK(found.skipped[0].number == 2);
}

}  // namespace shared_folder_test
