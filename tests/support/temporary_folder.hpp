// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

namespace support {

/// An empty folder for the duration of a test.
class temporary_folder {
 public:
  temporary_folder() : path_{(std::filesystem::temp_directory_path() / "chunkmem-XXXXXX").string()}
  {
    REQUIRE(::mkdtemp(path_.data()) != nullptr);
  }
  temporary_folder(const temporary_folder&) = delete;
  ~temporary_folder()
  {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + '/' + name; }
  /// The number of files and folders in it.
  [[nodiscard]] std::ptrdiff_t files() const { return std::distance(std::filesystem::directory_iterator{path_}, {}); }

 private:
  std::string path_;
};

}  // namespace support
