// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>
#include <support/memory_folder.hpp>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// A folder whose writes wait until a gate opens.
class gated_folder {
  struct gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = true;
    void pass()
    {
      std::unique_lock guard{mutex};
      changed.wait(guard, [this] { return is_open; });
    }
  };

 public:
  class writer {
   public:
    writer(memory_folder::writer file, gate& at) : file_{std::move(file)}, gate_{&at} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> content) { return gate_->pass(), file_.write(content); }
    void sync() { file_.sync(); }
    void close() { file_.close(); }

   private:
    memory_folder::writer file_;
    gate* gate_;
  };
  using reader = memory_folder::reader;

  void set_open(bool is)
  {
    const std::lock_guard guard{gate_->mutex};
    gate_->is_open = is;
    gate_->changed.notify_all();
  }
  [[nodiscard]] writer create(std::string_view name) { return {folder_.create(name), *gate_}; }
  [[nodiscard]] reader open(std::string_view name) const { return folder_.open(name); }
  void rename(std::string_view from, std::string_view to) { folder_.rename(from, to); }
  bool remove(std::string_view name) noexcept { return folder_.remove(name); }
  void sync() { folder_.sync(); }
  [[nodiscard]] std::vector<std::string> names() const { return folder_.names(); }
  [[nodiscard]] memory_folder::content content_of(std::string_view name) const { return folder_.content_of(name); }

 private:
  memory_folder folder_;
  std::unique_ptr<gate> gate_ = std::make_unique<gate>();
};
static_assert(chunkmem::file_folder<gated_folder>);

}  // namespace support
