// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/io/whole_file.hpp>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// A name that a file for other programs may have in a folder of checkpoints. @throws usage_error
inline void expect_export_name(std::string_view file_name)
{
  expects(!file_name.empty() && file_name.find('/') == file_name.npos && !file_name.starts_with(file_prefix),
          "an export has the name of a checkpoint's file, one with a separator in it, or none");
}

/// Begins a file under the first name that is free, or can be made free. @throws io_error   there is none, or it cannot
/// be made
template <file_folder Folder>
void begin_export(Folder& folder, std::optional<io::whole_file<Folder>>& file)
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
                              << " are taken by what cannot be removed (remove the folders and files of these names)",
                 {EEXIST, 0}};
}

/// Writes one safetensors file. When it is whole, it replaces a file of its name. @param write   `write(file)` writes
/// all tensors of the table, in its order
/// @throws io_error   also where another saver has the folder; and the errors of `write`
template <file_folder Folder, class Write>
void export_file(Folder& folder, std::string_view file_name, const std::vector<stored_tensor>& table, Write write)
{
  const std::string header = write_table(table);
  [[maybe_unused]] const auto held = io::lock_of(folder);
  {
    std::optional<io::whole_file<Folder>> file;
    begin_export(folder, file);
    file->write(std::as_bytes(std::span{header}));
    write(*file);
    file->end(file_name);
  }
  folder.sync();
}

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
