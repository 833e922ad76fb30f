// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Elements of a tensor that lie in one file, one after the other.
///
///     for (const stored_run& it : weight.runs) std::cout << it.elements << " in file " << it.file << '\n';
struct stored_run {
  std::uint64_t first = 0;  ///< element of the tensor, in row-major order
  std::uint64_t elements = 0;
  std::uint32_t file = 0;
  std::uint64_t begin = 0;  ///< byte of the file
};

/// A tensor of a checkpoint: where all of its elements are.
///
///     if (const stored_value* found = index.find("embedding"); found != nullptr) runs = found->runs.size();
struct stored_value {
  dtype type = dtype::float32;
  std::vector<std::uint64_t> extents;
  std::vector<stored_run> runs;  ///< in the order of elements, without gaps
};

/// The name of elements [first, end) of a tensor in files.
[[nodiscard]] inline std::string part_name(std::string_view tensor, std::uint64_t first, std::uint64_t end)
{
  return std::string{tensor} + '[' + std::to_string(first) + ':' + std::to_string(end) + ']';
}

/// A name in the form of a part's.
///
///     if (const auto part = part_of_name("embedding[0:4096]")) std::cout << part->tensor << '\n';  // embedding
struct part_label {
  std::string_view tensor;
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};
/// @return   none where the name has not that form. The result refers to `name`
[[nodiscard]] inline std::optional<part_label> part_of_name(std::string_view name)
{
  const std::size_t open = name.rfind('[');
  if (open == name.npos || !name.ends_with(']')) return {};
  part_label found{name.substr(0, open), 0, 0};
  const char* const last = name.data() + name.size() - 1;
  const auto [colon, wrong] = std::from_chars(name.data() + open + 1, last, found.first);
  if (wrong != std::errc{} || colon == last || *colon != ':') return {};
  const auto [end, bad] = std::from_chars(colon + 1, last, found.end);
  if (bad != std::errc{} || end != last || found.first >= found.end ||
      part_name(found.tensor, found.first, found.end) != name)
    return {};
  return found;
}

/// Tensors of a checkpoint by name, over all files and ranks.
///
///     const stored_index index{generation};
///     if (const stored_value* weight = index.find("embedding"); weight != nullptr) wanted = weight->extents;
class stored_index {
 public:
  using map_type = std::map<std::string_view, stored_value>;

  /// @param from   outlives this: names are its own
  /// @throws format_error   two parts of one tensor overlap, one is missing, or it has two types; config_error   two
  ///   entries have one name
  explicit stored_index(const whole_generation& from)
  {
    for (const divided_tensor& it : from.content.divided) {
      expect_countable(it);
      add(it.name, {{}, it.extents, {}});
      divided_.insert(it.name);
    }
    for (std::uint32_t file = 0; file < from.files.size(); ++file)
      for (const stored_tensor& stored : from.files[file].tensors)
        add_entry(stored, {0, 0, file, from.files[file].payload + stored.begin});
    for (auto& [name, value] : tensors_) check(name, value);
  }
  /// The index of one file that is no generation.
  stored_index(const std::vector<stored_tensor>& table, std::uint64_t payload)
  {
    for (const stored_tensor& stored : table) add_entry(stored, {0, 0, 0, payload + stored.begin});
    for (auto& [name, value] : tensors_) check(name, value);
  }

  [[nodiscard]] const stored_value* find(std::string_view name) const
  {
    const auto known = tensors_.find(name);
    return known == tensors_.end() ? nullptr : &known->second;
  }
  [[nodiscard]] const map_type& all() const noexcept { return tensors_; }

 private:
  void add(std::string_view name, stored_value value)
  {
    if (!tensors_.emplace(name, std::move(value)).second)
      throw config_error{error_text{} << "chunkmem: this checkpoint has two tensors of one name: " << name
                                      << " (it was put together by hand?)"};
  }
  void add_entry(const stored_tensor& stored, stored_run where)
  {
    const std::optional<part_label> part = part_of_name(stored.name);
    if (!part || !divided_.contains(part->tensor)) {
      where.elements = elements_of(stored.extents);
      return add(stored.name, {stored.type, stored.extents, {where}});
    }
    stored_value& value = tensors_.find(part->tensor)->second;
    where.first = part->first;
    where.elements = part->end - part->first;
    if (stored.extents != std::vector{where.elements})
      refuse(part->tensor, "a part has another size than its name says");
    if (!value.runs.empty() && value.type != stored.type) refuse(part->tensor, "its parts have several element types");
    value.type = stored.type;
    value.runs.push_back(where);
  }

  static void expect_countable(const divided_tensor& it)
  {
    try {
      (void)elements_of(it.extents);
    } catch (const size_overflow&) {
      refuse(it.name, "it has more elements than can be counted");
    }
  }
  static void check(std::string_view name, stored_value& it)
  {
    std::ranges::sort(it.runs, {}, &stored_run::first);
    std::uint64_t next = 0;
    for (const stored_run& run : it.runs) {
      if (run.first < next) refuse(name, "its parts overlap");
      if (run.first > next) refuse(name, "a part is missing, from element", next);
      next = run.first + run.elements;
    }
    if (next != elements_of(it.extents)) refuse(name, "a part is missing or too much, from element", next);
  }
  [[nodiscard]] static std::uint64_t elements_of(const std::vector<std::uint64_t>& extents)
  {
    return size_of_tensor(dtype::uint8, extents).count();
  }
  [[noreturn]] static void refuse(std::string_view name, std::string_view why, std::optional<std::uint64_t> at = {})
  {
    error_text text;
    text << "chunkmem: a checkpoint cannot be used: " << name << ": " << why;
    if (at) text << " " << *at;
    throw format_error{text << " (files of several checkpoints were mixed?)"};
  }

  map_type tensors_;
  std::set<std::string_view> divided_;
};

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
