// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_writer.hpp>

#include <support/catch.hpp>
#include <support/simulated_folder.hpp>
#include <support/stored_generation.hpp>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace generation_writer_test {

using namespace chunkmem;
using checkpoint::generation_part;
using checkpoint::generation_writer;
using checkpoint::next_generation;
using checkpoint::remove_leftovers;
using checkpoint::remove_older;
using support::disk_operation;
using support::newest_seed;
using support::simulated_folder;
using support::stored_generation;

namespace {

void write_one(generation_part<simulated_folder>& part, std::string_view header, std::string_view content)
{
  part.begin_file(header.size());
  part.write(stored_generation::bytes_of(header));
  part.sync();
  part.write(stored_generation::bytes_of(content));
  part.end_file();
}

}  // namespace

TEST_CASE("files of a rank have numbers behind those of the ranks before it, and what a manifest says of them",
          "[checkpoint]")
{
  simulated_folder folder;
  generation_part<simulated_folder> part{folder, 3, 7};
  write_one(part, "12345678", "some");
  write_one(part, "abcdefgh", "");
  part.finish();
  part.keep();
  REQUIRE(part.files().size() == 2);
  CHECK(part.files()[0] == checkpoint::stored_file{"generation-000003-00007.safetensors",
                                                   12,
                                                   8,
                                                   {io::checksum_of(stored_generation::bytes_of("12345678")),
                                                    io::checksum_of(stored_generation::bytes_of("some"))}});
  CHECK(part.files()[1] ==
        checkpoint::stored_file{
            "generation-000003-00008.safetensors", 8, 8, {io::checksum_of(stored_generation::bytes_of("abcdefgh"))}});
  CHECK(folder.content().at("generation-000003-00007.safetensors") == "12345678some");
}

TEST_CASE("files go with a part that is not kept, and stay with one that is", "[checkpoint]")
{
  for (const bool retained : {false, true}) {
    simulated_folder folder;
    {
      generation_part<simulated_folder> part{folder, 1};
      write_one(part, "12345678", "some");
      part.keep();
      part.keep(retained);
      part.begin_file(8);  // and one that is half done
    }
    CHECK(folder.content().size() == (retained ? 1 : 0));
  }
}

TEST_CASE("a part has an order, and takes nothing behind a failure or its end", "[checkpoint]")
{
  simulated_folder folder;
  generation_part<simulated_folder> part{folder, 1};
  CHECK_THROWS_AS(part.end_file(), usage_error);
  part.sync();  // nothing is open
  write_one(part, "12345678", "");
  part.begin_file(8);
  CHECK_THROWS_AS(part.finish(), usage_error);
  folder.set_faults({.at = 0});
  CHECK_THROWS_AS(part.sync(), io_error);
  CHECK_THROWS_AS(part.sync(), usage_error);
  CHECK_THROWS_AS(part.end_file(), usage_error);
  folder.set_faults({});
  generation_part<simulated_folder> other{folder, 2};
  other.finish();
  CHECK_THROWS_AS(other.begin_file(8), usage_error);
  CHECK_THROWS_AS((generation_part<simulated_folder>{folder, 0}), usage_error);
}

namespace {

/// A folder whose second sync fails, and which keeps its manifests while a flag is set.
struct stubborn_folder {
  using writer = simulated_folder::writer;
  using reader = simulated_folder::reader;

  [[nodiscard]] writer create(std::string_view name) { return inner.create(name); }
  [[nodiscard]] reader open(std::string_view name) const { return inner.open(name); }
  void rename(std::string_view from, std::string_view to) { inner.rename(from, to); }
  bool remove(std::string_view name) noexcept
  {
    return (keeps_manifests && name.ends_with(".manifest")) ? false : inner.remove(name);
  }
  void sync()
  {
    if (++syncs == 2) throw io::failed("syncing", "the folder", EIO);
    inner.sync();
  }
  [[nodiscard]] std::vector<std::string> names() const { return inner.names(); }

  simulated_folder inner;
  bool keeps_manifests = false;
  int syncs = 0;
};
static_assert(file_folder<stubborn_folder>);

/// Contents 0 (unused) to 3.
std::vector<stored_generation> four()
{
  return {stored_generation{100}, stored_generation{101}, stored_generation{102}, stored_generation{103}};
}

/// A folder with one whole generation, the seed 101.
simulated_folder with_older(const std::vector<stored_generation>& known)
{
  simulated_folder folder;
  known[1].write(folder);
  return folder;
}

/// The operations of one save after it.
std::uint64_t operations_of_a_save(const std::vector<stored_generation>& known)
{
  simulated_folder folder = with_older(known);
  folder.set_faults({});
  known[2].write(folder);
  return folder.requests().size();
}

/// errno of a save that fails, none where it does not.
std::optional<int> fault_of_save(simulated_folder& folder, const stored_generation& what)
{
  try {
    what.write(folder);
    return {};
  } catch (const io_error& failed) {
    return failed.fault().number;
  }
}

}  // namespace

