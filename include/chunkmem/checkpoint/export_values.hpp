// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/file_name_rule.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_index.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Checks that a file for other programs may have this name in a folder of checkpoints. @throws usage_error
inline void expect_export_name(std::string_view file_name)
{
  expects(!file_name.empty() && file_name.find('/') == file_name.npos && !file_name.starts_with(file_prefix),
          "an export has the name of a checkpoint's file, one with a separator in it, or none");
}

/// Begins a file under the first name that is free, or can be made free. @throws io_error   there is no such name, or
/// the file cannot be made
template <file_folder Folder>
void begin_export(Folder& folder, std::optional<io::atomic_file<Folder>>& file)
{
  for (unsigned index = 0; index < export_names; ++index) {
    const std::string name = export_name(index);
    if (!io::is_foreign(folder, name)) (void)folder.remove(name);  // of an export that was killed
    try {
      file.emplace(folder, name);
      return;
    } catch (const io_error& failed) {
      if (failed.fault().number != EEXIST) throw;
    }
  }
  throw io_error{error_text{} << "chunkmem: an export finds no name for its file: all from " << export_name(0) << " to "
                              << export_name(export_names - 1)
                              << " are taken and cannot be removed (remove the folders and files of these names)",
                 {EEXIST, 0}};
}

/// Writes one safetensors file. When it is whole, it replaces a file with its name. @param write   `write(file)` writes
/// all tensors of the table, in its order
/// @throws io_error   also where another saver has the folder; and the errors of `write`
template <file_folder Folder, class Write>
void export_file(Folder& folder, std::string_view file_name, const std::vector<stored_tensor>& table, Write write)
{
  const std::string header = write_table(table);
  [[maybe_unused]] const auto held = io::lock_of(folder);
  {
    std::optional<io::atomic_file<Folder>> file;
    begin_export(folder, file);
    file->write(std::as_bytes(std::span{header}));
    write(*file);
    file->end(file_name);
  }
  folder.sync();
}

/// Gives an item the name and the extents that it has in a file of another program. @throws config_error   the item
/// cannot be transposed
inline void rename(model_item& item, std::span<const file_name_rule> names)
{
  const place_in_file place = place_of(item.name, names);
  item_piece& piece = item.pieces.front();
  item.name = piece.name = place.name;
  piece.is_transposed = place.is_transposed;
  if (!place.is_transposed) return;
  if (item.extents.size() != 2)
    throw config_error{error_text{} << "chunkmem: " << place.name << " cannot be transposed in a file, and has "
                                    << std::uint64_t{item.extents.size()} << " extents (give it two, or no transpose)"};
  std::ranges::reverse(item.extents);
  piece.extents = item.extents;
}

/// Writes the columns of a matrix one after the other. @param item   has the extents of the file
template <class File>
void write_columns(const model_item& item, std::span<const std::byte> content, File& file)
{
  const auto columns = static_cast<std::size_t>(item.extents[0]), rows = static_cast<std::size_t>(item.extents[1]);
  const std::size_t width = size_of(item.type);
  if (rows == 0) return;  // there may be many empty columns
  std::vector<std::byte> column(rows * width);
  for (std::size_t at = 0; at < columns; ++at) {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(column.data() + row * width, content.data() + (row * columns + at) * width, width);
    file.write(column);
  }
}

}  // namespace detail

/// Writes only the weights and buffers into one safetensors file, for other programs. The values are those that the
/// trainer computes with.
///
///     io::posix_folder folder{"exported"};
///     checkpoint::export_values(m, folder, "model.safetensors");  // by the names that m.name gave
///
/// A 16-bit weight is written in 16 bits; states of the optimizer and of the trainer are left out. When the file is
/// whole, it replaces a file of its name, and no other file. Until then its name is "generation-export.tmp". Where that
/// name is taken and cannot be removed, it is "generation-export-1.tmp", and so on.
/// @param names   the names that other programs have for tensors, and which ones they have transposed: the list that
///   `import_values` takes @pre file_name   has no separator and does not begin with "generation-": checkpoints have
///   such names
/// @throws config_error   two tensors would have one name in the file, or a transposed one does not have two extents
/// @throws io_error      an older file with that name is untouched, also where a save into the folder is not over. If
///   only the folder's last sync failed, the older file is replaced, but a power cut may bring it back: one of the two
///   is there, whole
/// @throws usage_error   `file_name` is not allowed, or a rule has two stars; otherwise as `save`
/// @complexity        one pass over the bytes
template <class Manager, file_folder Folder>
void export_values(Manager& m, Folder& folder, std::string_view file_name, std::span<const file_name_rule> names = {})
{
  detail::expect_export_name(file_name);
  detail::expect_rules(names);
  std::vector<model_item> values;
  for (const model_item& item : content_of(m)) {
    if (item.is_state() || !item.is_filled || (item.list != value_list && item.list != item.master)) continue;
    values.push_back(item);
    values.back().list = value_list;
    values.back().type = item.value_type;
  }
  for (model_item& item : values) detail::rename(item, names);
  detail::refuse_equal_names(values);
  detail::sort_by_alignment(values);
  std::vector<save_plan::entry> all;
  for (const model_item& item : values) all.push_back({&item, &item.pieces.front()});
  detail::export_file(folder, file_name, detail::table_of(all), [&](auto& file) {
    for (const model_item& item : values)
      detail::with_bytes(m, item, access::read, [&](std::span<const std::byte> content) {
        item.pieces.front().is_transposed ? detail::write_columns(item, content, file) : file.write(content);
      });
  });
}

