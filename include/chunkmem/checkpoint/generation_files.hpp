// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/checksum.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The bytes of a block: after the header, each block of a file has one checksum. The last block may be shorter.
inline constexpr std::uint64_t sum_block = std::uint64_t{4} << 20;

namespace detail {
/// The bytes that are read or written, and then summed, at a time: the second pass finds them in the cache.
inline constexpr std::size_t sum_step = std::size_t{256} << 10;
}  // namespace detail

/// Where blocks begin and end in a file: block 0 is its header.
///
///     const block_range second = block_at(1, size, header);
struct block_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return end - begin; }
};

/// Blocks of a file of `size` bytes, whose header has `header` bytes. @pre   header <= size
[[nodiscard]] constexpr std::uint64_t blocks_in(std::uint64_t size, std::uint64_t header) noexcept
{
  const std::uint64_t behind = size - header;
  return 1 + behind / sum_block + (behind % sum_block == 0 ? 0 : 1);
}
[[nodiscard]] constexpr block_range block_at(std::uint64_t block, std::uint64_t size, std::uint64_t header) noexcept
{
  if (block == 0) return {0, header};
  const std::uint64_t begin = header + (block - 1) * sum_block;
  return {begin, begin + std::min(sum_block, size - begin)};
}
/// The block that holds this byte of a file.
[[nodiscard]] constexpr std::uint64_t block_of(std::uint64_t byte, std::uint64_t header) noexcept
{
  return byte < header ? 0 : 1 + (byte - header) / sum_block;
}

/// Checksums of the blocks of a file that is written from its begin to its end, in any pieces.
///
///     block_sums sums{header.size()};
///     sums.add(header);
///     sums.add(content);
///     const std::vector<std::uint64_t> all = sums.take();  // of the header, then of each 4 MiB
class block_sums {
 public:
  block_sums() = default;
  /// @param header   size of the header [B]
  explicit block_sums(std::uint64_t header) : room_{header} {}

  void add(std::span<const std::byte> content)
  {
    while (!content.empty()) {
      if (room_ == 0) end_block();
      const std::span part = content.first(static_cast<std::size_t>(std::min<std::uint64_t>(room_, content.size())));
      sum_.add(part);
      room_ -= part.size();
      content = content.subspan(part.size());
    }
  }
  /// All checksums. Nothing may be added afterwards.
  [[nodiscard]] std::vector<std::uint64_t> take()
  {
    sums_.push_back(sum_.value());
    return std::move(sums_);
  }

 private:
  void end_block()
  {
    sums_.push_back(sum_.value());
    sum_ = {};
    room_ = sum_block;
  }

  io::checksum sum_;
  std::uint64_t room_ = 0;  // of the block that is being added to
  std::vector<std::uint64_t> sums_;
};

/// The purpose of a file in a checkpoint folder, read from its name. Names of checkpoints begin with "generation-".
/// Other files in the folder are left alone.
///
///     if (const auto label = label_of(name); label && !label->is_temporary) std::cout << label->generation << '\n';
struct file_label {
  enum class kind : std::uint8_t { manifest, tensors, claim };

  std::uint64_t generation = 0;
  kind what = kind::manifest;
  bool is_temporary = false;  ///< still being written, or left by a dead writer

  [[nodiscard]] bool operator==(const file_label&) const = default;
};

