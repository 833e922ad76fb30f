// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/io/file_folder.hpp>

#include <conformance/file_folder.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>
#include <support/simulated_folder.hpp>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace file_folder_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using conformance::detail::as_content;
using conformance::detail::errno_of;
using conformance::detail::make_file;
using conformance::detail::text_of;
using support::disk_content;
using support::disk_operation;
using support::simulated_folder;

namespace {

/// Takes as many bytes as it is told to.
struct odd_file {
  std::size_t answer = 0;

  std::size_t write(std::span<const std::byte>) { return answer; }
  void sync() {}
  void close() {}
  std::uint64_t size() { return 0; }
  std::size_t read(std::uint64_t, std::span<std::byte>) { return answer; }
};
static_assert(file_writer<odd_file> && file_reader<odd_file>);

std::set<disk_content> after_cut(const support::simulated_folder& folder)
{
  std::set<disk_content> found;
  (void)folder.each_after_cut([&](const support::simulated_folder& left) {
    found.insert(left.content());
    return true;
  });
  return found;
}

std::set<disk_content> some_of(const std::vector<disk_content>& disks)
{
  return {disks.begin(), disks.end()};
}

}  // namespace

TEST_CASE("a simulated folder keeps the laws of a folder, also where reads and writes are short", "[io]")
{
  for (std::uint64_t seed = 0; seed <= 20; ++seed) {
    support::simulated_folder folder;
    folder.set_faults({.short_seed = seed});
    // One law asks for a byte behind the end and for three at once: it holds for short reads too.
    conformance::file_folder_laws(folder);
  }
}

