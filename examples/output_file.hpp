// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/posix_file.hpp>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace command_line {

/// The absolute path of a file or folder, without `.`, `..`, a slash at the end, and links to what exists. So two names
/// of one file have the same path, also before the file is made, and while another thread makes it. A link to nothing
/// has a path of its own. Where a folder of the name cannot be read, the path is the name.
[[nodiscard]] inline std::filesystem::path place_of(const std::filesystem::path& named)
{
  std::error_code ignored;
  const std::filesystem::path whole =
      std::filesystem::weakly_canonical(std::filesystem::absolute(named, ignored), ignored);
  if (whole.empty()) return named.lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

/// A file that an option names. The text written to `text` replaces an older file as a whole at the end: see
/// replaced_file, which follows no link.
///
///     output_file<problem> out{"--csv", *chosen.csv};  // throws before the work starts if it cannot be written
///     write_csv(out.text(), rows);
///     out.finish();
/// @tparam Problem   the exception, made of a sentence
template <class Problem>
class output_file {
 public:
  /// @throws Problem   the file cannot be made
  output_file(std::string_view option, const std::filesystem::path& where)
      : begin_{std::string{option} + " '" + where.string() + "' "}
  {
    try {
      file_ = std::make_unique<chunkmem::replaced_file>(where.string(), "the file",
                                                        chunkmem::replaced_file::naming::at_end);
    } catch (const chunkmem::io_error& failed) {
      throw Problem{begin_ + "cannot be written (choose another file): " + failed.what()};
    }
  }

  [[nodiscard]] std::ostream& text() noexcept { return text_; }
  /// @throws Problem   the file could not be written to its end: the older file stays
  void finish()
  {
    try {
      file_->write(text_.view());
      file_->finish();
    } catch (const chunkmem::io_error& failed) {
      throw Problem{begin_ + "could not be written to its end: " + failed.what()};
    }
  }

 private:
  std::string begin_;
  std::ostringstream text_;
  std::unique_ptr<chunkmem::replaced_file> file_;
};

/// Writes a whole file in the same way. @throws Problem
template <class Problem>
void write_file(std::string_view option, const std::filesystem::path& where, std::string_view text)
{
  output_file<Problem> out{option, where};
  out.text() << text;
  out.finish();
}

}  // namespace command_line
