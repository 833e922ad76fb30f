// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>

#include <support/oracles/dice.hpp>
#include <support/simulated_disk.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// Thrown at a power cut. It is no error of the library, so that no handler of errors catches it.
struct power_cut {};

enum class disk_operation : std::uint8_t {
  create,
  open,
  write,
  read,
  size,
  sync,
  close,
  rename,
  remove,
  sync_folder,
  list
};

/// A request to a folder.
struct disk_request {
  disk_operation what = disk_operation::list;
  std::string name;
  std::uint64_t size = 0;  ///< in bytes, of a read or write
};

/// The planned faults. Operations are counted from 0, including those that fail.
struct disk_faults {
  std::optional<std::uint64_t> at{};      ///< this operation fails
  int number = EIO;                       ///< with this errno
  bool retained = false;                  ///< and so do all after it
  std::optional<std::uint64_t> cut_at{};  ///< the power fails before this operation
  std::uint64_t room = UINT64_MAX;        ///< bytes until the disk is full
  bool is_read_only = false;
  std::uint64_t short_seed = 0;  ///< not 0: reads and writes take 1 to n bytes, at random
};

/// A folder in memory with every possible fault on request, and with the states that a power cut may leave.
///
/// Copies share the same folder, as handles of an open folder do.
/// @threads   one at a time
class simulated_folder {
  struct state {
    simulated_disk disk;
    disk_faults faults;
    dice chance{1};
    std::vector<disk_request> requests;
    std::function<void()> after_each;
    std::uint64_t failures = 0;
    bool is_off = false;
    bool is_locked = false;

    /// @return   errno of this operation, or 0
    int begin(disk_operation what, std::string_view name, std::uint64_t size = 0)
    {
      const std::uint64_t number = requests.size();
      if (is_off || faults.cut_at == number) {
        is_off = true;
        throw power_cut{};
      }
      requests.push_back({what, std::string{name}, size});
      const bool reads = what == disk_operation::open || what == disk_operation::read || what == disk_operation::size ||
                         what == disk_operation::list || what == disk_operation::close;
      int wrong = faults.is_read_only && !reads ? EROFS : 0;
      if (faults.at && (faults.retained ? number >= *faults.at : number == *faults.at)) wrong = faults.number;
      failures += wrong != 0 ? 1 : 0;
      return wrong;
    }
    void check(disk_operation what, std::string_view name, std::uint64_t size = 0)
    {
      if (const int wrong = begin(what, name, size); wrong != 0) throw chunkmem::io::failed("simulating", name, wrong);
    }
    [[nodiscard]] std::size_t some_of(std::size_t size)
    {
      return faults.short_seed == 0 || size == 0 ? size : 1 + chance.below(static_cast<std::uint32_t>(size));
    }
    void end() const
    {
      if (after_each) after_each();
    }
  };

 public:
  class writer {
   public:
    writer(std::shared_ptr<state> disk, std::size_t file, std::string_view name)
        : disk_{std::move(disk)}, file_{file}, name_{name}
    {
    }

    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      disk_->check(disk_operation::write, name_, content.size());
      const auto taken =
          static_cast<std::size_t>(std::min<std::uint64_t>(disk_->some_of(content.size()), disk_->faults.room));
      if (taken == 0 && !content.empty()) {
        ++disk_->failures;
        throw chunkmem::io::failed("simulating", name_, ENOSPC);
      }
      disk_->faults.room -= taken;
      disk_->disk.write(file_, {reinterpret_cast<const char*>(content.data()), taken});
      disk_->end();
      return taken;
    }
    void sync()
    {
      if (const int wrong = disk_->begin(disk_operation::sync, name_); wrong != 0) {
        disk_->disk.forget(file_);
        throw chunkmem::io::failed("simulating", name_, wrong);
      }
      disk_->disk.sync_file(file_);
      disk_->end();
    }
    void close() { disk_->check(disk_operation::close, name_); }

