// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/run_number.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

namespace detail {

/// Stages of one training are at most one generation apart. @return   the newest that every stage has
/// @throws config_error   on every stage: they are not; comm_error
template <class Ranks>
[[nodiscard]] std::uint64_t common_generation(Ranks& stages, std::uint64_t newest)
{
  const std::vector<std::uint64_t> all = collective::words_of_all(stages, newest);
  const auto [least, most] = std::ranges::minmax(all);
  if (most - least > 1 || (least == 0 && most != 0))
    throw config_error{error_text{} << "chunkmem: the folder of one stage has generation " << most
                                    << ", and that of another has generation " << least << (least == 0 ? ": none" : "")
                                    << " (give each stage the folder that it had, or an empty one to all of them)"};
  return least;
}

/// All stages save under one number of the training, which tells their folders from those of other trainings. Replicas
/// of a stage take the number of the first replica.
template <class Ranks, class Manager>
void agree_on_run(Ranks& stages, Manager& m)
{
  auto& content = [&]() -> auto& {
    if constexpr (requires { m.shares(); })
      return m.shares().content();
    else
      return m.content();
  }();
  const std::vector<std::uint64_t> known = collective::words_of_all(stages, content.run());
  if (std::ranges::max(known) != 0) return;
  std::uint64_t drawn = 0;
  collective::all_or_none(stages, [&] {
    if (index_of(stages.rank()) == 0) drawn = checkpoint::draw_run();
  });
  drawn = collective::words_of_all(stages, drawn)[0];
  if constexpr (requires { m.ranks(); })
    if (index_of(m.ranks().rank()) != 0) return;
  content.belongs_to(drawn);
}

/// Of those that have a manifest, whole or not.
template <file_folder Folder>
[[nodiscard]] std::uint64_t newest_in(const Folder& folder)
{
  const std::vector<std::uint64_t> own = checkpoint::generations_in(folder);
  return own.empty() ? 0 : own.front();
}

/// Removes generations that other stages do not have, and files of saves that did not end. The next save then has one
/// number on all stages.
template <file_folder Folder>
void remove_newer(Folder& folder, std::uint64_t newest)
{
  bool has_removed = false;
  for (const std::uint64_t number : checkpoint::generations_in(folder))
    if (number > newest) has_removed = folder.remove(checkpoint::detail::manifest_name(number)) || has_removed;
  if (has_removed) folder.sync();
  (void)checkpoint::remove_leftovers(folder);
}

}  // namespace detail

/// Saves all stages of a pipeline, each into a folder of its own. Every stage calls it after the same batch.
///
/// A generation has one number on all stages. If a stage cannot save, no stage has the generation. After a power cut
/// some stages may have one generation more than others: `load_stages` passes it over, and the next save removes it.
///
///     io::posix_folder folder{"runs/a/stage-" + std::to_string(here.stage())};
///     pipeline::save_stages(here.all(), m, folder);
///
/// @param stages    a communicator of all stages   @param options   keep at least 2: stages may be one apart
/// @throws as checkpoint::save, on every stage the error of the first stage that failed; comm_error
/// @throws config_error   folders have other generations than those of other stages
/// @complexity   as checkpoint::save; and an exchange of a few words, which waits for the slowest stage
template <class Ranks, class Manager, file_folder Folder>
checkpoint::saved_generation save_stages(Ranks& stages, Manager& m, Folder& folder,
                                         const checkpoint::save_options& options = {})
{
  std::uint64_t newest = 0;
  collective::all_or_none(stages, [&] {
    expects(options.keep > 1, "stages that keep one generation alone: after a power cut they may have none in common");
    newest = detail::newest_in(folder);
  });
  detail::agree_on_run(stages, m);
  const std::uint64_t common = detail::common_generation(stages, newest);
  collective::all_or_none(stages, [&] { detail::remove_newer(folder, common); });
  std::optional<checkpoint::saved_generation> saved;  // unqualified: the save of a sharded_model is found as well
  try {
    collective::all_or_none(stages, [&] { saved = save(m, folder, options); });
  } catch (const error&) {
    if (saved) detail::remove_newer(folder, saved->number - 1);
    throw;
  }
  return *saved;
}

/// Loads the newest generation that every stage has whole. Every stage calls it.
///
/// The number of stages, their parts and the versions of the weights are those of the save.
/// @return   with the number 0 after a fresh start, which options allow: the stages have no whole generation in common
/// @throws as checkpoint::load, on every stage the error of the first stage that failed; comm_error
/// @throws config_error   folders have generations that are more than one apart
/// @complexity   as checkpoint::load, and one pass over the bytes of a generation to see whether it is whole
template <class Ranks, class Manager, file_folder Folder, executor Executor = const serial>
checkpoint::loaded_generation load_stages(Ranks& stages, Manager& m, const Folder& folder,
                                          const checkpoint::load_options& options = {},
                                          Executor& workers = on_this_thread)
{
  collective::agree_on(stages, options.newest, "stages were given other values of newest (give all of them the same)");
  std::uint64_t newest = 0;
  collective::all_or_none(stages, [&] { newest = detail::newest_in(folder); });
  (void)detail::common_generation(stages, newest);  // a save would refuse them later
  checkpoint::load_options up_to = options;
  std::uint64_t whole = 0;
  do {
    collective::all_or_none(stages, [&] {
      std::vector<checkpoint::skipped_generation> skipped;
      whole = 0;
      (void)checkpoint::try_newest(
          checkpoint::generations_up_to(up_to.newest, checkpoint::all_generations_in(folder)), skipped,
          [&](std::uint64_t number) {
            whole = checkpoint::check_generation(folder, number, options.limits).generation().content.generation;
          });
      if (whole == 0 && !options.allow_fresh_start) (void)load(m, folder, up_to, workers);  // says why
    });
    const std::vector<std::uint64_t> all = collective::words_of_all(stages, whole);
    up_to.newest = std::ranges::min(all);
    if (std::ranges::max(all) == up_to.newest) break;
  } while (up_to.newest != 0);
  checkpoint::loaded_generation found;
  if (up_to.newest == 0) return found;  // a fresh start
  collective::all_or_none(stages, [&] { found = load(m, folder, up_to, workers); });
  return found;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
