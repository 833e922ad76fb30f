// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/posix_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace checkpoints {

/// A folder that counts reads, and calls a function before one of them.
template <class Inner>
class watched_folder {
  struct watch {
    std::size_t reads = 0;
    std::uint64_t bytes = 0;
    std::size_t at = SIZE_MAX;
    std::function<void()> happens;
  };

 public:
  using writer = typename Inner::writer;
  class reader {
   public:
    reader(typename Inner::reader file, std::shared_ptr<watch> with) : file_{std::move(file)}, watch_{std::move(with)}
    {
    }
    [[nodiscard]] std::uint64_t size() { return file_.size(); }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      if (watch_->reads++ == watch_->at) watch_->happens();
      const std::size_t given = file_.read(offset, room);
      watch_->bytes += given;
      return given;
    }

   private:
    typename Inner::reader file_;
    std::shared_ptr<watch> watch_;
  };

  explicit watched_folder(Inner folder) : folder_{std::move(folder)} {}
  void before_read(std::size_t index, std::function<void()> happens) { *watch_ = {0, 0, index, std::move(happens)}; }
  /// So far, or since the last `before_read`.
  [[nodiscard]] std::size_t reads() const { return watch_->reads; }
  [[nodiscard]] std::uint64_t bytes_read() const { return watch_->bytes; }

  [[nodiscard]] writer create(std::string_view name) { return folder_.create(name); }
  [[nodiscard]] reader open(std::string_view name) const { return {folder_.open(name), watch_}; }
  void rename(std::string_view from, std::string_view to) { folder_.rename(from, to); }
  bool remove(std::string_view name) noexcept { return folder_.remove(name); }
  void sync() { folder_.sync(); }
  [[nodiscard]] std::vector<std::string> names() const { return folder_.names(); }

 private:
  Inner folder_;
  std::shared_ptr<watch> watch_ = std::make_shared<watch>();
};
static_assert(chunkmem::file_folder<watched_folder<chunkmem::io::posix_folder>>);

}  // namespace checkpoints
