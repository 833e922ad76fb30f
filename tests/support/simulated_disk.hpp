// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// Names and contents: the files on a disk after a restart.
using disk_content = std::map<std::string, std::string>;

/// One folder on a disk, and the changes of it that are not durable yet.
///
/// A file is identified by its number; names point at numbers. Bytes of a file are durable after `sync_file`, names
/// after `sync_names`, and neither makes the other durable. Memory and time: those of a few small files.
class simulated_disk {
 public:
  simulated_disk() = default;
  explicit simulated_disk(const disk_content& files)
  {
    for (const auto& [name, content] : files) put(name, content);
  }

  /// Adds a file that is durable at once.
  void put(const std::string& name, std::string content)
  {
    const auto known = names_.find(name);
    const std::size_t file = known != names_.end() ? known->second : files_.size();
    if (file == files_.size()) files_.emplace_back();
    files_[file] = {std::move(content), {}, false};
    names_[name] = safe_names_[name] = file;
  }
  std::size_t create(const std::string& name)
  {
    files_.emplace_back();
    change({name_change::what::create, {}, name, files_.size() - 1});
    return files_.size() - 1;
  }
  void write(std::size_t file, std::string_view content) { files_[file].writes.emplace_back(content); }
  void sync_file(std::size_t file)
  {
    if (files_[file].forgets) return;
    files_[file].safe = files_[file].all();
    files_[file].writes.clear();
  }
  /// A possible effect of a failed sync: the system drops the unwritten pages, and the next sync does not write them.
  void forget(std::size_t file) { files_[file].forgets = true; }
  void rename(const std::string& from, const std::string& to)
  {
    change({name_change::what::rename, from, to, names_.at(from)});
  }
  void remove(const std::string& name) { change({name_change::what::remove, name, {}, 0}); }
  void sync_names()
  {
    safe_names_ = names_;
    changes_.clear();
  }

  [[nodiscard]] const std::map<std::string, std::size_t>& names() const { return names_; }
  [[nodiscard]] std::string content(std::size_t file) const { return files_[file].all(); }
  /// The contents that a running system sees.
  [[nodiscard]] disk_content content() const
  {
    disk_content found;
    for (const auto& [name, file] : names_) found[name] = content(file);
    return found;
  }

  /// Calls `visit(const disk_content&)` with every disk that may be left if the power fails now, until it returns
  /// false. @return   the number of disks
  ///
  /// Each subset of the changes of names since their last sync, in order; for each named file each state of its bytes
  /// since its own. All combinations: 2 to the changes, times 3 w + 2 for each file with w writes.
  template <class Visit>
  std::uint64_t each_after_cut(Visit&& visit) const
  {
    chunkmem::expects(changes_.size() <= 14, "too many changes of names to try all of their subsets");
    std::set<std::map<std::string, std::size_t>> seen;
    std::uint64_t states = 0;
    for (std::uint32_t chosen = 0; chosen < std::uint32_t{1} << changes_.size(); ++chosen) {
      std::map<std::string, std::size_t> names = safe_names_;
      for (std::size_t index = 0; index < changes_.size(); ++index)
        if ((chosen >> index & 1U) != 0) apply(changes_[index], names);
      bool goes_on = true;
      if (seen.insert(names).second) states += each_content(names, visit, goes_on);
      if (!goes_on) break;
    }
    return states;
  }

 private:
  struct one_file {
    std::string safe;
    std::vector<std::string> writes;  ///< after it, not durable
    bool forgets = false;

    [[nodiscard]] std::string all() const
    {
      std::string content = safe;
      for (const std::string& it : writes) content += it;
      return content;
    }
    /// All possible contents after a power cut.
    [[nodiscard]] std::vector<std::string> after_cut() const
    {
      if (writes.empty()) return {safe};
      const std::string whole = all();
      std::vector<std::string> found{safe, safe + std::string(whole.size() - safe.size(), '\0')};
      std::string before = safe;
      for (const std::string& it : writes) {
        found.push_back(before + it.substr(0, it.size() / 2));  // torn
        found.push_back(before + it);                           // the later writes are lost
        found.push_back(whole);                                 // only this write is lost, and its bytes are zeros
        found.back().replace(before.size(), it.size(), it.size(), '\0');
        before += it;
      }
      return found;
    }
  };
  struct name_change {
    enum class what : std::uint8_t { create, rename, remove };
    what kind;
    std::string from;
    std::string to;
    std::size_t file;
  };

  static void apply(const name_change& it, std::map<std::string, std::size_t>& names)
  {
    if (it.kind != name_change::what::create) names.erase(it.from);
    if (it.kind != name_change::what::remove) names[it.to] = it.file;
  }
  void change(name_change it)
  {
    apply(it, names_);
    changes_.push_back(std::move(it));
  }
  template <class Visit>
  std::uint64_t each_content(const std::map<std::string, std::size_t>& names, Visit&& visit, bool& goes_on) const
  {
    std::vector<std::vector<std::string>> choices;
    for (const auto& [name, number] : names) choices.push_back(files_[number].after_cut());
    std::vector<std::size_t> chosen(choices.size(), 0);
    for (std::uint64_t states = 1;; ++states) {
      disk_content now;
      std::size_t index = 0;
      for (const auto& [name, number] : names)
        now.emplace_hint(now.end(), name, choices[index][chosen[index]]), ++index;
      goes_on = visit(std::as_const(now));
      for (index = 0; index < chosen.size() && ++chosen[index] == choices[index].size(); ++index) chosen[index] = 0;
      if (index == chosen.size() || !goes_on) return states;
    }
  }

  std::vector<one_file> files_;
  std::map<std::string, std::size_t> names_;
  std::map<std::string, std::size_t> safe_names_;
  std::vector<name_change> changes_;
};

}  // namespace support
