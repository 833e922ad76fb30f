// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_reader.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <support/memory_folder.hpp>

#include <cstdint>
#include <set>
#include <string>

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