TEST_CASE("a generation is there when it was committed, and not before", "[checkpoint]")
{
  const auto known = four();
  simulated_folder folder = with_older(known);
  generation_writer<simulated_folder> writer{folder, next_generation(folder)};
  CHECK(writer.generation() == 2);
  known[2].write_files(writer);
  CHECK(newest_seed(folder, known) == 101);
  stored_generation::commit(writer, known[2].rest());
  CHECK(newest_seed(folder, known) == 102);
  CHECK(writer.part().files().size() == 2);
  for (const auto& stored : writer.part().files()) CHECK(folder.content().at(stored.name).size() == stored.size);
  for (const auto& [name, content] : folder.content()) CHECK_FALSE(name.ends_with(".tmp"));
}

TEST_CASE("a file is synced and closed before it has its name, and the folder before the manifest", "[checkpoint]")
{
  simulated_folder folder;
  stored_generation{1}.write(folder);
  std::vector<std::string> order;
  for (const support::disk_request& it : folder.requests()) {
    if (it.what == disk_operation::sync) order.push_back("sync " + it.name);
    if (it.what == disk_operation::close) order.push_back("close " + it.name);
    if (it.what == disk_operation::rename) order.push_back("rename " + it.name);
    if (it.what == disk_operation::sync_folder) order.push_back("sync folder");
  }
  const std::string first = "generation-000001-00000.safetensors.tmp";
  const std::string second = "generation-000001-00001.safetensors.tmp";
  const std::string last = "generation-000001.manifest.tmp";
  CHECK(order == std::vector<std::string>{"sync " + first, "close " + first, "rename " + first, "sync " + second,
                                          "close " + second, "rename " + second, "sync folder", "sync " + last,
                                          "close " + last, "rename " + last, "sync folder"});
}

TEST_CASE("a writer that ends early takes its files away and no others", "[checkpoint]")
{
  const auto known = four();
  for (int stop = 0; stop < 4; ++stop) {
    simulated_folder folder = with_older(known);
    const support::disk_content before = folder.content();
    {
      generation_writer<simulated_folder> writer{folder, 2};
      if (stop > 0) writer.begin_file(4);
      if (stop > 1) writer.write(stored_generation::bytes_of("some"));
      if (stop > 2) writer.end_file();
    }
    CHECK(folder.content() == before);
  }
}

TEST_CASE("a writer leaves alone what somebody else has under its names", "[checkpoint]")
{
  const auto known = four();
  simulated_folder folder = with_older(known);
  const std::string other = "generation-000001-00000.safetensors.tmp";
  folder.put(other, "of another save");
  const support::disk_content before = folder.content();
  {
    generation_writer<simulated_folder> writer{folder, 1};  // a number that is taken, by mistake
    CHECK_THROWS_AS(writer.begin_file(4), io_error);
  }
  CHECK(folder.content() == before);
  CHECK(newest_seed(folder, known) == 101);
}

TEST_CASE("after a failure a writer takes nothing more: a file that missed bytes never becomes part of a generation",
          "[checkpoint]")
{
  const auto content = stored_generation::bytes_of("some");
  for (std::uint64_t index = 0; index < 5; ++index) {  // create, write, sync, close, rename
    simulated_folder folder;
    generation_writer<simulated_folder> writer{folder, 1};
    folder.set_faults({.at = index});
    try {
      writer.begin_file(4);
      writer.write(content);
      writer.end_file();
      FAIL("operation " << index << " did not fail");
    } catch (const io_error&) {
    }
    CHECK_THROWS_AS(writer.begin_file(4), usage_error);
    CHECK_THROWS_AS(writer.write(content), usage_error);
    CHECK_THROWS_AS(writer.end_file(), usage_error);
    CHECK_THROWS_AS(stored_generation::commit(writer, {}), usage_error);
    CHECK(folder.requests().size() == index + 1);
  }
}

TEST_CASE("a writer's calls have an order", "[checkpoint]")
{
  simulated_folder folder;
  generation_writer<simulated_folder> writer{folder, 1};
  CHECK_THROWS_AS(writer.write({}), usage_error);
  CHECK_THROWS_AS(writer.end_file(), usage_error);
  const std::string table = checkpoint::write_table({});
  writer.begin_file(table.size());
  CHECK_THROWS_AS(writer.begin_file(table.size()), usage_error);
  CHECK_THROWS_AS(stored_generation::commit(writer, {}), usage_error);
  writer.write(stored_generation::bytes_of(table));
  writer.end_file();
  stored_generation::commit(writer, {});
  CHECK_THROWS_AS(stored_generation::commit(writer, {}), usage_error);
  CHECK_THROWS_AS(writer.begin_file(4), usage_error);
  std::vector<checkpoint::skipped_generation> skipped;
  CHECK(checkpoint::newest_whole(folder, skipped));
}