TEST_CASE("an error of a file says what, which, where and what to do", "[io]")
{
  const io_error failed = io::failed("writing", "weights", ENOSPC, 4096);
  CHECK(failed.fault().number == ENOSPC);
  CHECK(failed.fault().offset == 4096);
  CHECK(failed.code() == error_code::io);
  CHECK_THAT(failed.what(), ContainsSubstring("chunkmem: writing weights failed at byte 4096: no room is left, errno " +
                                              std::to_string(ENOSPC) + " (free some"));
  for (const int number : {EIO, ELOOP, ENOENT, EMFILE, EACCES, EROFS, 0, 4'000}) {
    const io_error other = io::failed("reading", "weights", number);
    CHECK_THAT(other.what(), ContainsSubstring("chunkmem: reading weights failed at byte 0: "));
    CHECK_THAT(other.what(), !ContainsSubstring("room") && ContainsSubstring(" ("));
  }
  for (const char* const operation : {"making the folder", "opening", "listing", "syncing", "locking", "renaming"})
    CHECK_THAT(io::failed(operation, "runs/a", EACCES).what(),
               ContainsSubstring(std::string{operation} + " runs/a failed: that is not allowed") &&
                   !ContainsSubstring("byte"));
  CHECK_THAT(io::failed("opening", "weights", ENOENT).what(),
             ContainsSubstring("it is not there, errno 2 (check the path)"));
  CHECK_THAT(io::failed("reading", "weights", 0).what(), !ContainsSubstring("errno"));
  CHECK(std::strlen(io::failed("reading", std::string(10'000, 'n'), 1).what()) < 1'000);
}

TEST_CASE("a file that takes or gives nothing, or more than there is, is an error and no endless loop", "[io]")
{
  std::byte room[8] = {};
  for (const std::size_t answer : {std::size_t{0}, std::size_t{9}, SIZE_MAX}) {
    odd_file file{answer};
    CHECK_THROWS_AS(io::write_all(file, std::span<const std::byte>{room}), io_error);
    CHECK_THROWS_AS(io::read_all(file, 0, std::span{room}), io_error);
    CHECK_NOTHROW(io::write_all(file, {}));
    CHECK_NOTHROW(io::read_all(file, 0, {}));
  }
  odd_file nothing;
  CHECK_THAT(support::refusal<io_error>([&] { io::write_all(nothing, std::span<const std::byte>{room}, "weights"); }),
             ContainsSubstring("writing weights failed"));
  CHECK_THAT(support::refusal<io_error>([&] { io::read_all(nothing, 7, std::span{room}, "weights"); }),
             ContainsSubstring("reading weights failed at byte 7"));
  odd_file whole{8};
  CHECK_NOTHROW(io::write_all(whole, std::span<const std::byte>{room}));
  CHECK_NOTHROW(io::read_all(whole, 0, std::span{room}));
}

TEST_CASE("a simulated folder fails when it is told to, once or from then on", "[io]")
{
  for (const bool retained : {false, true})
    for (const int number : {EIO, ENOSPC, EROFS})
      for (std::uint64_t index = 0; index < 4; ++index) {  // create, write, sync, close
        support::simulated_folder folder;
        folder.set_faults({.at = index, .number = number, .retained = retained});
        CHECK(errno_of([&] { make_file(folder, "a", "b"); }) == number);
        CHECK(folder.requests().size() == index + 1);
        CHECK(folder.remove("a") == !retained);
        CHECK(folder.failures() == (retained ? 2 : 1));
      }
  support::simulated_folder full;
  full.set_faults({.room = 5});
  make_file(full, "a", "1234");
  CHECK(errno_of([&] { make_file(full, "b", "56"); }) == ENOSPC);
  CHECK(full.content() == support::disk_content{{"a", "1234"}, {"b", "5"}});
  full.set_faults({.is_read_only = true});
  CHECK(errno_of([&] { make_file(full, "c", "7"); }) == EROFS);
  CHECK(errno_of([&] { full.rename("a", "b"); }) == EROFS);
  CHECK_FALSE(full.remove("a"));
  CHECK(text_of(full, "a") == "1234");
}

TEST_CASE("a power cut of a simulated folder leaves what was synced, and any part of the rest", "[io]")
{
  const disk_content nothing;
  support::simulated_folder folder;
  CHECK(after_cut(folder) == some_of({nothing}));
  auto file = folder.create("a");
  CHECK(after_cut(folder) == some_of({nothing, {{"a", ""}}}));
  io::write_all(file, as_content("12"));
  io::write_all(file, as_content("34"));
  const std::string zero(1, '\0');
  const std::string zeros = zero + zero;
  const auto with_file = [&](const std::string& name) {
    std::vector<disk_content> found{nothing};
    for (const std::string& it : {std::string{}, zeros + zeros, std::string{"1"}, std::string{"12"}, zeros + "34",
                                  std::string{"123"}, std::string{"1234"}, "12" + zeros})
      found.push_back({{name, it}});
    return some_of(found);
  };
  CHECK(after_cut(folder) == with_file("a"));
  file.sync();
  CHECK(after_cut(folder) == some_of({nothing, {{"a", "1234"}}}));
  folder.rename("a", "b");
  CHECK(after_cut(folder) == some_of({nothing, {{"a", "1234"}}, {{"b", "1234"}}}));
  folder.sync();
  CHECK(after_cut(folder) == some_of({disk_content{{"b", "1234"}}}));
  CHECK(folder.remove("b"));
  CHECK(after_cut(folder) == some_of({nothing, {{"b", "1234"}}}));
}

TEST_CASE("after a failed sync the bytes of a simulated file are lost, whatever the next sync says", "[io]")
{
  support::simulated_folder folder;
  auto file = folder.create("a");
  io::write_all(file, as_content("1"));
  folder.set_faults({.at = 0});
  CHECK_THROWS_AS(file.sync(), io_error);
  CHECK_NOTHROW(file.sync());
  folder.sync();
  CHECK(after_cut(folder).contains(disk_content{{"a", ""}}));
}

TEST_CASE("after a power cut a simulated folder does nothing any more", "[io]")
{
  support::simulated_folder folder;
  make_file(folder, "a", "1");
  folder.set_faults({.cut_at = 1});
  auto file = folder.create("b");
  CHECK_THROWS_AS(file.sync(), support::power_cut);
  CHECK_THROWS_AS(file.write(as_content("2")), support::power_cut);
  CHECK_THROWS_AS(folder.names(), support::power_cut);
  CHECK_FALSE(folder.remove("a"));
  CHECK(folder.content().contains("a"));
}

namespace {

void replace(simulated_folder& folder)
{
  io::atomic_file<simulated_folder> file{folder, "w.new"};
  file.write(as_content("1"));
  file.write(as_content("23"));
  file.end("w");
}

}  // namespace

TEST_CASE("a file has its name when it was synced and closed, and what had the name is replaced", "[io]")
{
  simulated_folder folder{disk_content{{"w", "older"}}};
  replace(folder);
  CHECK(folder.content() == disk_content{{"w", "123"}});
  std::vector<disk_operation> order;
  for (const support::disk_request& it : folder.requests()) order.push_back(it.what);
  using enum disk_operation;
  CHECK(order == std::vector{create, write, write, sync, close, rename});
}

TEST_CASE("a file that does not become whole is gone, and what has its names stays", "[io]")
{
  for (std::uint64_t index = 0; index < 6; ++index) {
    INFO("operation " << index);
    simulated_folder folder{disk_content{{"w", "older"}}};
    folder.set_faults({.at = index, .number = EIO});
    CHECK(errno_of([&] { replace(folder); }) == EIO);
    CHECK(folder.content() == disk_content{{"w", "older"}});
  }
  simulated_folder folder{disk_content{{"w", "older"}, {"w.new", "of another"}}};
  CHECK(errno_of([&] { replace(folder); }) == EEXIST);
  CHECK(folder.content() == disk_content{{"w", "older"}, {"w.new", "of another"}});
  simulated_folder early;
  {
    io::atomic_file<simulated_folder> file{early, "w.new"};
  }
  CHECK(early.content().empty());
}

}  // namespace file_folder_test
