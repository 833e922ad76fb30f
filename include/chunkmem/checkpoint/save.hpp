#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/safetensors_table.hpp>
#include <chunkmem/checkpoint/whole_generation.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

struct save_options {
  std::uint32_t keep = 2;                      ///< whole generations that stay, this one too; at least 1
  bytes file_size{std::uint64_t{4} << 30};     ///< a file ends with the tensor that reaches it
  bool check_older = true;                     ///< read those that stay: a damaged one does not count. Else all count
};

/// What a save has written.
struct saved_generation {
  std::uint64_t number = 0;
  std::uint64_t files = 0;   ///< without the manifest
  bytes size;                ///< of all of them
  error_text clean_up{};     ///< why older ones may still be there, in a sentence; empty where nobody said so. They go with the next save
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

/// All that a save writes but the bytes of tensors. Made before anything is written, so that what cannot be loaded is never begun.
struct save_plan {
  std::vector<std::vector<const model_item*>> files;
  std::vector<std::string> tables;   ///< begin of each file
  std::vector<stored_list> lists;
  std::vector<std::string> empty;
};

/// @throws config_error   the manifest would be one that no loader takes
inline void refuse_unreadable_manifest(const save_plan& plan)
{
  manifest longest{UINT64_MAX, {}, plan.lists, plan.empty};
  for (std::size_t at = 0; at < plan.files.size(); ++at) longest.files.push_back({tensors_name(UINT64_MAX, at), UINT64_MAX, UINT64_MAX});
  try {
    (void)read_manifest(write_manifest(longest));
  } catch (const format_error& refused) {
    throw config_error{error_text{} << "chunkmem: no loader would take the manifest of " << plan.files.size() << " files, " << plan.lists.size()
                                    << " lists and " << plan.empty.size() << " empty tensors (shorter names, or larger files): " << refused.what()};
  }
}

template <class Manager>
[[nodiscard]] save_plan plan_of(const Manager& m, const std::vector<model_item>& items, bytes file_size)
{
  save_plan plan{split(items, file_size), {}, {}, {}};
  for (const auto& file : plan.files) plan.tables.push_back(write_table(table_of(file)));
  m.for_each_list([&](list_id, const list_spec& spec) { plan.lists.push_back({std::string{spec.name}, spec.version}); });
  for (const model_item& it : items)
    if (!it.is_filled) plan.empty.push_back(it.name);
  refuse_unreadable_manifest(plan);
  return plan;
}

/// Hands all of a manager to a writer of generations, and the manifest last.
template <class Manager, class Writer>
void write_model(Manager& m, const save_plan& plan, Writer& to)
{
  for (std::size_t at = 0; at < plan.files.size(); ++at) {
    to.begin_file();
    to.write(std::as_bytes(std::span{plan.tables[at]}));
    for (const model_item* it : plan.files[at]) with_bytes(m, *it, access::read, [&](std::span<const std::byte> content) { to.write(content); });
    to.end_file();
  }
  to.commit(plan.lists, plan.empty);
}

/// What fails here does not undo the save: it is no error of it.
/// @param newest   was just written   @return   what failed, in a sentence
template <file_folder Folder>
[[nodiscard]] error_text remove_superseded(Folder& folder, std::uint64_t newest, const save_options& options)
{
  error_text failure;
  try {
    remove_older(folder, options.keep,
                 [&](std::uint64_t generation) { return generation == newest || !options.check_older || is_whole(folder, generation); });
  } catch (const std::exception& failed) {
    failure << failed.what();
  }
  return failure;
}

}  // namespace detail

/// Saves all that a manager would need to go on: values or their masters, every list, and registered states.
///
/// Files are safetensors, which other programs open. The new generation is there whole when this returns, also after a power cut; until
/// then, and where this throws, the older ones are untouched. Then what is older than the newest `keep` whole ones is removed; where that
/// fails, the save succeeded, and its result says so. Reading the tensors may move chunks, so the next iteration may plan again.
/// A folder is for one run: generations of another one in it count as older ones, and go.
///
/// @throws io_error        the folder took not all of it, or somebody else saves into it; training may go on
/// @throws usage_error     inside an iteration, or with gradients that no step has used
/// @throws config_error    two tensors have one name, or names are more than a loader takes; nothing was written
/// @throws out_of_memory   the host has no room to read a tensor, on a device that the calling thread cannot read; std::bad_alloc   none for names
/// @throws device_error    a tensor could not be copied
/// @complexity             one pass over the bytes, and one over those of each older generation that stays where another goes; memory for the names
template <class Manager, file_folder Folder>
saved_generation save(Manager& m, Folder& folder, const save_options& options = {})
{
  expects(options.keep > 0 && options.file_size.count() > 0, "a checkpoint that keeps no generation, or files without bytes");
  const std::vector<model_item> items = content_of(m);
  const detail::save_plan plan = detail::plan_of(m, items, options.file_size);
  [[maybe_unused]] const auto held = io::lock_of(folder);
  remove_leftovers(folder);
  generation_writer<Folder> writer{folder, next_generation(folder)};
  detail::write_model(m, plan, writer);
  const std::uint64_t number = writer.content().generation;
  return {number, writer.content().files.size(), bytes{writer.size()}, detail::remove_superseded(folder, number, options)};
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
