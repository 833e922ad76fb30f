// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include "fnv.hpp"
#include "problem.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

namespace gpt {
namespace {

namespace fs = std::filesystem;

#ifndef CHUNKMEM_SOURCE_DIR
#define CHUNKMEM_SOURCE_DIR "."  // the build says where the repository is
#endif

constexpr const char* licenses = "/usr/share/common-licenses";

[[noreturn]] void refuse(const fs::path& where, const std::string& why)
{
  throw problem{"the text '" + where.string() + "' " + why + " (give another file or folder with --text)"};
}

std::string content_of(const fs::path& file)
{
  std::ifstream in{file, std::ios::binary};
  if (!in.is_open()) refuse(file, "cannot be read");
  std::string content{std::istreambuf_iterator<char>{in}, {}};
  if (in.bad()) refuse(file, "cannot be read");
  return content;
}

/// The files of a folder by name. A link and its target are one file: only the first name of each is taken.
std::vector<fs::path> files_of(const fs::path& folder)
{
  std::error_code failure;
  std::vector<fs::path> names;
  for (fs::directory_iterator entry{folder, failure}, end; !failure && entry != end; entry.increment(failure)) {
    names.push_back(entry->path());
  }
  if (failure) refuse(folder, "cannot be listed: " + failure.message());
  std::sort(names.begin(), names.end());
  std::set<fs::path> seen;
  std::vector<fs::path> files;
  for (const fs::path& name : names) {
    const fs::path real = fs::canonical(name, failure);
    if (failure || !fs::is_regular_file(real, failure)) continue;
    if (seen.insert(real).second) files.push_back(real);
  }
  return files;
}

training_text joined(std::string name, const std::vector<fs::path>& files)
{
  std::string all;
  std::size_t readable = 0;
  for (const fs::path& file : files) {
    std::ifstream in{file, std::ios::binary};
    if (!in.is_open()) continue;  // files of a folder that cannot be read are left out
    all.append(std::istreambuf_iterator<char>{in}, {});
    ++readable;
  }
  if (readable == 0) refuse(name, "has no file that can be read");
  if (all.empty()) refuse(name, "is empty");
  return {std::move(name) + " (" + std::to_string(readable) + " files)", std::move(all)};
}

}  // namespace

training_text::training_text(std::string name, std::string content)
    : name_{std::move(name)}, content_{std::move(content)}
{
}

std::uint64_t training_text::hash() const noexcept
{
  fnv1a hash;
  hash.add(std::as_bytes(std::span{content_}));
  return hash.value();
}

std::span<const unsigned char> training_text::training() const noexcept
{
  return {reinterpret_cast<const unsigned char*>(content_.data()), content_.size() - content_.size() / 10};
}

std::span<const unsigned char> training_text::held_out() const noexcept
{
  const std::size_t begin = training().size();
  return {reinterpret_cast<const unsigned char*>(content_.data()) + begin, content_.size() - begin};
}

void training_text::expects_windows_of(std::size_t context) const
{
  if (held_out().size() >= context + 1) return;
  refuse(name_, "is too short: it has " + std::to_string(size()) + " bytes, its last tenth must hold a context of " +
                    std::to_string(context) + " bytes and one more, so it needs " + std::to_string(10 * (context + 1)) +
                    ", or a smaller --context");
}

training_text read_text(const std::filesystem::path& where)
{
  std::error_code failure;
  const fs::file_status status = fs::status(where, failure);
  if (status.type() == fs::file_type::not_found) refuse(where, "does not exist");
  if (failure) refuse(where, "cannot be looked at: " + failure.message());
  if (fs::is_directory(status)) return joined(where.string(), files_of(where));
  if (!fs::is_regular_file(status)) refuse(where, "is neither a regular file nor a folder");
  std::string content = content_of(where);
  if (content.empty()) refuse(where, "is empty");
  return {where.string(), std::move(content)};
}

training_text default_text()
{
  std::error_code failure;
  if (fs::is_directory(licenses, failure) && !files_of(licenses).empty()) return read_text(licenses);
  const fs::path source{CHUNKMEM_SOURCE_DIR};
  std::vector<fs::path> pages;
  if (fs::is_directory(source / "docs", failure)) pages = files_of(source / "docs");
  std::erase_if(pages, [](const fs::path& page) { return page.extension() != ".md"; });
  if (fs::is_regular_file(source / "README.md", failure)) pages.insert(pages.begin(), source / "README.md");
  return joined("documentation of " + source.string(), pages);
}

}  // namespace gpt
