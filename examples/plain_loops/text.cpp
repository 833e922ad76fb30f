// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace plain_loops {
namespace {

namespace fs = std::filesystem;

#ifndef CHUNKMEM_SOURCE_DIR
#define CHUNKMEM_SOURCE_DIR "."  // the build says where the repository is
#endif

/// The regular files of a folder, in the order of their names; none where there is no such folder.
std::vector<fs::path> files_of(const fs::path& folder)
{
  std::vector<fs::path> files;
  std::error_code none;
  for (fs::directory_iterator at{folder, none}, end; !none && at != end; at.increment(none))
    if (at->is_regular_file(none) && !at->is_symlink(none)) files.push_back(at->path());
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string read_text(const std::string& file, std::size_t least)
{
  std::vector<fs::path> files;
  if (!file.empty()) files = {file};
  if (files.empty()) files = files_of("/usr/share/common-licenses");
  if (files.empty()) files = files_of(fs::path{CHUNKMEM_SOURCE_DIR} / "docs");
  std::string text;
  for (const fs::path& each : files) {
    std::ifstream in{each, std::ios::binary};
    if (!in) throw std::runtime_error{"the text " + each.string() + " cannot be read (name another file with --text)"};
    text.append(std::istreambuf_iterator<char>{in}, {});
  }
  if (text.size() >= least) return text;
  throw std::runtime_error{"the text has " + std::to_string(text.size()) + " B and a window needs " +
                           std::to_string(least) + " (give a longer file with --text, or make --context smaller)"};
}

token_batch batch_of(const std::string& text, const batch_shape& shape, std::uint64_t seed, std::uint64_t step)
{
  token_batch batch{.shape = shape, .tokens = {}, .targets = {}};
  const auto context = static_cast<std::size_t>(shape.context);
  for (int row = 0; row < shape.batch; ++row) {
    const std::uint64_t index = step * static_cast<std::uint64_t>(shape.batch) + static_cast<std::uint64_t>(row);
    const float where = random_uniform(seed, 1000, index);
    const auto begin = static_cast<std::ptrdiff_t>(where * static_cast<float>(text.size() - context - 1));
    const auto first = text.begin() + begin;
    batch.tokens.insert(batch.tokens.end(), first, first + shape.context);
    batch.targets.insert(batch.targets.end(), first + 1, first + shape.context + 1);
  }
  return batch;
}

int place_window(std::vector<unsigned char>& window, const std::string& text)
{
  const std::size_t count = std::min(window.size(), text.size());
  std::copy(text.end() - static_cast<std::ptrdiff_t>(count), text.end(), window.begin());
  return static_cast<int>(count) - 1;
}

}  // namespace plain_loops