   private:
    std::shared_ptr<state> disk_;
    std::size_t file_;
    std::string name_;
  };

  class reader {
   public:
    reader(std::shared_ptr<state> disk, std::string content, std::string_view name)
        : disk_{std::move(disk)}, content_{std::move(content)}, name_{name}
    {
    }

    [[nodiscard]] std::uint64_t size()
    {
      disk_->check(disk_operation::size, name_);
      return content_.size();
    }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      disk_->check(disk_operation::read, name_, room.size());
      if (offset >= content_.size()) return 0;
      const std::size_t given =
          disk_->some_of(std::min(room.size(), content_.size() - static_cast<std::size_t>(offset)));
      const auto* const from = reinterpret_cast<const std::byte*>(content_.data()) + offset;
      std::copy(from, from + given, room.begin());
      return given;
    }

   private:
    std::shared_ptr<state> disk_;
    std::string content_;
    std::string name_;
  };

  /// Releases the folder at the end of its life.
  class holder {
   public:
    explicit holder(std::shared_ptr<state> disk) : disk_{std::move(disk)} { disk_->is_locked = true; }
    holder(holder&&) noexcept = default;
    holder& operator=(holder&&) = delete;
    ~holder()
    {
      if (disk_ != nullptr) disk_->is_locked = false;
    }

   private:
    std::shared_ptr<state> disk_;
  };

  simulated_folder() : state_{std::make_shared<state>()} {}
  explicit simulated_folder(const disk_content& files) : simulated_folder{} { state_->disk = simulated_disk{files}; }

  [[nodiscard]] writer create(std::string_view name)
  {
    state_->check(disk_operation::create, name);
    const std::string file{name};
    if (state_->disk.names().contains(file)) throw chunkmem::io::failed("simulating", name, EEXIST);
    const std::size_t made = state_->disk.create(file);
    state_->end();
    return {state_, made, name};
  }
  [[nodiscard]] reader open(std::string_view name) const
  {
    state_->check(disk_operation::open, name);
    const auto found = state_->disk.names().find(std::string{name});
    if (found == state_->disk.names().end()) throw chunkmem::io::failed("simulating", name, ENOENT);
    return {state_, state_->disk.content(found->second), name};
  }
  void rename(std::string_view from, std::string_view to)
  {
    state_->check(disk_operation::rename, from);
    if (!state_->disk.names().contains(std::string{from})) throw chunkmem::io::failed("simulating", from, ENOENT);
    state_->disk.rename(std::string{from}, std::string{to});
    state_->end();
  }
  /// After a power cut nothing happens here, since an exception from a noexcept function would end the program.
  bool remove(std::string_view name) noexcept
  {
    try {
      if (state_->begin(disk_operation::remove, name) != 0) return false;
    } catch (const power_cut&) {
      return false;
    }
    if (!state_->disk.names().contains(std::string{name})) return true;
    state_->disk.remove(std::string{name});
    state_->end();
    return true;
  }
  void sync()
  {
    state_->check(disk_operation::sync_folder, "the folder");
    state_->disk.sync_names();
    state_->end();
  }
  [[nodiscard]] holder lock()
  {
    if (state_->is_locked) throw chunkmem::io::failed("locking", "the folder", EWOULDBLOCK);
    return holder{state_};
  }
  [[nodiscard]] std::vector<std::string> names() const
  {
    state_->check(disk_operation::list, "the folder");
    std::vector<std::string> found;
    for (const auto& [name, file] : state_->disk.names()) found.push_back(name);
    return found;
  }

  /// Counts operations from 0 again.
  void set_faults(const disk_faults& planned)
  {
    state_->faults = planned;
    state_->chance = dice{planned.short_seed};
    state_->requests.clear();
    state_->failures = 0;
  }
  /// Calls `look()` after every operation that changed something. It must not keep a copy of the folder.
  void set_observer(std::function<void()> look) { state_->after_each = std::move(look); }

  [[nodiscard]] const std::vector<disk_request>& requests() const { return state_->requests; }
  [[nodiscard]] std::uint64_t failures() const { return state_->failures; }
  [[nodiscard]] disk_content content() const { return state_->disk.content(); }
  /// Changes a file without an operation.
  void put(const std::string& name, std::string content) { state_->disk.put(name, std::move(content)); }
  /// Calls `visit(const simulated_folder&)` with every folder that a restart may find if the power fails now, until it
  /// returns false.
  /// @return   the number of folders
  template <class Visit>
  std::uint64_t each_after_cut(Visit&& visit) const
  {
    return state_->disk.each_after_cut([&](const disk_content& files) { return visit(simulated_folder{files}); });
  }

 private:
  std::shared_ptr<state> state_;
};

static_assert(chunkmem::lockable_folder<simulated_folder>);

}  // namespace support
