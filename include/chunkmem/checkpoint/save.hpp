// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/checkpoint/older_check.hpp>
#include <chunkmem/checkpoint/run_number.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The generations that a save keeps, and the sizes of its files and rounds.
///
///     save(m, folder, {.keep = 3});
struct save_options {
  std::uint32_t keep = 2;                   ///< whole generations that stay, this one too; at least 1
  bytes file_size{std::uint64_t{4} << 30};  ///< a file ends with the tensor that reaches it
  bool check_older = true;                  ///< generations that stay are read: a damaged one does not count
  /// over ranks: each writes this many bytes before they tell each other how it went; that
  bytes round{std::uint64_t{256} << 20};
  ///< takes less than the deadline of their group
};

/// The result of a save.
///
///     const saved_generation saved = save(m, folder);
///     std::cout << "generation " << saved.number << ": " << saved.size.count() << " B\n" << saved.clean_up.view();
struct saved_generation {
  std::uint64_t number = 0;
  std::uint64_t files = 0;  ///< without the manifest
  bytes size;               ///< of all of them
  /// why older generations may still be there, in a sentence, also of the save before; else empty. They go with the
  /// next save
  error_text clean_up{};
};

namespace detail {

/// Checks and cleans a folder for a save. @return   the manifest, without files, of the training that saves
template <class Manager, file_folder Folder>
[[nodiscard]] manifest begin_save(const Manager& m, Folder& folder, const save_plan& plan)
{
  expect_own_folder(folder, m.content().run());
  manifest rest = plan.rest;
  // before leftovers go: a rank of a dead job that still writes some has another number
  rest.generation = next_generation(folder);
  remove_leftovers(folder);
  rest.run = m.content().run() != 0 ? m.content().run() : draw_run();
  return rest;
}

/// Removes older generations before it returns. @param newest   was just written @return   the failure, in a sentence
template <file_folder Folder>
[[nodiscard]] error_text remove_superseded(Folder& folder, std::uint64_t newest, const save_options& options)
{
  return remove_superseded(folder, newest, options.keep, [&](std::uint64_t generation) {
    return !options.check_older || is_whole(folder, generation);
  });
}

/// The same, behind the back of the caller where generations are to be read. @return   also the failure of the last
/// time
template <class Manager, file_folder Folder>
[[nodiscard]] error_text supersede(Manager& m, Folder& folder, std::uint64_t newest, const save_options& options)
{
  const error_text failure = finish_save(m);
  if constexpr (shareable_folder<Folder>)
    if (options.check_older && options.keep > 1) {
      older_check_of(m).start(folder, newest, options.keep);
      return failure;
    }
  const error_text now = remove_superseded(folder, newest, options);
  return now.view().empty() ? failure : now;
}

}  // namespace detail

/// Saves everything that a manager needs to go on: values or their masters, every list, and registered states.
///
/// Files are safetensors, which other programs open.
///
/// - When this returns, the new generation is there, whole, also after a power cut. Until then, and where this throws,
///   the older generations are untouched.
/// - Then generations older than the newest `keep` whole ones are removed. With `check_older` a thread reads the ones
///   that stay, each once, and removes the others: `finish_save` waits for it. So do the next save, a load, and the end
///   of the manager. Where the removal fails, the save has succeeded: `finish_save` or the next result says so.
/// - Reading the tensors may move chunks, so the next iteration may plan again.
/// - A folder is for one training: a folder with generations of another training is refused.
///
/// Use:
///
///     io::posix_folder folder{"runs/a"};
///     checkpoint::save(m, folder);
///
/// @throws io_error        the folder did not take all bytes, or another saver has it; training may go on
/// @throws usage_error     inside an iteration, or with gradients that no step has used
/// @throws config_error    two tensors have one name, or names are more than a loader takes; a folder of another
///   training; nothing was written
/// @throws out_of_memory   the host has no room to read a tensor, on a device that the calling thread cannot read;
///   std::bad_alloc   none for names
/// @throws device_error    a tensor could not be copied
/// @complexity             one pass over the bytes; one over each older generation that stays where another goes, on a
///   thread, or before it returns in a folder that is no shareable_folder; memory for the names
template <class Manager, file_folder Folder>
saved_generation save(Manager& m, Folder& folder, const save_options& options = {})
{
  expects(options.keep > 0 && options.file_size.count() > 0,
          "a checkpoint that keeps no generation, or files without bytes");
  m.content().expect_states();
  const std::vector<model_item> items = content_of(m);
  const save_plan plan = plan_of(items, options.file_size, rest_of(m, items));
  detail::older_check_of(m).wait();
  [[maybe_unused]] const auto held = io::lock_of(folder);
  manifest rest = detail::begin_save(m, folder, plan);
  generation_writer<Folder> writer{folder, rest.generation};
  model_writer{m, plan}.write(writer);
  m.content().belongs_to(rest.run);
  writer.commit(std::move(rest));
  return {writer.generation(), writer.files(), bytes{writer.size()},
          detail::supersede(m, folder, writer.generation(), options)};
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
