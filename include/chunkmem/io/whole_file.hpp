// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/own_process.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace io {

/// A new file that gets its name when it is whole and synced. A file that is not finished is removed, if possible; a
/// forked child leaves it to its parent.
///
/// The name is there for good after the next sync of the folder. The folder has to outlive it.
///
/// Use:
///
///     whole_file file{folder, "table.tmp"};
///     file.write(content);
///     file.end("table.csv");
///     folder.sync();              // now the name survives a power cut
template <file_folder Folder>
class whole_file {
 public:
  /// @param temporary   its name until it is whole
  /// @throws io_error   also where there is such a file: it stays
  whole_file(Folder& folder, std::string_view temporary)
      : folder_{folder}, temporary_{temporary}, file_{folder.create(temporary)}
  {
  }
  whole_file(const whole_file&) = delete;
  ~whole_file()
  {
    file_.reset();
    if (!is_whole_ && made_in_.is_here()) (void)folder_.remove(temporary_);
  }

  /// @throws io_error   nothing more may be done with it
  void write(std::span<const std::byte> content) { write_all(*file_, content, temporary_); }
  /// The bytes so far survive a power cut, under the temporary name. @throws io_error   nothing more may be done with
  /// the file
  void sync() { file_->sync(); }
  /// Gives the file its name. A file that had the name is replaced. Nothing is written afterwards.
  /// @throws io_error   a file that had the name is untouched
  void end(std::string_view name)
  {
    file_->sync();
    file_->close();
    folder_.rename(temporary_, name);
    is_whole_ = true;
  }

 private:
  Folder& folder_;
  std::string temporary_;
  std::optional<typename Folder::writer> file_;
  bool is_whole_ = false;
  own_process made_in_;
};

}  // namespace io

}  // namespace chunkmem::inline v0
