// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which generation the parts of a training have to load after something went wrong: by names of files and by what the
// test knows that it saved. It includes nothing of the library.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fault_oracle {

/// The end of one part.
struct part_end {
  enum class kind : std::uint8_t { done, refused, died, odd };
  kind how = kind::odd;      ///< refused: an error that the library names; odd: anything else
  std::uint64_t number = 0;  ///< of the generation that was saved or loaded
  float value = -1;          ///< that the part has, -1: several
};

/// A save that all parts were told of: number and value.
using history = std::map<std::uint64_t, float>;

/// The numbers in names such as generation-000012.manifest.
[[nodiscard]] inline std::set<std::uint64_t> manifests_in(const std::vector<std::string>& names)
{
  const std::string begin = "generation-";
  const std::string end = ".manifest";
  std::set<std::uint64_t> found;
  for (const std::string& name : names)
    if (name.size() > begin.size() + end.size() && name.compare(0, begin.size(), begin) == 0 &&
        name.compare(name.size() - end.size(), end.size(), end) == 0)
      found.insert(std::stoull(name.substr(begin.size())));
  return found;
}

/// Numbers that each folder has.
[[nodiscard]] inline std::set<std::uint64_t> common(const std::vector<std::vector<std::string>>& folders)
{
  std::set<std::uint64_t> all = manifests_in(folders.at(0));
  for (const auto& names : folders) {
    const std::set<std::uint64_t> own = manifests_in(names);
    std::erase_if(all, [&](std::uint64_t it) { return own.count(it) == 0; });
  }
  return all;
}

/// All parts ended alike, except for dead ones: none has a generation that another was refused.
[[nodiscard]] inline bool is_uniform(const std::vector<part_end>& ends)
{
  const auto count = [&](part_end::kind it) {
    return std::count_if(ends.begin(), ends.end(), [it](const part_end& end) { return end.how == it; });
  };
  return count(part_end::kind::odd) == 0 && (count(part_end::kind::done) == 0 || count(part_end::kind::refused) == 0);
}

/// The error of a load without faults, after a save with faults. @return   nothing, or a word
/// @param saved   before it   @param attempted   value of the save in trouble   @param keep   of the saves
[[nodiscard]] inline std::string wrong_after_save(const std::vector<std::vector<std::string>>& folders,
                                                  const history& saved, float attempted, std::size_t keep,
                                                  const std::vector<part_end>& loads)
{
  const std::set<std::uint64_t> there = common(folders);
  std::vector<std::uint64_t> promised;
  for (const auto& [number, value] : saved) promised.push_back(number);
  if (!there.empty() && (promised.empty() || *there.rbegin() > promised.back())) promised.push_back(*there.rbegin());
  for (std::size_t index = promised.size() > keep ? promised.size() - keep : 0; index < promised.size(); ++index)
    if (there.count(promised[index]) == 0) return "lost";
  for (const part_end& it : loads) {
    if (there.empty()) {
      if (it.how != part_end::kind::refused) return "nothing to load, and no error";
      continue;
    }
    const std::uint64_t newest = *there.rbegin();
    const auto known = saved.find(newest);
    if (it.how != part_end::kind::done) return "lost: it does not load";
    if (it.number != newest) return "not the newest that all have";
    if (it.value != (known == saved.end() ? attempted : known->second)) return "mixed";
  }
  return {};
}

/// The error of a load with faults. @param must_load   an older generation is whole everywhere
[[nodiscard]] inline std::string wrong_in_load(const history& saved, bool must_load, const std::vector<part_end>& loads)
{
  if (!is_uniform(loads)) return "mixed: some loaded and others did not";
  std::uint64_t number = 0;
  for (const part_end& it : loads) {
    if (it.how != part_end::kind::done) {
      if (must_load) return "lost: an older one is whole";
      continue;
    }
    if (number == 0) number = it.number;
    if (it.number != number) return "mixed: several generations";
    const auto known = saved.find(number);
    if (known == saved.end() || known->second != it.value) return "mixed: other bytes";
  }
  return {};
}

}  // namespace fault_oracle
