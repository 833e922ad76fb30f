#pragma once

#include <chunkmem/core/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace chunkmem::inline v0 {

namespace collective {

/// NCCL's identity in a file of one user, for ranks that share a folder; it is removed with this object, by rank 0, once all
/// have made their communicator.
///
/// Whoever reads the identity may join the group: the file has mode 0600, is never one that was there before, and no text
/// of an error holds its bytes.
class nccl_id_file {
 public:
  /// @throws config_error   there is such a file already, or it cannot be written; nothing is left
  nccl_id_file(std::string path, std::span<const std::byte> id) : path_{std::move(path)}
  {
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (file < 0) throw config_error{"the file for NCCL's identity is there already, or its folder cannot be written (name a new one)"};
    const auto written = ::write(file, id.data(), id.size());
    const bool is_closed = ::close(file) == 0;
    if (is_closed && written == static_cast<ssize_t>(id.size())) return;
    (void)::unlink(path_.c_str());
    throw config_error{"NCCL's identity could not be written to its file (make room in its folder)"};
  }
  nccl_id_file(const nccl_id_file&) = delete;
  nccl_id_file& operator=(const nccl_id_file&) = delete;
  ~nccl_id_file() { (void)::unlink(path_.c_str()); }

  /// False while there is no whole identity yet: ask again.
  /// @throws config_error   the file is another user's, or others may read it
  [[nodiscard]] static bool read(const std::string& path, std::span<std::byte> id)
  {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    struct stat about = {};
    const bool is_known = ::fstat(file, &about) == 0;
    const bool is_ours = is_known && about.st_uid == ::geteuid() && S_ISREG(about.st_mode) && (about.st_mode & 077) == 0;
    const auto size = is_ours ? ::read(file, id.data(), id.size()) : -1;
    (void)::close(file);
    if (!is_ours) throw config_error{"the file with NCCL's identity is another user's, or others may read it (name a new one)"};
    return size == static_cast<ssize_t>(id.size());
  }

 private:
  std::string path_;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
