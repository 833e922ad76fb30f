// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/forked_child.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace support {

/// A small disk in memory that only one process sees. Made by `on_own_disk`.
class own_disk {
 public:
  explicit own_disk(std::string path) : path_{std::move(path)} {}

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Fills the disk until this many bytes are left, in whole pages. @return   done
  [[nodiscard]] bool fill_up_to(std::size_t room)
  {
    const int file = ::open(filler().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return false;
    const std::string page(4096, 'x');
    off_t size = 0;
    while (::write(file, page.data(), page.size()) > 0) size += static_cast<off_t>(page.size());
    const bool done =
        errno == ENOSPC && size > static_cast<off_t>(room) && ::ftruncate(file, size - static_cast<off_t>(room)) == 0;
    ::close(file);
    return done;
  }
  [[nodiscard]] bool empty_again() { return ::unlink(filler().c_str()) == 0; }
  [[nodiscard]] bool set_read_only(bool is)
  {
    return ::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT | (is ? static_cast<unsigned long>(MS_RDONLY) : 0UL),
                   nullptr) == 0;
  }

 private:
  [[nodiscard]] std::string filler() const { return path_ + "/filler"; }

  std::string path_;
};

namespace detail {

inline void write_text(const char* path, const std::string& text)
{
  std::ofstream{path} << text;
}

/// Gives this process mounts of its own: as root, or as the root of a user namespace.
[[nodiscard]] inline bool leave_mounts_of_others()
{
  if (::unshare(CLONE_NEWNS) == 0) return true;
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", "0 " + user + " 1");
  write_text("/proc/self/gid_map", "0 " + group + " 1");
  return true;
}

template <class Work>
[[nodiscard]] std::string said_on_disk(const std::string& path, std::uint64_t size, Work work)
{
  const std::string options = "size=" + std::to_string(size);
  if (!leave_mounts_of_others() || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", path.c_str(), "tmpfs", 0, options.c_str()) != 0)
    return "SKIPPED: this process may not mount a disk of its own, errno " + std::to_string(errno);
  try {
    own_disk disk{path};
    return work(disk);
  } catch (const std::exception& failed) {
    return std::string{"it threw: "} + failed.what();
  }
}

}  // namespace detail

/// Runs `work(own_disk&)`, which returns its complaint, in a child where `path` is a disk of that many bytes.
/// @return   the complaint; begins with SKIPPED where no disk may be mounted
template <class Work>
[[nodiscard]] std::string on_own_disk(const std::string& path, std::uint64_t size, Work work)
{
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = fork_child();
  if (child < 0) return "no child";
  if (child == 0) {
    const std::string said = detail::said_on_disk(path, size, work);
    std::_Exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t size_read = 0; (size_read = ::read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(size_read));
  ::close(ends[0]);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return "the child ended with status " + std::to_string(status);
  return said;
}

}  // namespace support
