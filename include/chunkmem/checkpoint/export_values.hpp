// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/export_file.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Writes only the weights and buffers into one safetensors file, for other programs. The values are those that the
/// trainer computes with.
///
/// A 16-bit weight is written in 16 bits; states of the optimizer and of the trainer are left out. When the file is
/// whole, it replaces a file of its name, and no other file. Until then its name is "generation-export.tmp". Where that
/// name is taken and cannot be removed, it is "generation-export-1.tmp", and so on.
/// @pre file_name   has no separator and does not begin with "generation-": checkpoints have such names
/// @throws io_error      an older file of that name is untouched, also where a save into the folder is not over. If
///   only the folder's last sync failed, it is replaced, and a power cut may bring it back: one of the two is there,
///   whole
/// @throws usage_error   `file_name` is none for an export; otherwise as `save`
/// @complexity        one pass over the bytes
template <class Manager, file_folder Folder>
void export_values(Manager& m, Folder& folder, std::string_view file_name)
{
  detail::expect_export_name(file_name);
  std::vector<model_item> values;
  for (const model_item& item : content_of(m)) {
    if (item.is_state() || !item.is_filled || (item.list != value_list && item.list != item.master)) continue;
    values.push_back(item);
    values.back().list = value_list;
    values.back().type = item.value_type;
  }
  detail::sort_by_alignment(values);
  std::vector<save_plan::entry> all;
  for (const model_item& item : values) all.push_back({&item, &item.pieces.front()});
  detail::export_file(folder, file_name, detail::table_of(all), [&](auto& file) {
    for (const model_item& item : values)
      detail::with_bytes(m, item, access::read, [&](std::span<const std::byte> content) { file.write(content); });
  });
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
