// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace chunkmem::inline v0 {

/// A new file in the place of an older one, for traces and plans: the older one is never written to.
///
/// The file is made anew, beside its name (`.new`), and then takes the name. So a link that somebody has put there is
/// never followed, what has another name too stays as it is, and a reader of the older file goes on with the older one.
/// A link, a folder, a pipe or another user's file in a shared folder is refused and stays. A device, such as
/// /dev/full, is written to. The mode is that of a new file. Folders on the way are followed as they are: use no path
/// through a folder that others may change. Needs POSIX.
/// @threads   one caller
class replaced_file {
 public:
  /// When the file takes its name.
  enum class naming : std::uint8_t {
    at_once,  ///< what was written can be read meanwhile, and is there after a crash
    at_end,   ///< by `finish`; where that does not come, or fails, the older file stays
  };

  /// @param what   the file is, for messages: "the trace file"; a literal
  /// @throws io_error   the file cannot be made, or something that is no plain file has the name
  replaced_file(std::string path, std::string_view what, naming when) : path_{std::move(path)}, what_{what}
  {
    struct stat found = {};
    const bool is_there = ::lstat(path_.c_str(), &found) == 0;
    if (!is_there && errno != ENOENT) fail("opening", errno);
    if (is_there && S_ISLNK(found.st_mode)) fail("opening", ELOOP, "it is a symbolic link: name what it points at");
    if (is_there && S_ISDIR(found.st_mode)) fail("opening", EISDIR, "it is a folder: name a file");
    if (is_there && !S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode))
      fail("opening", EINVAL, "it is no plain file: name another one");
    if (is_there && S_ISCHR(found.st_mode)) {
      open_stream(::open(path_.c_str(), O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC), path_);
      return;
    }
    make();
    if (when == naming::at_once) take_name();
  }
  replaced_file(const replaced_file&) = delete;
  replaced_file& operator=(const replaced_file&) = delete;
  /// A file that has not got its name is removed; a forked child leaves it to its parent.
  ~replaced_file()
  {
    if (!unnamed_.empty() && made_in_.is_here()) (void)::unlink(unnamed_.c_str());
  }

  /// @return   none after `finish`
  [[nodiscard]] std::FILE* stream() noexcept { return stream_.get(); }

  /// Ends the file, which then has its name. Nothing where it has ended. @throws io_error   not all of it was written
  void finish()
  {
    if (stream_ == nullptr) return;
    int problem = std::ferror(stream_.get()) != 0 ? EIO : 0;
    if (std::fflush(stream_.get()) != 0) problem = errno;
    if (problem == 0 && !unnamed_.empty() && ::fsync(::fileno(stream_.get())) != 0) problem = errno;
    if (std::fclose(stream_.release()) != 0 && problem == 0) problem = errno;  // a full disk may show only here
    if (problem != 0) fail("writing", problem);
    if (!unnamed_.empty()) take_name();
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  [[noreturn]] void fail(
      std::string_view operation, int number,
      std::string_view advice = "check that its folder is there, may be written to and has room") const
  {
    throw io_error{error_text{} << "chunkmem: " << operation << " " << what_
                                << " failed: " << std::string_view{path_}.substr(0, 255) << ", errno "
                                << static_cast<std::uint64_t>(number) << " (" << advice << ")",
                   {number, 0}};
  }
  void open_stream(int file, const std::string& name)
  {
    if (file < 0)
      fail("opening", errno,
           name == path_ ? "check its mode"
                         : "remove what has its name with .new behind it, if that is in the way, and check its folder");
    stream_.reset(::fdopen(file, "wb"));
    if (stream_ != nullptr) return;
    const int number = errno;
    ::close(file);
    fail("opening", number);
  }
  void make()
  {
    std::string name = path_ + ".new";
    const auto open = [&] { return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666); };
    int file = open();
    struct stat left = {};
    if (file < 0 && errno == EEXIST && ::lstat(name.c_str(), &left) == 0 && S_ISREG(left.st_mode) &&
        left.st_uid == ::geteuid()) {
      (void)::unlink(name.c_str());  // of a program that was killed
      file = open();
    }
    open_stream(file, name);
    unnamed_ = std::move(name);
  }
  void take_name()
  {
    const int problem = ::rename(unnamed_.c_str(), path_.c_str()) == 0 ? 0 : errno;
    if (problem != 0) (void)::unlink(unnamed_.c_str());
    unnamed_.clear();
    if (problem != 0) fail("replacing", problem, "remove the older one, or name another file");
  }

  std::string path_;
  std::string_view what_;
  own_process made_in_;
  std::string unnamed_;  ///< its name until it takes the right one
  std::unique_ptr<std::FILE, closer> stream_;
};

/// Writes a whole text so. @throws io_error   what was there stays
inline void replace_file(const std::string& path, std::string_view what, std::string_view text)
{
  replaced_file file{path, what, replaced_file::naming::at_end};
  (void)std::fwrite(text.data(), 1, text.size(), file.stream());  // what goes wrong is said at the end
  file.finish();
}

}  // namespace chunkmem::inline v0