namespace detail {

inline constexpr std::string_view file_prefix = "generation-";
inline constexpr std::string_view manifest_suffix = ".manifest";
inline constexpr std::string_view tensors_suffix = ".safetensors";
inline constexpr std::string_view claim_suffix = ".claim";
inline constexpr std::string_view temporary_suffix = ".tmp";
inline constexpr std::string_view export_prefix = "generation-export";
inline constexpr unsigned export_names = 100;

inline constexpr std::size_t most_digits = 15;
inline constexpr std::uint64_t last_generation = 999'999'999'999'999;  ///< one more would have more digits

[[nodiscard]] inline std::string padded(std::uint64_t number, std::size_t digits)
{
  const std::string text = std::to_string(number);
  return std::string(text.size() < digits ? digits - text.size() : 0, '0') + text;
}
[[nodiscard]] inline std::string manifest_name(std::uint64_t generation)
{
  return std::string{file_prefix} + padded(generation, 6) + std::string{manifest_suffix};
}
[[nodiscard]] inline std::string tensors_name(std::uint64_t generation, std::size_t file)
{
  return std::string{file_prefix} + padded(generation, 6) + '-' + padded(file, 5) + std::string{tensors_suffix};
}

/// The temporary name of an exported file. @param index   below export_names: the next name is for a folder in which
/// the one before is taken
[[nodiscard]] inline std::string export_name(unsigned index)
{
  return std::string{export_prefix} + (index == 0 ? "" : "-" + std::to_string(index)) + std::string{temporary_suffix};
}
[[nodiscard]] inline bool is_export_name(std::string_view name)
{
  if (!name.starts_with(export_prefix)) return false;
  for (unsigned index = 0; index < export_names; ++index)
    if (name == export_name(index)) return true;
  return false;
}

/// The name of an empty file that keeps a number from being given again.
[[nodiscard]] inline std::string claim_name(std::uint64_t generation)
{
  return std::string{file_prefix} + padded(generation, 6) + std::string{claim_suffix} + std::string{temporary_suffix};
}

/// Takes a number off the front. @return   none where there is no digit, or more than a checkpoint writes
[[nodiscard]] inline std::optional<std::uint64_t> take_number(std::string_view& text)
{
  std::uint64_t number = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (wrong != std::errc{} || static_cast<std::size_t>(end - text.data()) > most_digits) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

[[noreturn]] inline void refuse_damaged(std::string_view name)
{
  throw corrupt_data{
      error_text{} << "chunkmem: " << name
                   << " is damaged: it differs from the file that was written (take an older generation)"};
}

}  // namespace detail

/// @return   none where no checkpoint gives such a name; generations are counted from 1
[[nodiscard]] inline std::optional<file_label> label_of(std::string_view name)
{
  using namespace detail;
  file_label label;
  if (name.ends_with(temporary_suffix)) {
    label.is_temporary = true;
    name.remove_suffix(temporary_suffix.size());
  }
  const std::string_view kept = name;
  if (!name.starts_with(file_prefix)) return {};
  name.remove_prefix(file_prefix.size());
  const auto generation = take_number(name);
  if (!generation || *generation == 0) return {};
  label.generation = *generation;
  if (name == manifest_suffix) return kept == manifest_name(label.generation) ? std::optional{label} : std::nullopt;
  if (name == claim_suffix) {
    label.what = file_label::kind::claim;
    return label.is_temporary && kept == claim_name(label.generation).substr(0, kept.size()) ? std::optional{label}
                                                                                             : std::nullopt;
  }
  if (!name.starts_with('-')) return {};
  name.remove_prefix(1);
  const auto file = take_number(name);
  label.what = file_label::kind::tensors;
  if (!file || kept != tensors_name(label.generation, *file)) return {};
  return label;
}

/// Numbers of the generations that have a manifest, newest first. Generations with a foreign manifest are among them,
/// although none of them is loaded.
template <file_folder Folder>
[[nodiscard]] std::vector<std::uint64_t> all_generations_in(const Folder& folder)
{
  std::vector<std::uint64_t> found;
  for (const std::string& name : folder.names())
    if (const auto label = label_of(name); label && label->what == file_label::kind::manifest && !label->is_temporary)
      found.push_back(label->generation);
  std::sort(found.rbegin(), found.rend());
  return found;
}
/// The same without generations whose manifest is foreign.
template <file_folder Folder>
[[nodiscard]] std::vector<std::uint64_t> generations_in(const Folder& folder)
{
  std::vector<std::uint64_t> found = all_generations_in(folder);
  std::erase_if(found, [&](std::uint64_t number) { return io::is_foreign(folder, detail::manifest_name(number)); });
  return found;
}

/// A number larger than that of any file of the folder, whole or not. Foreign files do not count, but their numbers are
/// not given.
/// @param least   the number is no smaller @throws config_error   the folder has the largest number
template <file_folder Folder>
[[nodiscard]] std::uint64_t next_generation(const Folder& folder, std::uint64_t least = 1)
{
  std::uint64_t newest = 0;
  std::string newest_name;
  std::vector<std::uint64_t> taken;
  for (const std::string& name : folder.names()) {
    const auto label = label_of(name);
    if (!label) continue;
    if (io::is_foreign(folder, name)) {
      taken.push_back(label->generation);
    } else if (label->generation > newest) {
      newest = label->generation;
      newest_name = name;
    }
  }
  std::uint64_t next = std::max(newest + 1, least);
  std::sort(taken.begin(), taken.end());
  for (const std::uint64_t number : taken) next += number == next ? 1 : 0;
  if (next > detail::last_generation)
    throw config_error{error_text{} << "chunkmem: no number is left for a checkpoint: this folder has " << newest_name
                                    << ", and generation " << detail::last_generation
                                    << " is the last one (remove it if it is not yours, or name another folder)"};
  return next;
}

/// Claims the next number for good by an empty file. A rank of a dead job may wake with its old number: it finds no
/// other job's files under that number. The claim is removed with the leftovers of a later save, of a larger number.
/// @throws as next_generation; io_error
template <file_folder Folder>
[[nodiscard]] std::uint64_t claim_generation(Folder& folder, std::uint64_t least = 1)
{
  const std::uint64_t number = next_generation(folder, least);
  const std::string name = detail::claim_name(number);
  auto file = folder.create(name);
  file.sync();
  file.close();
  folder.sync();
  return number;
}

/// Removes the leftovers of unfinished saves and exports: temporary files, and files of generations without a
/// manifest. Foreign files stay. The files of a generation stay too if only its manifest is foreign: once the manifest
/// belongs to its owner again, the generation is whole.
/// @param below   only of generations with smaller numbers @return   files removed
template <file_folder Folder>
std::size_t remove_leftovers(Folder& folder, std::uint64_t below = UINT64_MAX)
{
  const std::vector<std::uint64_t> whole = all_generations_in(folder);
  std::size_t removed = 0;
  for (const std::string& name : folder.names()) {
    const auto label = label_of(name);
    if (!detail::is_export_name(name) &&
        (!label || label->generation >= below ||
         (!label->is_temporary && std::binary_search(whole.rbegin(), whole.rend(), label->generation))))
      continue;
    if (io::is_foreign(folder, name)) continue;
    removed += folder.remove(name) ? 1 : 0;
  }
  return removed;
}

/// Removes generations. A manifest is removed first, durably, before its files. A generation whose manifest cannot be
/// removed keeps its files. A claim stays, and goes with leftovers. @throws io_error   some generations may be left
template <file_folder Folder>
void remove_generations(Folder& folder, std::vector<std::uint64_t> old)
{
  if (old.empty()) return;
  std::erase_if(old, [&](std::uint64_t generation) { return !folder.remove(detail::manifest_name(generation)); });
  folder.sync();
  for (const std::string& name : folder.names()) {
    const auto label = label_of(name);
    if (label && label->what != file_label::kind::claim &&
        std::find(old.begin(), old.end(), label->generation) != old.end())
      (void)folder.remove(name);
  }
}

/// Removes generations that are older than the newest `keep` that count. Foreign ones stay.
/// @param counts   is called from the newest generation on, and not at all where nothing has to be removed. A
///   generation that does not count stays if it is newer
/// @throws as remove_generations
template <file_folder Folder, class Counts>
void remove_older(Folder& folder, std::size_t keep, Counts counts)
{
  std::vector<std::uint64_t> old = generations_in(folder);
  if (old.size() <= keep) return;
  auto first = old.begin();
  for (std::size_t kept = 0; first != old.end() && kept < keep; ++first) kept += counts(*first) ? 1 : 0;
  old.erase(old.begin(), first);
  remove_generations(folder, std::move(old));
}
/// Removes all but the newest `keep`, whole or not.
template <file_folder Folder>
void remove_older(Folder& folder, std::size_t keep)
{
  remove_older(folder, keep, [](std::uint64_t) { return true; });
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