TEST_CASE("whatever operation of a save fails, the older generation stays the newest, and another try succeeds",
          "[checkpoint]")
{
  const auto known = four();
  const std::uint64_t operations = operations_of_a_save(known);
  REQUIRE(operations > 20);
  for (const int number : {EIO, ENOSPC, EROFS})
    for (const bool retained : {false, true})
      for (std::uint64_t index = 0; index < operations; ++index) {
        INFO("errno " << number << " of operation " << index << (retained ? " and all after it" : ""));
        simulated_folder folder = with_older(known);
        folder.set_faults({.at = index, .number = number, .retained = retained});
        REQUIRE(fault_of_save(folder, known[2]) == number);
        folder.set_faults({});
        // Where the manifest has its name, its last sync fails and nothing can be removed any more, the generation is
        // there, and whole.
        const bool may_be_there = retained && index == operations - 1;
        REQUIRE(newest_seed(folder, known) == (may_be_there ? 102 : 101));
        remove_leftovers(folder);
        REQUIRE(fault_of_save(folder, known[3]) == std::nullopt);
        REQUIRE(newest_seed(folder, known) == 103);
      }
}

TEST_CASE("after a commit that failed at its last sync, a manifest that is there has its files, also after a power cut",
          "[checkpoint]")
{
  const auto known = four();
  for (const bool keeps_manifests : {false, true}) {
    INFO((keeps_manifests ? "the manifest cannot be removed" : "the manifest is removed"));
    stubborn_folder folder{with_older(known), keeps_manifests};
    REQUIRE_THROWS_AS(known[2].write(folder), io_error);
    REQUIRE(newest_seed(folder.inner, known) == (keeps_manifests ? 102 : 101));
    const auto disks = folder.inner.each_after_cut([&](const simulated_folder& left) {
      std::vector<checkpoint::skipped_generation> skipped;
      const auto found = checkpoint::newest_whole(left, skipped);
      CHECK(found);
      CHECK(skipped.empty());
      return skipped.empty();
    });
    CHECK(disks >= (keeps_manifests ? 2 : 1));
    simulated_folder again{folder.inner.content()};
    REQUIRE(fault_of_save(again, known[3]) == std::nullopt);
    REQUIRE(newest_seed(again, known) == 103);
  }
}

TEST_CASE("a number that no loader finds is refused", "[checkpoint]")
{
  simulated_folder folder;
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1'000'000'000'000'000}, UINT64_MAX})
    CHECK_THROWS_AS((generation_writer<simulated_folder>{folder, number}), usage_error);
  CHECK(folder.requests().empty());
}

TEST_CASE("a disk that fills up at any byte leaves the older generation, and room is given back", "[checkpoint]")
{
  const auto known = four();
  simulated_folder whole = with_older(known);
  std::uint64_t size = 0;
  known[2].write(whole);
  for (const auto& [name, content] : whole.content())
    size += name.starts_with("generation-000002") ? content.size() : 0;
  for (std::uint64_t room = 0; room < size; ++room) {
    INFO(room << " bytes");
    simulated_folder folder = with_older(known);
    const support::disk_content before = folder.content();
    folder.set_faults({.room = room});
    REQUIRE(fault_of_save(folder, known[2]) == ENOSPC);
    REQUIRE(folder.content() == before);
  }
  simulated_folder read_only = with_older(known);
  read_only.set_faults({.is_read_only = true});
  CHECK(fault_of_save(read_only, known[2]) == EROFS);
  CHECK(newest_seed(read_only, known) == 101);
}

TEST_CASE("short writes and reads make the same generation", "[checkpoint]")
{
  const auto known = four();
  simulated_folder whole = with_older(known);
  known[2].write(whole);
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    simulated_folder folder = with_older(known);
    folder.set_faults({.short_seed = seed});
    known[2].write(folder);
    REQUIRE(folder.content() == whole.content());
    REQUIRE(newest_seed(folder, known) == 102);
  }
}

TEST_CASE("a power cut ends a save where it is: nothing catches it, and no destructor writes", "[checkpoint]")
{
  const auto known = four();
  const std::uint64_t operations = operations_of_a_save(known);
  for (std::uint64_t index = 0; index < operations; ++index) {
    INFO("operation " << index);
    simulated_folder folder = with_older(known);
    folder.set_faults({.cut_at = index});
    REQUIRE_THROWS_AS(known[2].write(folder), support::power_cut);
    REQUIRE(folder.requests().size() == index);
    const support::disk_content left = folder.content();
    simulated_folder again{left};  // everything reached the disk
    REQUIRE(newest_seed(again, known) == (index == operations - 1 ? 102 : 101));
    remove_leftovers(again);
    known[3].write(again);
    REQUIRE(newest_seed(again, known) == 103);
    remove_older(again, 1);
    remove_leftovers(again);
    REQUIRE(again.content().size() == 3);
  }
}

}  // namespace generation_writer_test
