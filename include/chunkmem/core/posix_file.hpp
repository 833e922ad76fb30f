// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/core/version.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace detail {

/// Closes the file it holds, once. Needs POSIX.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_{number} {}
  descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept
  {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor()
  {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

/// Repeats a call that a signal interrupted.
template <class Call>
[[nodiscard]] auto uninterrupted(Call call)
{
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Whether the path still names this file; a link is not followed. While the descriptor is open, the system does not
/// give the file's number to a new file.
[[nodiscard]] inline bool is_named(const descriptor& file, const std::string& path) noexcept
{
  struct stat own = {};
  struct stat named = {};
  return ::fstat(file.get(), &own) == 0 && ::lstat(path.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

}  // namespace detail

/// A new file in the place of an older one, for traces and plans: the older one is never written to.
///
///     replaced_file file{"run.csv", "a table of events", replaced_file::naming::at_end};
///     file.write(text);
///     file.finish();
///
/// A new file is made with `.new` after the name, and then renamed. So a planted link is never followed, a file with
/// other hard links is never changed, and a reader of the older file goes on with the older one. A link, a folder, a
/// pipe or another user's file in a shared folder is refused and stays. A device, such as /dev/full, is written to. The
/// mode is that of a new file. Folders of the path are followed as they are: use no path through a folder that others
/// may change. Needs POSIX.
///
/// Two writers of one name have a file each (`.new`, `.new-1`), and the name ends up with the whole file of the one
/// that renamed last. A lock distinguishes the unfinished file of a live writer from that of a killed one, which is
/// removed. Where the file system has no locks, neither is removed. A forked child writes nothing.
/// @threads   one caller
class replaced_file {
 public:
  /// When the file takes its name.
  enum class naming : std::uint8_t {
    at_once,  ///< written text can be read meanwhile, except the last 4 KiB, and stays after a crash
    at_end,   ///< by `finish`; without a successful `finish`, the older file stays
  };

  /// @param what    kind of the file, for messages: "the trace file"; a literal
  /// @param begin   of the text: it is written before the file takes its name
  /// @throws io_error   the file cannot be made or has no room for `begin`, or something that is no plain file has the
  ///                    name. An older file stays
  replaced_file(std::string path, std::string_view what, naming when, std::string_view begin = {})
      : path_{std::move(path)}, what_{what}
  {
    struct stat found = {};
    const bool is_there = ::lstat(path_.c_str(), &found) == 0;
    if (!is_there && errno != ENOENT) fail("opening", errno);
    if (is_there) refuse_unfit(found);
    if (is_there && S_ISCHR(found.st_mode))
      open_device();
    else
      make();
    put(begin);
    if (problem_ != 0) {
      if (!unnamed_.empty()) (void)::unlink(unnamed_.c_str());
      fail("writing", problem_);
    }
    if (when == naming::at_once && !unnamed_.empty()) take_name(file_, std::exchange(unnamed_, ""));
  }
  replaced_file(const replaced_file&) = delete;
  replaced_file& operator=(const replaced_file&) = delete;
  /// Removes a file that does not have its name yet; flushes one that has. A forked child leaves both to its parent.
  ~replaced_file()
  {
    if (!file_.is_open() || !made_in_.is_here()) return;
    if (unnamed_.empty())
      flush();
    else if (detail::is_named(file_, unnamed_))
      (void)::unlink(unnamed_.c_str());
  }

  /// False after `finish`.
  [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }

  /// Adds to the file. `finish` reports failures. Does nothing after `finish`, and in a forked child.
  void write(std::string_view text) noexcept
  {
    if (!file_.is_open()) return;
    if (text.size() > buffer_.size() - held_) flush();
    if (text.size() > buffer_.size()) {
      if (made_in_.is_here()) put(text);
      return;
    }
    std::copy(text.begin(), text.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(held_));
    held_ += text.size();
  }
  /// Makes the text so far readable, if the file has its name.
  void flush() noexcept
  {
    if (file_.is_open() && made_in_.is_here()) put({buffer_.data(), held_});
    held_ = 0;
  }

  /// Ends the file, which then has its name. Does nothing the second time. @throws io_error   not all text was written:
  /// a file with naming::at_once keeps the earlier writes, and is removed where there are none; usage_error   this is a
  /// forked child
  void finish()
  {
    if (!file_.is_open()) return;
    made_in_.expect_here(what_);
    flush();
    const detail::descriptor held = std::move(file_);  // with the lock, until the file has its name
    const std::string name = std::exchange(unnamed_, "");
    if (problem_ == 0 && !name.empty() && ::fsync(held.get()) != 0) problem_ = errno;
    const int again = ::dup(held.get());
    if ((again < 0 || ::close(again) != 0) && problem_ == 0) problem_ = errno;  // a full disk may show only here
    if (problem_ != 0) {
      const std::string& named = name.empty() ? path_ : name;
      if ((!name.empty() || is_empty(held)) && detail::is_named(held, named)) (void)::unlink(named.c_str());
      fail("writing", problem_);
    }
    if (!name.empty()) take_name(held, name);
  }

 private:
  static constexpr std::size_t buffer_bytes = 4096;
  static constexpr unsigned most_writers = 1000;  ///< of one name at a time

  [[noreturn]] void fail(
      std::string_view operation, int number,
      std::string_view advice = "check that its folder is there, may be written to and has room") const
  {
    throw io_error{error_text{} << "chunkmem: " << operation << " " << what_
                                << " failed: " << std::string_view{path_}.substr(0, 255) << ", errno "
                                << static_cast<std::uint64_t>(number) << " (" << advice << ")",
                   {number, 0}};
  }
  void refuse_unfit(const struct stat& found) const
  {
    if (S_ISLNK(found.st_mode)) fail("opening", ELOOP, "it is a symbolic link: name what it points at");
    if (S_ISDIR(found.st_mode)) fail("opening", EISDIR, "it is a folder: name a file");
    if (!S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode))
      fail("opening", EINVAL, "it is no plain file: name another one");
  }

  /// Opens a device. Another file may have the name by now: the call never waits for a pipe.
  void open_device()
  {
    detail::descriptor file{::open(path_.c_str(), O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)};
    if (!file.is_open()) fail("opening", errno, "check its mode");
    struct stat what = {};
    if (::fstat(file.get(), &what) != 0) fail("opening", errno);
    if (!S_ISCHR(what.st_mode)) fail("opening", EINVAL, "it was a device a moment ago: name another file");
    const int flags = ::fcntl(file.get(), F_GETFL);
    if (flags < 0 || ::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) fail("opening", errno);
    file_ = std::move(file);
  }

  void make()
  {
    for (unsigned index = 0; index < most_writers; ++index) {
      std::string name = path_ + ".new";
      if (index > 0) name.append("-").append(std::to_string(index));  // `+` of two texts: a false warning of g++ 12
      detail::descriptor file = made(name);
      if (!file.is_open()) continue;
      file_ = std::move(file);
      unnamed_ = std::move(name);
      return;
    }
    fail_to_make(EEXIST);
  }
  [[noreturn]] void fail_to_make(int number) const
  {
    fail("opening", number,
         "remove the file or folder of this name with .new at its end, if there is one, and check its folder");
  }
  /// @return   a new file, locked where the file system has locks; none: another writer has the name
  [[nodiscard]] detail::descriptor made(const std::string& name) const
  {
    for (;;) {
      detail::descriptor file{::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)};
      if (file.is_open()) {
        if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
        if (detail::is_named(file, name)) return file;
        continue;  // before its lock, another program took it for that of a killed one
      }
      if (errno != EEXIST) fail_to_make(errno);
      if (!is_removed_if_left(name)) return {};
    }
  }
  /// Removes the file of a program that was killed. @return   false: its writer may live
  [[nodiscard]] bool is_removed_if_left(const std::string& name) const
  {
    struct stat left = {};
    if (::lstat(name.c_str(), &left) != 0) return true;
    if (!S_ISREG(left.st_mode) || left.st_uid != ::geteuid()) fail_to_make(EEXIST);
    const detail::descriptor file{::open(name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!file.is_open()) return errno == ENOENT;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
    if (detail::is_named(file, name) && ::unlink(name.c_str()) != 0) fail_to_make(errno);
    return true;
  }

  void take_name(const detail::descriptor& file, const std::string& name) const
  {
    if (!detail::is_named(file, name))
      fail("replacing", ESTALE, "the unfinished file with .new at its end was removed or replaced: write it again");
    if (::rename(name.c_str(), path_.c_str()) == 0) return;
    const int number = errno;
    (void)::unlink(name.c_str());
    fail("replacing", number, "remove the older one, or name another file");
  }

  /// False for a device.
  [[nodiscard]] static bool is_empty(const detail::descriptor& file) noexcept
  {
    struct stat found = {};
    return ::fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0;
  }

  /// Writes all of a text, or none of it.
  void put(std::string_view text) noexcept
  {
    const off_t begin = ::lseek(file_.get(), 0, SEEK_CUR);
    while (problem_ == 0 && !text.empty()) {
      const ssize_t taken = detail::uninterrupted([&] { return ::write(file_.get(), text.data(), text.size()); });
      if (taken > 0) {
        text.remove_prefix(static_cast<std::size_t>(taken));
        continue;
      }
      problem_ = taken < 0 ? errno : EIO;
      if (::ftruncate(file_.get(), begin) != 0) return;  // a device
    }
  }

  std::string path_;
  std::string_view what_;
  own_process made_in_;
  std::string unnamed_;  ///< its name until it takes the right one
  detail::descriptor file_;
  std::array<char, buffer_bytes> buffer_{};
  std::size_t held_ = 0;  ///< of the buffer, not yet written
  int problem_ = 0;       ///< errno of the first write that failed
};

/// Replaces a file by one with this text. @throws io_error   the older file stays
inline void replace_file(const std::string& path, std::string_view what, std::string_view text)
{
  replaced_file file{path, what, replaced_file::naming::at_end};
  file.write(text);
  file.finish();
}

}  // namespace chunkmem::inline v0
