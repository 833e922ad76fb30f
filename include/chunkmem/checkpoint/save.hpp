#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

struct save_options {
  std::uint32_t keep = 2;                      ///< generations that stay, this one too; at least 1
  bytes file_size{std::uint64_t{4} << 30};     ///< a file ends with the tensor that reaches it
};

/// What a save has written.
struct saved_generation {
  std::uint64_t number = 0;
  std::uint64_t files = 0;   ///< without the manifest
  bytes size;                ///< of all of them
};

namespace detail {

/// Which items go into one file, and where: begin and end of a table.
[[nodiscard]] inline std::vector<std::vector<const model_item*>> split(const std::vector<model_item>& items, bytes file_size)
{
  std::vector<std::vector<const model_item*>> files;
  std::uint64_t now = file_size.count();
  for (const model_item& it : items) {
    if (!it.is_filled) continue;
    if (now >= file_size.count()) {
      files.emplace_back();
      now = 0;
    }
    files.back().push_back(&it);
    now += it.size();
  }
  return files;
}

[[nodiscard]] inline std::vector<stored_tensor> table_of(const std::vector<const model_item*>& items)
{
  std::vector<stored_tensor> table;
  std::uint64_t end = 0;
  for (const model_item* it : items) {
    table.push_back({it->name, it->type, it->extents, end, end + it->size()});
    end = table.back().end;
  }
  return table;
}

/// Hands all of a manager to a writer of generations, and the manifest last.
template <class Manager, class Writer>
void write_model(Manager& m, const std::vector<model_item>& items, const save_options& options, Writer& to)
{
  for (const auto& file : split(items, options.file_size)) {
    to.begin_file();
    const std::string table = write_table(table_of(file));
    to.write(std::as_bytes(std::span{table}));
    for (const model_item* it : file) with_bytes(m, *it, access::read, [&](std::span<const std::byte> content) { to.write(content); });
    to.end_file();
  }
  std::vector<stored_list> lists;
  m.for_each_list([&](list_id, const list_spec& spec) { lists.push_back({std::string{spec.name}, spec.version}); });
  std::vector<std::string> empty;
  for (const model_item& it : items)
    if (!it.is_filled) empty.push_back(it.name);
  to.commit(std::move(lists), std::move(empty));
}

}  // namespace detail

/// Saves all that a manager would need to go on: values or their masters, every list, and registered states.
///
/// Files are safetensors, which other programs open. The new generation is there whole when this returns, also after a power cut; until
/// then, and where this throws, the older ones are untouched. Then all but the newest `keep` are removed.
/// Reading the tensors may move chunks, so the next iteration may plan again.
///
/// @throws io_error        the folder took not all of it, or did not let go of older generations; training may go on
/// @throws usage_error     inside an iteration, or with gradients that no step has used; config_error   two tensors have one name, or one that a file cannot hold
/// @throws out_of_memory   the host has no room to read a tensor, on a device that the calling thread cannot read
/// @complexity             one pass over the bytes; memory for the names
template <class Manager, file_folder Folder>
saved_generation save(Manager& m, Folder& folder, const save_options& options = {})
{
  expects(options.keep > 0 && options.file_size.count() > 0, "a checkpoint that keeps no generation, or files without bytes");
  const std::vector<model_item> items = content_of(m);
  remove_leftovers(folder);
  generation_writer<Folder> writer{folder, next_generation(folder)};
  detail::write_model(m, items, options, writer);
  remove_older(folder, options.keep);
  return {writer.content().generation, writer.content().files.size(), bytes{writer.size()}};
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
