// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace conformance {

namespace detail {

inline std::span<const std::byte> as_content(std::string_view text)
{
  return std::as_bytes(std::span{text});
}

template <class Folder>
void make_file(Folder& folder, std::string_view name, std::string_view text)
{
  auto file = folder.create(name);
  chunkmem::io::write_all(file, as_content(text));
  file.sync();
  file.close();
}

template <class Folder>
std::string text_of(const Folder& folder, std::string_view name)
{
  auto file = folder.open(name);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  chunkmem::io::read_all(file, 0, std::as_writable_bytes(std::span{text}));
  return text;
}

/// errno that a call fails with, -1 where it does not fail
template <class Call>
int errno_of(Call call)
{
  try {
    call();
    return -1;
  } catch (const chunkmem::io_error& failed) {
    return failed.fault().number;
  }
}

template <class Folder>
std::vector<std::string> sorted_names(const Folder& folder)
{
  std::vector<std::string> names = folder.names();
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace detail

/// The behaviour of every folder. @param folder   is empty, and empty again afterwards
template <chunkmem::file_folder Folder>
void file_folder_laws(Folder& folder)
{
  using namespace detail;
  REQUIRE(folder.names().empty());

  // A file reads as it was written, from every offset, and there is nothing after its end.
  make_file(folder, "one", "what was written");
  CHECK(text_of(folder, "one") == "what was written");
  auto file = folder.open("one");
  std::string middle(3, ' ');
  chunkmem::io::read_all(file, 5, std::as_writable_bytes(std::span{middle}));
  CHECK(middle == "was");
  CHECK(file.read(16, std::as_writable_bytes(std::span{middle})) == 0);
  CHECK(file.read(1'000'000, std::as_writable_bytes(std::span{middle})) == 0);
  CHECK_THROWS_AS(chunkmem::io::read_all(file, 15, std::as_writable_bytes(std::span{middle})), chunkmem::io_error);

  // A name is made once, found by that name alone, and an empty file is a file.
  CHECK(errno_of([&] { (void)folder.create("one"); }) == EEXIST);
  CHECK(text_of(folder, "one") == "what was written");
  CHECK(errno_of([&] { (void)folder.open("One"); }) == ENOENT);
  CHECK(errno_of([&] { folder.rename("two", "three"); }) == ENOENT);
  make_file(folder, "empty", "");
  CHECK(text_of(folder, "empty").empty());
  CHECK(sorted_names(folder) == std::vector<std::string>{"empty", "one"});

  // Renaming replaces, and an open file stays what it was.
  make_file(folder, "new", "the new one");
  folder.rename("new", "one");
  CHECK(text_of(folder, "one") == "the new one");
  CHECK(sorted_names(folder) == std::vector<std::string>{"empty", "one"});
  chunkmem::io::read_all(file, 9, std::as_writable_bytes(std::span{middle}));
  CHECK(middle == "wri");
  folder.sync();

  // A removed file is gone, and so is a file that never existed.
  CHECK(folder.remove("one"));
  CHECK(folder.remove("one"));
  CHECK(folder.remove("empty"));
  CHECK(errno_of([&] { (void)folder.open("one"); }) == ENOENT);
  CHECK(folder.names().empty());
  folder.sync();
}

}  // namespace conformance
