#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/io/whole_file.hpp>

#include <cstddef>
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

/// Writes one safetensors file, which replaces one of its name when it is whole. @param write   `write(file)` writes all tensors of the table, in its order
/// @throws io_error   also where somebody else saves into the folder; what `write` throws
template <file_folder Folder, class Write>
void export_file(Folder& folder, std::string_view file_name, const std::vector<stored_tensor>& table, Write write)
{
  const std::string header = write_table(table);
  [[maybe_unused]] const auto held = io::lock_of(folder);
  (void)folder.remove(export_name);  // of an export that was killed
  {
    io::whole_file<Folder> file{folder, export_name};
    file.write(std::as_bytes(std::span{header}));
    write(file);
    file.end(file_name);
  }
  folder.sync();
}

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