/// The generation of an export, and the type of its values.
///
///     export_generation(folder, folder, "model.safetensors", {.type = dtype::bfloat16});
struct export_options {
  std::uint64_t generation = 0;    ///< 0: the newest that is whole
  std::optional<dtype> type = {};  ///< of real tensors, rounded; none: as they were saved, masters in 32 bits
  std::uint32_t rank = 0;          ///< the rank whose buffers are taken, where each rank saved its own
  /// true: finite numbers beyond the range of `type` become infinite; false: such an export is refused
  bool allow_overflow = false;
  loader_limits limits{};
};

/// The result of an export.
///
///     const exported_generation found = export_generation(folder, folder, "model.safetensors");
struct exported_generation {
  std::uint64_t number = 0;
  rounded_numbers rounded{};  ///< numbers that became zero or infinite in a narrower type

  constexpr operator std::uint64_t() const noexcept { return number; }
};

namespace detail {

/// A tensor of a checkpoint on its way into one file.
struct exported {
  std::string name;
  const stored_value* value;
  dtype type;
};

/// @param own   "[rank 1 of 4]" @throws config_error   there are fewer ranks
[[nodiscard]] inline bool is_of_other_rank(std::string_view own, std::uint32_t rank)
{
  constexpr std::string_view before = " of ";
  const std::string_view all = own.substr(own.rfind(before) + before.size());
  std::uint64_t ranks = 0;
  (void)std::from_chars(all.data(), all.data() + all.size(), ranks);
  if (rank >= ranks)
    throw config_error{error_text{} << "chunkmem: buffers of rank " << rank
                                    << " were requested, and this checkpoint has those of " << ranks
                                    << " ranks (export_options::rank counts from 0)"};
  return !own.starts_with("[rank " + std::to_string(rank) + std::string{before});
}

/// Weights and buffers. Registered states and lists of an optimizer are left out.
[[nodiscard]] inline std::vector<exported> values_of(const stored_index& index, const manifest& content,
                                                     const export_options& options)
{
  const auto is_beside_weight = [&](std::string_view name) {
    return std::ranges::any_of(content.lists, [&](const stored_list& list) {
      return name.starts_with(list.name) && name.substr(list.name.size()).starts_with('/');
    });
  };
  std::vector<exported> all;
  for (const auto& [name, value] : index.all()) {
    if (value.foreign != nullptr)
      throw config_error{error_text{} << "chunkmem: " << name << " of " << value.type_name()
                                      << " in a checkpoint has an element type that no export writes (export with the "
                                         "version that saved it)"};
    if (name.starts_with(name_rules::state_prefix) || is_beside_weight(name)) continue;
    const std::size_t own = name_rules::looks_divided(name) ? name.rfind("[rank ") : name.npos;
    if (own != name.npos && is_of_other_rank(name.substr(own), options.rank)) continue;
    const bool changes = options.type && is_convertible(value.type, *options.type);
    all.push_back({std::string{name.substr(0, own)}, &value, changes ? *options.type : value.type});
  }
  // so that each tensor lies aligned
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const exported& it) { return size_of(it.type); });
  return all;
}

}  // namespace detail

/// Writes the weights and buffers of a generation into one safetensors file of whole tensors, for other programs. One
/// rank or many may have saved the generation.
///
/// Needs no model and no ranks: one caller, any time. Tensors are assembled from the files of all ranks in blocks: no
/// tensor is ever held whole.
///
/// Use:
///
///     checkpoint::export_generation(folder, folder, "model.safetensors", {.type = dtype::bfloat16});
///
/// @param from, to   may be the same folder; `file_name` as for export_values
/// @return   the generation @throws config_error   finite numbers would become infinite @throws io_error   no
///   generation is whole, or the requested one cannot be read, or the file could not be written @throws corrupt_data,
///   format_error   the requested generation is not whole. An older file with the name is untouched after all of these
/// @complexity   two passes over its files; memory: eight blocks of 4 MiB, and one of 1 MiB
template <file_folder From, file_folder To>
exported_generation export_generation(const From& from, To& to, std::string_view file_name,
                                      const export_options& options = {})
{
  detail::expect_export_name(file_name);
  std::vector<skipped_generation> skipped;
  std::optional<generation_reader<From>> found;
  if (options.generation != 0)
    found.emplace(check_generation(from, options.generation, options.limits));
  else
    found = newest_whole(from, skipped, options.limits);
  if (!found) detail::refuse_folder(skipped, !generations_in(from).empty());
  const stored_index index{found->generation()};
  const std::vector<detail::exported> all = detail::values_of(index, found->content(), options);
  std::vector<stored_tensor> table;
  for (const detail::exported& it : all) {
    const std::uint64_t begin = table.empty() ? 0 : table.back().end;
    table.push_back(
        {it.name, it.type, it.value->extents, begin, begin + size_of_tensor(it.type, it.value->extents).count()});
  }
  narrowing narrowed{options.allow_overflow};
  detail::export_file(to, file_name, table, [&](auto& file) {
    std::vector<std::byte> block(std::size_t{1} << 20);
    for (std::size_t position = 0; position < all.size(); ++position) {
      rounded_numbers lost;
      const std::uint64_t width = size_of(all[position].type);
      const std::uint64_t elements = table[position].size() / width;
      for (std::uint64_t first = 0; first < elements; first += block.size() / width) {
        const std::uint64_t count = std::min<std::uint64_t>(elements - first, block.size() / width);
        lost += read_elements(*found, *all[position].value, first, count, block.data(), all[position].type);
        file.write(std::span{block}.first(static_cast<std::size_t>(count * width)));
      }
      narrowed.add(all[position].name, lost, all[position].type);
    }
  });
  return {found->content().generation, narrowed.total()};
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
