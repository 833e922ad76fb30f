#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cerrno>
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

/// Closes what it holds, once.
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

}  // namespace detail

/// A folder of this machine, opened once: what happens to its path afterwards does not matter.
///
/// Files are made for their owner alone (0600), never followed through a symbolic link, and closed in a child. A folder that is not there
/// is made (0700), and stays after a power cut; its parent has to be there. Good for any local or network file system that keeps POSIX's rename.
/// @threads   one caller for each file; the folder's own operations from any thread
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
      if (::fsync(file_.get()) != 0) throw failed("syncing", name_, errno, written_);  // never tried again: its pages may be gone
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
    reader(detail::descriptor file, std::string_view name) : file_{std::move(file)}, name_{name} {}

    [[nodiscard]] std::uint64_t size()
    {
      struct stat what = {};
      if (::fstat(file_.get(), &what) != 0) throw failed("reading the size of", name_, errno);
      return static_cast<std::uint64_t>(what.st_size);
    }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      const ssize_t given =
          detail::uninterrupted([&] { return ::pread(file_.get(), room.data(), room.size(), static_cast<off_t>(offset)); });
      if (given < 0) throw failed("reading", name_, errno, offset);
      return static_cast<std::size_t>(given);
    }

   private:
    detail::descriptor file_;
    std::string name_;
  };

  /// Nobody else has a lock of this folder while this lives. The system lets go of it when its process ends, however it ends, and every
  /// child with it that was forked meanwhile and has run no other program since. A copy of this in a child locks and unlocks nothing.
  class guard {
   public:
    explicit guard(detail::descriptor folder) : folder_{std::move(folder)}, owner_{::getpid()} {}
    guard(guard&&) noexcept = default;
    guard& operator=(guard&&) = delete;
    ~guard()
    {
      if (folder_.is_open() && owner_ == ::getpid()) ::flock(folder_.get(), LOCK_UN);  // a child has the descriptor, too
    }

   private:
    detail::descriptor folder_;
    pid_t owner_;
  };

  /// @throws io_error       it cannot be made or opened; one that was made and might not stay is removed
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
      throw config_error{error_text{} << "chunkmem: everybody may replace files in " << path << " (chmod o-w, or take another folder)"};
    // Also for one that was there: whoever made it may have been killed right after that. Its parent may be closed to us, though.
    const detail::descriptor parent{::openat(folder_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if ((parent.is_open() && ::fsync(parent.get()) == 0) || !is_new) return;
    const int number = errno;
    (void)::rmdir(path.c_str());
    throw failed("syncing what lies around the folder", path, number);
  }

  [[nodiscard]] writer create(std::string_view name)
  {
    const std::string file = checked(name);
    detail::descriptor made{::openat(folder_.get(), file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!made.is_open()) throw failed("making", name, errno);
    return {std::move(made), name};
  }
  /// @throws io_error   also where it is no plain file
  [[nodiscard]] reader open(std::string_view name) const
  {
    const std::string file = checked(name);
    detail::descriptor found{::openat(folder_.get(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!found.is_open()) throw failed("opening", name, errno);
    struct stat what = {};
    if (::fstat(found.get(), &what) != 0) throw failed("looking at", name, errno);
    if (!S_ISREG(what.st_mode)) throw failed("opening as a plain file", name, 0);
    return {std::move(found), name};
  }
  void rename(std::string_view from, std::string_view to)
  {
    if (::renameat(folder_.get(), checked(from).c_str(), folder_.get(), checked(to).c_str()) != 0) throw failed("renaming", from, errno);
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
  /// Leaves no file behind. Where the file system knows no locks (some network file systems), nobody is kept out.
  /// @throws io_error   another has it (errno EWOULDBLOCK), in this process too
  [[nodiscard]] guard lock()
  {
    detail::descriptor again{::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!again.is_open()) throw failed("locking", "the folder", errno);
    if (detail::uninterrupted([&] { return ::flock(again.get(), LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK)
      throw io_error{error_text{} << "chunkmem: somebody else writes into this folder, errno " << static_cast<std::uint64_t>(EWOULDBLOCK)
                                  << " (wait for the other save to end, or name a folder of its own)",
                     {EWOULDBLOCK, 0}};
    return guard{std::move(again)};
  }
  /// Of everything in it, in no order.
  [[nodiscard]] std::vector<std::string> names() const
  {
    detail::descriptor again{::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!again.is_open()) throw failed("listing", "the folder", errno);
    const std::unique_ptr<DIR, closer> list{::fdopendir(again.get())};
    if (list == nullptr) throw failed("listing", "the folder", errno);
    (void)again.release();  // it is the list's now
    for (std::vector<std::string> found;;) {
      errno = 0;  // each time: an allocation that went well may have set it
      const dirent* const entry = ::readdir(list.get());
      if (entry == nullptr && errno != 0) throw failed("listing", "the folder", errno);
      if (entry == nullptr) return found;
      if (const std::string_view name{entry->d_name}; name != "." && name != "..") found.emplace_back(name);
    }
  }

 private:
  struct closer {
    void operator()(DIR* list) const noexcept { ::closedir(list); }
  };

  [[nodiscard]] static std::string checked(std::string_view name)
  {
    expects(!name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos,
            "a file's name has a separator in it, or is none");
    return std::string{name};
  }

  detail::descriptor folder_;
};

static_assert(lockable_folder<posix_folder>);

}  // namespace io

}  // namespace chunkmem::inline v0
