#pragma once

#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// Writes the weights and buffers alone, as they are computed with, into one safetensors file for other programs.
///
/// A 16-bit weight is written in 16 bits; states of the optimizer and of the trainer are left out. The file replaces one of that name when
/// it is whole.
/// @throws io_error   an older file is untouched, also where a save into the folder is not over; otherwise as `save`
/// @complexity        one pass over the bytes
template <class Manager, file_folder Folder>
void export_values(Manager& m, Folder& folder, std::string_view file_name)
{
  std::vector<model_item> values;
  for (const model_item& it : content_of(m)) {
    if (it.is_state() || !it.is_filled || (it.list != value_list && it.list != it.master)) continue;
    values.push_back(it);
    values.back().list = value_list;
    values.back().type = it.value_type;
  }
  detail::sort_by_alignment(values);
  std::vector<const model_item*> all;
  for (const model_item& it : values) all.push_back(&it);
  const std::string table = write_table(detail::table_of(all));
  const std::string temporary = std::string{file_name} + ".tmp";
  [[maybe_unused]] const auto held = io::lock_of(folder);
  (void)folder.remove(temporary);
  try {
    auto file = folder.create(temporary);
    io::write_all(file, std::as_bytes(std::span{table}));
    for (const model_item& it : values)
      detail::with_bytes(m, it, access::read, [&](std::span<const std::byte> content) { io::write_all(file, content); });
    file.sync();
    file.close();
    folder.rename(temporary, file_name);
  } catch (...) {
    (void)folder.remove(temporary);
    throw;
  }
  folder.sync();
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
