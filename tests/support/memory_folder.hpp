// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>
#include <support/fault_control.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// A folder in memory whose operations fail when `faults` says so: the smallest folder that checkpoints can be written
/// to.
///
/// Each operation is done whole or not at all. simulated_folder simulates power cuts and the cache of a disk. Writers
/// and readers must not outlive it. @threads any
class memory_folder {
 public:
  using content = std::vector<std::byte>;

  class writer {
   public:
    writer(memory_folder& folder, std::string name) : folder_{&folder}, name_{std::move(name)} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> from)
    {
      check("writing", name_);
      const std::lock_guard guard{*folder_->mutex_};
      content& file = folder_->files_->find(name_)->second;
      file.insert(file.end(), from.begin(), from.end());
      return from.size();
    }
    void sync() { check("syncing", name_); }
    void close() { check("closing", name_); }

   private:
    memory_folder* folder_;
    std::string name_;
  };
  class reader {
   public:
    explicit reader(content bytes) : bytes_{std::move(bytes)} {}
    [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room) const
    {
      check("reading", "a file");
      const std::size_t given =
          offset >= bytes_.size()
              ? 0
              : std::min<std::size_t>(room.size(), bytes_.size() - static_cast<std::size_t>(offset));
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), given, room.begin());
      return given;
    }

   private:
    content bytes_;
  };

  /// Releases the folder at the end of its life.
  class holder {
   public:
    explicit holder(std::shared_ptr<std::atomic<bool>> held) : held_{std::move(held)} {}
    holder(holder&&) noexcept = default;
    holder& operator=(holder&&) = delete;
    ~holder()
    {
      if (held_ != nullptr) *held_ = false;
    }

   private:
    std::shared_ptr<std::atomic<bool>> held_;
  };

  [[nodiscard]] holder lock()
  {
    check("locking", "the folder");
    if (held_->exchange(true)) throw chunkmem::io::failed("locking", "the folder", EWOULDBLOCK);
    return holder{held_};
  }
  [[nodiscard]] writer create(std::string_view name)
  {
    check("creating", name);
    std::string file{name};
    const std::lock_guard guard{*mutex_};
    writer made{*this, file};
    if (!files_->try_emplace(std::move(file)).second) throw chunkmem::io::failed("creating", name, EEXIST);
    return made;
  }
  [[nodiscard]] reader open(std::string_view name) const
  {
    check("opening", name);
    const std::lock_guard guard{*mutex_};
    const auto found = files_->find(name);
    if (found == files_->end()) throw chunkmem::io::failed("opening", name, ENOENT);
    return reader{found->second};
  }
  void rename(std::string_view from, std::string_view to)
  {
    check("renaming", from);
    std::string target{to};
    const std::lock_guard guard{*mutex_};
    const auto found = files_->find(from);
    if (found == files_->end()) throw chunkmem::io::failed("renaming", from, ENOENT);
    auto node = files_->extract(found);
    if (const auto old = files_->find(to); old != files_->end()) files_->erase(old);
    node.key() = std::move(target);
    files_->insert(std::move(node));
  }
  bool remove(std::string_view name) noexcept
  {
    if (faults.strikes(fault_source::file)) return false;
    const std::lock_guard guard{*mutex_};
    if (const auto found = files_->find(name); found != files_->end()) files_->erase(found);
    return true;
  }
  void sync() { check("syncing", "the folder"); }
  [[nodiscard]] std::vector<std::string> names() const
  {
    check("listing", "the folder");
    const std::lock_guard guard{*mutex_};
    std::vector<std::string> found;
    for (const auto& [name, file] : *files_) found.push_back(name);
    return found;
  }

  /// Damages a byte of an existing file.
  void flip(std::string_view name, std::size_t byte)
  {
    const std::lock_guard guard{*mutex_};
    files_->find(name)->second.at(byte) ^= std::byte{1};
  }

  [[nodiscard]] content content_of(std::string_view name) const
  {
    const std::lock_guard guard{*mutex_};
    const auto found = files_->find(name);
    return found == files_->end() ? content{} : found->second;
  }
  /// The last file whose name ends with `ending`, or nothing.
  [[nodiscard]] content last_of(std::string_view ending) const
  {
    content last;
    for (const auto& [name, file] : *files_)
      if (name.ends_with(ending)) last = file;
    return last;
  }

 private:
  static void check(std::string_view what, std::string_view name)
  {
    if (faults.strikes(fault_source::file)) throw chunkmem::io::failed(what, name, EIO);
  }

  using table = std::map<std::string, content, std::less<>>;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  std::unique_ptr<table> files_ = std::make_unique<table>();
  std::shared_ptr<std::atomic<bool>> held_ = std::make_shared<std::atomic<bool>>(false);
};

static_assert(chunkmem::lockable_folder<memory_folder>);

}  // namespace support
