// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/io/file_folder.hpp>

#include <support/simulated_folder.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// A folder that lies, like a wrong protocol or a faulty file system. A search for lost bytes has to notice each lie.
struct lies {
  bool file_syncs = false;    ///< the sync of a file does nothing
  bool folder_syncs = false;  ///< the sync of the folder does nothing
  bool late_renames = false;  ///< a rename happens after the next sync of the folder
  bool early_names = false;   ///< a file has its final name from the start
};

class lying_folder {
 public:
  class writer {
   public:
    writer(simulated_folder::writer file, bool lies_too) : file_{std::move(file)}, lies_{lies_too} {}

    [[nodiscard]] std::size_t write(std::span<const std::byte> content) { return file_.write(content); }
    void sync()
    {
      if (!lies_) file_.sync();
    }
    void close() { file_.close(); }

   private:
    simulated_folder::writer file_;
    bool lies_;
  };
  using reader = simulated_folder::reader;

  lying_folder(simulated_folder folder, lies how) : folder_{std::move(folder)}, lies_{how} {}

  [[nodiscard]] writer create(std::string_view name)
  {
    if (lies_.early_names && name.ends_with(".tmp")) name.remove_suffix(4);
    return {folder_.create(name), lies_.file_syncs};
  }
  [[nodiscard]] reader open(std::string_view name) const { return folder_.open(name); }
  void rename(std::string_view from, std::string_view to)
  {
    if (lies_.early_names) return;
    if (lies_.late_renames)
      late_.emplace_back(from, to);
    else
      folder_.rename(from, to);
  }
  bool remove(std::string_view name) noexcept { return folder_.remove(name); }
  void sync()
  {
    if (!lies_.folder_syncs) folder_.sync();
    for (const auto& [from, to] : late_) folder_.rename(from, to);
    late_.clear();
  }
  [[nodiscard]] std::vector<std::string> names() const { return folder_.names(); }

 private:
  simulated_folder folder_;
  lies lies_;
  std::vector<std::pair<std::string, std::string>> late_;
};

static_assert(chunkmem::file_folder<lying_folder>);

}  // namespace support
