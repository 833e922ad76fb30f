// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>

#include <support/simulated_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pipeline_test {

/// A simulated_folder for several ranks at once, in which a read may give another byte than was written.
/// Copies are the same folder. @threads any
class part_folder {
  struct state {
    support::simulated_folder disk;
    std::mutex mutex;
    std::uint64_t reads = 0;
    std::optional<std::uint64_t> bad_read{};
  };

 public:
  class writer {
   public:
    writer(std::shared_ptr<state> of, support::simulated_folder::writer file)
        : state_{std::move(of)}, file_{std::move(file)}
    {
    }
    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      const std::lock_guard guard{state_->mutex};
      return file_.write(content);
    }
    void sync()
    {
      const std::lock_guard guard{state_->mutex};
      file_.sync();
    }
    void close()
    {
      const std::lock_guard guard{state_->mutex};
      file_.close();
    }

   private:
    std::shared_ptr<state> state_;
    support::simulated_folder::writer file_;
  };
  class reader {
   public:
    reader(std::shared_ptr<state> of, support::simulated_folder::reader file)
        : state_{std::move(of)}, file_{std::move(file)}
    {
    }
    [[nodiscard]] std::uint64_t size()
    {
      const std::lock_guard guard{state_->mutex};
      return file_.size();
    }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      const std::lock_guard guard{state_->mutex};
      const std::size_t given = file_.read(offset, room);
      if (state_->bad_read == state_->reads++ && given > 0) room[given - 1] ^= std::byte{1};
      return given;
    }

   private:
    std::shared_ptr<state> state_;
    support::simulated_folder::reader file_;
  };

  explicit part_folder(const support::disk_content& files = {}) : state_{std::make_shared<state>()}
  {
    state_->disk = support::simulated_folder{files};
  }

  [[nodiscard]] auto lock()
  {
    const std::lock_guard guard{state_->mutex};
    return state_->disk.lock();
  }
  [[nodiscard]] writer create(std::string_view name)
  {
    const std::lock_guard guard{state_->mutex};
    return {state_, state_->disk.create(name)};
  }
  [[nodiscard]] reader open(std::string_view name) const
  {
    const std::lock_guard guard{state_->mutex};
    return {state_, state_->disk.open(name)};
  }
  void rename(std::string_view from, std::string_view to)
  {
    const std::lock_guard guard{state_->mutex};
    state_->disk.rename(from, to);
  }
  bool remove(std::string_view name) noexcept
  {
    const std::lock_guard guard{state_->mutex};
    return state_->disk.remove(name);
  }
  void sync()
  {
    const std::lock_guard guard{state_->mutex};
    state_->disk.sync();
  }
  [[nodiscard]] std::vector<std::string> names() const
  {
    const std::lock_guard guard{state_->mutex};
    return state_->disk.names();
  }

  /// Operations and reads are counted from 0 again.
  void set_faults(const support::disk_faults& faults, std::optional<std::uint64_t> bad_read = {})
  {
    const std::lock_guard guard{state_->mutex};
    state_->disk.set_faults(faults);
    state_->reads = 0;
    state_->bad_read = bad_read;
  }
  [[nodiscard]] std::uint64_t operations() const { return state_->disk.requests().size(); }
  [[nodiscard]] std::uint64_t reads() const { return state_->reads; }
  [[nodiscard]] const support::simulated_folder& disk() const { return state_->disk; }

 private:
  std::shared_ptr<state> state_;
};

static_assert(chunkmem::lockable_folder<part_folder>);

}  // namespace pipeline_test
