// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace support {

/// Writes to a symbolic link, which is refused, and to a hard link of a file: either way the file keeps its bytes.
/// @param write   `write(path)` saves something there
template <class Write>
void expect_no_link_is_followed(Write write)
{
  const auto path = std::filesystem::temp_directory_path() / ("chunkmem_link_" + std::to_string(::getpid()));
  const std::string precious = path.string() + ".precious";
  std::ofstream{precious} << "kept";
  std::filesystem::remove(path);
  std::filesystem::create_symlink(precious, path);
  CHECK_THROWS_AS(write(path.string()), chunkmem::io_error);
  CHECK(std::filesystem::file_size(precious) == 4);
  std::filesystem::remove(path);
  std::filesystem::create_hard_link(precious, path);
  CHECK_NOTHROW(write(path.string()));
  CHECK(std::filesystem::file_size(precious) == 4);
  std::filesystem::remove(path);
  std::filesystem::remove(precious);
}

}  // namespace support
