// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/core/posix_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace collective {

/// NCCL's identity in a file of one user, for ranks that share a folder. Rank 0 removes the file with this object, once
/// all have made their communicator.
///
/// A reader of the identity may join the group. So the file has mode 0600, is always newly created, and no error
/// message has its bytes. A forked child removes no file. A run that is killed leaves its file. The next run detects
/// this if the launcher gives each start of the ranks a number of its own (`run`: of the job, its step and its
/// restart): rank 0 cannot make the file, and the others find the wrong number. Without a number only rank 0 detects
/// it; the others take the identity of the dead run, and NCCL then fails by its deadline.
///
/// Use:
///
///     const nccl_id_file file{path, id, run};                  // rank 0
///     while (!nccl_id_file::read(path, id, run)) wait_a_bit();  // other ranks, until a deadline of their own
class nccl_id_file {
 public:
  /// @param run   the number of this start of the ranks; 0: none
  /// @throws config_error   there is such a file already, or it cannot be written; nothing is left
  nccl_id_file(std::string path, std::span<const std::byte> id, std::uint64_t run = 0) : path_{std::move(path)}
  {
    file_ = detail::descriptor{
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR)};
    if (!file_.is_open())
      refuse(path_, "cannot be made, because of", errno,
             "remove one that a dead run has left, or name a new one in a folder that you may write to");
    const std::array<std::byte, size_of_run> number = as_bytes(run);
    const bool is_whole = ::write(file_.get(), number.data(), number.size()) == static_cast<ssize_t>(number.size()) &&
                          ::write(file_.get(), id.data(), id.size()) == static_cast<ssize_t>(id.size());
    const int again = ::dup(file_.get());  // closing it makes the bytes visible to other machines
    if (again >= 0 && ::close(again) == 0 && is_whole) return;
    const int failed = errno;
    remove();
    refuse(path_, "could not be written, because of", failed, "make room in its folder");
  }
  nccl_id_file(const nccl_id_file&) = delete;
  nccl_id_file& operator=(const nccl_id_file&) = delete;
  ~nccl_id_file()
  {
    if (made_in_.is_here()) remove();
  }

  /// False while there is no file, or not all of it yet: ask again, until a deadline of the caller's own. Never waits
  /// for the file.
  /// @throws config_error   the file of that name is no plain file (a link, a loop, a folder, a pipe), belongs to
  ///   another user, may be read by others, is longer than an identity, or is of another run; or it cannot be read
  [[nodiscard]] static bool read(const std::string& path, std::span<std::byte> id, std::uint64_t run = 0)
  {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);  // a pipe is opened at once
    if (file < 0 && errno == ENOENT) return false;
    if (file < 0 && errno == ELOOP)
      refuse(path, "is a symbolic link, or its path is a loop, ", errno, "name the file itself");
    if (file < 0) refuse(path, "cannot be opened, because of", errno, "look at its folder and its mode");
    struct stat about = {};
    std::array<std::byte, size_of_run> number{};
    const bool is_known = ::fstat(file, &about) == 0;
    const bool is_fit = is_known && S_ISREG(about.st_mode) && about.st_uid == ::geteuid() && (about.st_mode & 077) == 0;
    const auto size = static_cast<std::uint64_t>(about.st_size);
    const bool is_whole = is_fit && size == size_of_run + id.size() &&
                          ::read(file, number.data(), number.size()) == static_cast<ssize_t>(number.size()) &&
                          ::read(file, id.data(), id.size()) == static_cast<ssize_t>(id.size());
    (void)::close(file);
    if (is_known && !S_ISREG(about.st_mode)) refuse(path, "is no plain file", 0, "remove it, or name another one");
    if (!is_fit) refuse(path, "is another user's, or others may read it", 0, "name a new one");
    if (size > size_of_run + id.size()) refuse(path, "is longer than an identity", 0, "remove it, or name another one");
    if (is_whole && number != as_bytes(run))
      refuse(path, "is of another run, perhaps of one that is dead", 0,
             "remove it, or name another one for each start");
    return is_whole;
  }

 private:
  static constexpr std::size_t size_of_run = 8;

  [[nodiscard]] static std::array<std::byte, size_of_run> as_bytes(std::uint64_t run) noexcept
  {
    std::array<std::byte, size_of_run> all{};
    for (std::size_t index = 0; index < all.size(); ++index)
      all[index] = static_cast<std::byte>(run >> (8 * index) & 0xffU);
    return all;
  }
  [[noreturn]] static void refuse(std::string_view path, std::string_view why, int number, std::string_view advice)
  {
    error_text text;
    text << "chunkmem: the file for NCCL's identity " << why;
    if (number != 0) text << " errno " << static_cast<std::uint64_t>(number);
    throw config_error{text << ": " << path.substr(0, 255) << " (" << advice << ")"};
  }

  /// Removes only its own file: a later run may have a file with this name, where this one was removed already.
  void remove() const noexcept
  {
    if (detail::is_named(file_, path_)) (void)::unlink(path_.c_str());
  }

  std::string path_;
  detail::descriptor file_;
  own_process made_in_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
