// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/core/posix_file.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace chunkmem::inline v0 {

namespace io {

namespace detail {

using chunkmem::detail::descriptor;
using chunkmem::detail::uninterrupted;

}  // namespace detail

/// A folder of this machine, opened once: later changes of its path do not matter.
///
/// Files are readable by their owner only (0600), never opened through a symbolic link, and closed on exec. Links in
/// the folder's own path are followed. A missing folder is made durably (0700); its parent has to exist. Good for any
/// local or network file system with POSIX's atomic rename.
///
/// Three users may change files: the user of this process, the owner of the folder, and root. These files are foreign
/// (see guarded_folder):
/// - a file of any other user;
/// - a file that everybody may write to;
/// - a file with a second name, where others may add names to the folder.
///
/// So others may add files to a folder, such as one with mode 01777 or 0770, and no such file is trusted.
///
/// Use:
///
///     io::posix_folder folder{"runs/a"};                    // makes the folder if it does not exist
///     checkpoint::save(m, folder);
///     const auto found = checkpoint::load(m, folder);
///
/// @threads   one writer for each file; reads of a file, and the folder's own operations, from any thread
class posix_folder {
 public:
  class writer {
   public:
    writer(detail::descriptor file, std::string_view name) : file_{std::move(file)}, name_{name} {}

    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      const ssize_t taken = detail::uninterrupted([&] { return ::write(file_.get(), content.data(), content.size()); });
      if (taken < 0) throw failed("writing", name_, errno, written_);
      written_ += static_cast<std::uint64_t>(taken);
      return static_cast<std::size_t>(taken);
    }
    void sync()
    {
      // never tried again: its pages may be gone
      if (::fsync(file_.get()) != 0) throw failed("syncing", name_, errno, written_);
    }
    void close()
    {
      if (::close(file_.release()) != 0) throw failed("closing", name_, errno, written_);
    }

   private:
    detail::descriptor file_;
    std::string name_;
    std::uint64_t written_ = 0;
  };

  class reader {
   public:
    static constexpr bool reads_at_once = true;  // `pread` has its own offset

    reader(detail::descriptor file, std::string_view name) : file_{std::move(file)}, name_{name} {}

    [[nodiscard]] std::uint64_t size()
    {
      struct stat what = {};
      if (::fstat(file_.get(), &what) != 0) throw failed("reading the size of", name_, errno);
      return static_cast<std::uint64_t>(what.st_size);
    }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      const ssize_t given = detail::uninterrupted(
          [&] { return ::pread(file_.get(), room.data(), room.size(), static_cast<off_t>(offset)); });
      if (given < 0) throw failed("reading", name_, errno, offset);
      return static_cast<std::size_t>(given);
    }

