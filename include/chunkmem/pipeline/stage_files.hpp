// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/pipeline/stage_folders.hpp>

#include <cstdint>
#include <exception>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Saves all stages of a pipeline, each into a folder of its own. Every stage calls it after the same batch.
///
/// A generation has one number on all stages. If a stage cannot save, no stage has the generation, and the older ones
/// are untouched, but for those that `keep_while_writing` lets go. Older ones go when all stages have the new one, and
/// only such as are not among the newest `options.keep` that are whole on every stage.
///
/// After a power cut some stages may have one generation more than others: `load_stages` passes it over, and the next
/// save removes it. So it is with the first save of a training, which counts when all stages have it. Claims of all
/// stages prove that the save did not end. Where one lacks a manifest without them, the file was lost: the generation
/// of the others stays until newer ones replace it, and folders without any generation in common are refused.
///
///     io::posix_folder folder{"runs/a/stage-" + std::to_string(here.stage())};
///     pipeline::save_stages(here.all(), m, folder);
///
/// @param stages    a communicator of all stages; with replicas, of those of one replica, or of all
/// @throws as checkpoint::save, on every stage the error of the first stage that failed; comm_error
/// @throws config_error   on every stage: folders of two trainings, folders of other stages, or folders that are more
///   than one generation apart
/// @complexity   as checkpoint::save; and an exchange of a few words, which waits for the slowest stage. Older
///   generations that stay are read before it returns
template <class Ranks, class Manager, file_folder Folder>
checkpoint::saved_generation save_stages(Ranks& stages, Manager& m, Folder& folder,
                                         const checkpoint::save_options& options = {})
{
  collective::agree_on(stages, checkpoint::keeping_of(options),
                       "stages keep other numbers of checkpoints, or check others (give all of them the same keep, "
                       "keep_while_writing and check_older)");
  detail::stage_folders folders{stages, m, folder};
  auto saving = save_of(m, folder, options);  // unqualified: that of a sharded_model is found as well
  collective::all_or_none(stages, [&] {
    saving.prepare();
    saving.open();
  });
  folders.agree_on_run();
  const detail::stage_generations before = folders.find();
  before.expect_together();
  collective::all_or_none(stages, [&] {
    folders.expect_own_stage();
    folders.remove_newer(before);
  });
  collective::all_or_none(stages, [&] { folders.remove_leftovers(); });  // behind that: they say what it was
  const std::uint64_t number = folders.next_number();
  try {
    collective::all_or_none(stages, [&] {
      saving.begin(number);
      if (saving.part().generation() != number)
        throw io_error{
            "chunkmem: somebody else makes files in the folder of a stage (name a folder for this training)"};
    });
    if (options.keep_while_writing > 0) {
      const std::uint64_t oldest = folders.oldest_kept(options.keep_while_writing, true, folders.find());
      collective::all_or_none(stages, [&] { folders.remove_older_than(oldest); });
    }
    collective::all_or_none(stages, [&] { saving.write(); });
  } catch (const comm_error&) {
    throw;  // others may go on to their commit: the claim says that there was a save
  } catch (const error&) {
    saving.unclaim();
    throw;
  }
  const checkpoint::stored_stage place = folders.place_of_save(saving.part().files());
  try {
    collective::all_or_none(stages, [&] { saving.commit(place); });
  } catch (const comm_error&) {
    throw;
  } catch (...) {
    saving.withdraw();
    throw;
  }
  checkpoint::saved_generation result = saving.saved();
  try {
    const bool checks = options.check_older && options.keep > 1;
    if (const std::uint64_t oldest = folders.oldest_kept(options.keep, checks, folders.find(), result.number);
        oldest != 0)
      folders.remove_older_than(oldest);
  } catch (const comm_error&) {
    throw;
  } catch (const std::exception& failed) {
    result.clean_up << failed.what();
  }
  saving.unclaim();
  return result;
}

/// Loads the newest generation that every stage has whole. Every stage calls it.
///
/// - The stages agree on a generation when all of them have read it: where one finds damage, all load the next older
///   one. Where none is left, each gets the error, and no tensor of any stage has bytes.
/// - The number of stages, their parts and the versions of the weights are those of the save. A folder of another
///   training, of another stage or of another save of one number is refused. Generations of version 0.1 do not say of
///   which stage and save they are, so of these the training is compared alone.
/// - `skipped` has the generations that only some stages have, too: those of a save that did not end.
///
/// @return   with the number 0 after a fresh start, which options allow: the stages have no generation in common, or
///   the first save did not end on all of them. `rounded` is of this stage
/// @throws as checkpoint::load, on every stage the error of the first stage that failed; comm_error
/// @throws config_error   on every stage: folders of two trainings, of other stages, or that are more than one
///   generation apart
/// @complexity   as checkpoint::load, and exchanges of a few words
template <class Ranks, class Manager, file_folder Folder, executor Executor = const serial>
checkpoint::loaded_generation load_stages(Ranks& stages, Manager& m, const Folder& folder,
                                          const checkpoint::load_options& options = {},
                                          Executor& workers = on_this_thread)
{
  collective::agree_on(stages, options.newest, "stages were given other values of newest (give all of them the same)");
  collective::agree_on(
      stages, options.allow_fresh_start ? 1 : 0,
      "some stages allow a fresh start, and others do not (give all of them the same allow_fresh_start)");
  collective::agree_on(stages, options.allow_overflow ? 1 : 0,
                       "some stages let numbers become infinite, and others do not (give all of them the same "
                       "allow_overflow)");
  auto loading = load_of(m, folder, options);  // unqualified: that of a sharded_model is found as well
  collective::all_or_none(stages, [&] { loading.prepare(); });
  detail::stage_folders folders{stages, m, folder};
  const detail::stage_generations own = folders.find();
  own.expect_together();  // a save would refuse them later
  // Before tensors are looked up: swapped folders would be told as a wrong model.
  collective::all_or_none(stages, [&] { folders.expect_own_stage(); });
  const detail::stage_generations all = folders.find(true);
  checkpoint::loaded_generation found;
  for (const std::uint64_t number : checkpoint::generations_up_to(options.newest, all.of_any())) {
    if (const auto lacking = all.lacking(number)) {
      found.skipped.push_back({number, detail::lacking_text(*lacking)});
      continue;
    }
    const auto attempt = [&](std::uint64_t it) {
      collective::all_or_none(stages, [&] { loading.open(it); });
      folders.expect_one_save(it, loading.content());
      collective::all_or_none(stages, [&] { loading.fill(workers); });
      loading.end();
    };
    if (!checkpoint::try_newest({number}, found.skipped, attempt)) continue;
    found.number = number;
    found.rounded = loading.rounded();
    return found;
  }
  const bool has_own = !checkpoint::generations_up_to(options.newest, own.common()).empty();
  if (!options.allow_fresh_start || has_own) detail::refuse_folders(found.skipped, has_own);
  return found;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