   private:
    detail::descriptor file_;
    std::string name_;
  };

  /// A lock of the folder: no other lock exists while this object lives. The system releases the lock when the process
  /// ends, in whatever way. Children that were forked meanwhile, and have not called exec, hold it too. A copy of this
  /// object in a child locks and unlocks nothing.
  class guard {
   public:
    /// @param lock   has the lock @param name   of the locked file
    guard(detail::descriptor folder, detail::descriptor lock, std::string name)
        : folder_{std::move(folder)}, lock_{std::move(lock)}, name_{std::move(name)}
    {
    }
    guard(guard&&) noexcept = default;
    guard& operator=(guard&&) = delete;
    ~guard()
    {
      if (!lock_.is_open() || !made_in_.is_here()) return;
      (void)::unlinkat(folder_.get(), name_.c_str(),
                       0);            // while it is locked: a waiting process checks that the file is still there
      ::flock(lock_.get(), LOCK_UN);  // a child has the descriptor, too
    }

   private:
    detail::descriptor folder_;
    detail::descriptor lock_;
    std::string name_;
    own_process made_in_;
  };

  /// @throws io_error       it cannot be made or opened; a new folder that may not be durable is removed
  /// @throws config_error   everybody may replace files in it
  explicit posix_folder(const std::string& path)
  {
    const bool is_new = ::mkdir(path.c_str(), 0700) == 0;
    if (!is_new && errno != EEXIST) throw failed("making the folder", path, errno);
    folder_ = detail::descriptor{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder_.is_open()) throw failed("opening the folder", path, errno);
    struct stat what = {};
    if (::fstat(folder_.get(), &what) != 0) throw failed("looking at the folder", path, errno);
    if ((what.st_mode & S_IWOTH) != 0 && (what.st_mode & S_ISVTX) == 0)
      throw config_error{error_text{} << "chunkmem: everybody may replace files in " << path
                                      << " (chmod o-w, or take another folder)"};
    owner_ = what.st_uid;
    others_may_add_ = (what.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    // Also for an existing folder: its maker may have been killed right after making it. Its parent may not be
    // readable.
    const detail::descriptor parent{::openat(folder_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if ((parent.is_open() && ::fsync(parent.get()) == 0) || !is_new) return;
    const int number = errno;
    (void)::rmdir(path.c_str());
    throw failed("syncing what lies around the folder", path, number);
  }

  /// The same folder, also where its path has changed. @throws io_error   too many files are open
  [[nodiscard]] posix_folder again() const
  {
    posix_folder same;
    same.folder_ = detail::descriptor{::fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0)};
    if (!same.folder_.is_open()) throw failed("opening", "a folder once more", errno);
    same.owner_ = owner_;
    same.others_may_add_ = others_may_add_;
    return same;
  }
  /// Equal for the same folder. @throws io_error
  [[nodiscard]] std::array<std::uint64_t, 2> identity() const
  {
    struct stat what = {};
    if (::fstat(folder_.get(), &what) != 0) throw failed("looking at", "a folder", errno);
    return {static_cast<std::uint64_t>(what.st_dev), static_cast<std::uint64_t>(what.st_ino)};
  }

  [[nodiscard]] writer create(std::string_view name)
  {
    const std::string file = checked(name);
    detail::descriptor made{
        ::openat(folder_.get(), file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!made.is_open()) throw failed("making", name, errno);
    return {std::move(made), name};
  }
  /// @throws io_error   also where it is no plain file
  [[nodiscard]] reader open(std::string_view name) const
  {
    struct stat ignored = {};
    return {opened(name, ignored), name};
  }
  /// Opens a file that is not foreign. @throws io_error   also for a foreign file: the text names its owner
  [[nodiscard]] reader open_own(std::string_view name) const
  {
    struct stat what = {};
    detail::descriptor found = opened(name, what);
    if (is_foreign(what)) throw foreign(name, what);
    return {std::move(found), name};
  }
  /// Also false where there is no such file.
  [[nodiscard]] bool is_foreign(std::string_view name) const
  {
    struct stat what = {};
    return ::fstatat(folder_.get(), checked(name).c_str(), &what, AT_SYMLINK_NOFOLLOW) == 0 && is_foreign(what);
  }
  void rename(std::string_view from, std::string_view to)
  {
    if (::renameat(folder_.get(), checked(from).c_str(), folder_.get(), checked(to).c_str()) != 0)
      throw failed("renaming", from, errno);
  }
  bool remove(std::string_view name) noexcept
  {
    try {
      return ::unlinkat(folder_.get(), checked(name).c_str(), 0) == 0 || errno == ENOENT;
    } catch (...) {
      return false;
    }
  }
  void sync()
  {
    if (::fsync(folder_.get()) != 0) throw failed("syncing", "the folder", errno);
  }
  /// Locks a file that only its owner can open, `.chunkmem-lock`, so that other users cannot hold the lock. Never
  /// waits. The file is removed with the lock. A process that is killed leaves the file, unlocked, for the next
  /// process. A foreign file with this name is skipped, and so is a file with a second name: `.chunkmem-lock-1` is
  /// next. Where the file system has no locks (some network file systems), no writer is locked out.
  /// @throws io_error   another writer has the lock (errno EWOULDBLOCK), also in this process: the text names the
  ///   process, and says whether it is stopped. Or the file cannot be made
  [[nodiscard]] guard lock()
  {
    constexpr unsigned names = 8;
    std::string name;
    for (unsigned index = 0; index < names; ++index) {
      name = std::string{lock_name} + (index == 0 ? "" : "-" + std::to_string(index));
      if (detail::descriptor held = locked(name); held.is_open()) {
        detail::descriptor again{::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
        if (!again.is_open()) throw failed("locking", "the folder", errno);
        return guard{std::move(again), std::move(held), std::move(name)};
      }
    }
    throw io_error{
        error_text{} << "chunkmem: this folder cannot be locked: all files from " << lock_name << " to " << name
                     << " are of other users, or have other names (remove them, or name a folder of its own)",
        {EPERM, 0}};
  }
  /// The names of all files but the locks, in no order.
  [[nodiscard]] std::vector<std::string> names() const
  {
    detail::descriptor again{::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!again.is_open()) throw failed("listing", "the folder", errno);
    const std::unique_ptr<DIR, closer> list{::fdopendir(again.get())};
    if (list == nullptr) throw failed("listing", "the folder", errno);
    (void)again.release();  // it is the list's now
    for (std::vector<std::string> found;;) {
      errno = 0;  // each time: a successful allocation may have set it
      const dirent* const entry = ::readdir(list.get());
      if (entry == nullptr && errno != 0) throw failed("listing", "the folder", errno);
      if (entry == nullptr) return found;
      if (const std::string_view name{entry->d_name}; name != "." && name != ".." && !name.starts_with(lock_name))
        found.emplace_back(name);
    }
  }

 private:
  posix_folder() = default;

  struct closer {
    void operator()(DIR* list) const noexcept { ::closedir(list); }
  };

  [[nodiscard]] static std::string checked(std::string_view name)
  {
    expects(!name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos,
            "a file's name has a separator in it, or is none");
    return std::string{name};
  }

  [[nodiscard]] detail::descriptor opened(std::string_view name, struct stat& what) const
  {
    detail::descriptor found{
        ::openat(folder_.get(), checked(name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!found.is_open()) throw failed("opening", name, errno);
    if (::fstat(found.get(), &what) != 0) throw failed("looking at", name, errno);
    if (!S_ISREG(what.st_mode)) throw failed("opening as a plain file", name, 0);
    return found;
  }

  [[nodiscard]] bool is_foreign(const struct stat& what) const noexcept
  {
    const bool is_of_known = what.st_uid == ::geteuid() || what.st_uid == owner_ || what.st_uid == 0;
    return !is_of_known || is_linked_in(what) ||
           (!S_ISLNK(what.st_mode) && (what.st_mode & S_IWOTH) != 0);  // every link has mode 0777
  }
  /// A user who may add names to the folder may have linked a trusted user's file from elsewhere.
  [[nodiscard]] bool is_linked_in(const struct stat& what) const noexcept
  {
    return others_may_add_ && S_ISREG(what.st_mode) && what.st_nlink > 1;
  }
  [[nodiscard]] io_error foreign(std::string_view name, const struct stat& what) const
  {
    error_text text;
    text << "chunkmem: " << name.substr(0, 255) << " is not trusted: ";
    if ((what.st_mode & S_IWOTH) != 0)
      text << "everybody may write to it";
    else if (is_linked_in(what))
      text << "it has another name too, and others may add names to this folder";
    else
      text << "it belongs to user " << std::uint64_t{what.st_uid} << ", the folder to user " << std::uint64_t{owner_}
           << ", this process is of user " << std::uint64_t{::geteuid()};
    return io_error{text << " (remove it, or make it yours if you know where it comes from)", {EPERM, 0}};
  }

  /// @return   the locked file; none: the name belongs to a foreign file, or to a file with a second name, which may be
  ///   a user's data @throws io_error
  [[nodiscard]] detail::descriptor locked(const std::string& name) const
  {
    for (;;) {
      detail::descriptor file{
          ::openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600)};
      const int number = errno;
      struct stat what = {};
      const bool is_there = file.is_open() ? ::fstat(file.get(), &what) == 0
                                           : ::fstatat(folder_.get(), name.c_str(), &what, AT_SYMLINK_NOFOLLOW) == 0;
      if (is_there && (is_foreign(what) || !S_ISREG(what.st_mode) || what.st_nlink > 1)) return {};
      if (!file.is_open() && number == EACCES && is_there && what.st_uid != ::geteuid())
        throw locked_by_user(name, what);
      if (!file.is_open()) throw failed("locking the folder by", name, number);
      if (!is_there) throw failed("looking at", name, errno);
      if (what.st_uid == ::geteuid() && (what.st_mode & 077U) != 0) (void)::fchmod(file.get(), 0600);
      if (detail::uninterrupted([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK)
        throw locked_by_other(file.get());
      struct stat now = {};
      if (::fstatat(folder_.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0 || now.st_ino != what.st_ino ||
          now.st_dev != what.st_dev)
        continue;                       // another process removed it with its lock meanwhile
      if (now.st_nlink > 1) return {};  // it was given another name meanwhile
      const std::string holder = std::to_string(::getpid()) + ' ' + host_name() + '\n';
      if (::ftruncate(file.get(), 0) == 0)
        (void)!::pwrite(file.get(), holder.data(), holder.size(), 0);  // only for messages
      return file;
    }
  }
  [[nodiscard]] static io_error locked_by_user(const std::string& name, const struct stat& what)
  {
    return io_error{error_text{} << "chunkmem: the lock " << name << " cannot be opened, errno "
                                 << static_cast<std::uint64_t>(EACCES) << ": it belongs to user "
                                 << std::uint64_t{what.st_uid} << " (remove it if no save of that user runs)",
                    {EACCES, 0}};
  }
  [[nodiscard]] static std::string host_name()
  {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
  }
  /// The state of a process of this machine, as far as the system says; empty: unknown.
  [[nodiscard]] static std::string_view state_of(std::uint64_t process)
  {
    char text[512] = {};
    const detail::descriptor file{::open(("/proc/" + std::to_string(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC)};
    if (!file.is_open())
      return ::access("/proc/self/stat", R_OK) == 0 ? ", which has ended: a child of it has the lock" : "";
    const ssize_t size = ::read(file.get(), text, sizeof text - 1);
    const std::string_view found{text, size > 0 ? static_cast<std::size_t>(size) : 0};
    const std::size_t name_end = found.rfind(')');  // number (name) state
    const char state = name_end == found.npos || name_end + 2 >= found.size() ? '?' : found[name_end + 2];
    return std::string_view{"Tt"}.find(state) != std::string_view::npos ? ", which is stopped: let it go on, or end it"
                                                                        : ", which runs";
  }
  [[nodiscard]] static io_error locked_by_other(int file)
  {
    char text[320] = {};
    const ssize_t size = ::pread(file, text, sizeof text - 1, 0);
    std::string_view holder{text, size > 0 ? static_cast<std::size_t>(size) : 0};
    holder = holder.substr(0, holder.find('\n'));
    const std::string_view host = holder.substr(std::min(holder.find(' '), holder.size()));
    std::uint64_t process = 0;
    (void)std::from_chars(holder.data(), holder.data() + holder.size(), process);
    error_text sentence;
    sentence << "chunkmem: somebody else writes into this folder, errno " << static_cast<std::uint64_t>(EWOULDBLOCK);
    if (process != 0) {
      sentence << ": process " << process << " on" << (host.size() > 1 ? host : " this machine");
      if (host.size() > 1 && host.substr(1) == host_name()) sentence << state_of(process);
    }
    return io_error{sentence << " (wait for the other save to end, or name a folder of its own)", {EWOULDBLOCK, 0}};
  }

  static constexpr std::string_view lock_name = ".chunkmem-lock";

  detail::descriptor folder_;
  uid_t owner_ = 0;  ///< of the folder
  bool others_may_add_ = false;
};

static_assert(lockable_folder<posix_folder> && guarded_folder<posix_folder>);

}  // namespace io

}  // namespace chunkmem::inline v0
