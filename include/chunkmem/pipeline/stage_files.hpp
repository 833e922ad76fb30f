// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/agreed_generation.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_options.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

namespace detail {

/// The generations in the folders of all stages, known to every stage.
///
///     const stage_generations all = folders.find();
///     if (!all.common().empty()) load(all.common().front());
class stage_generations {
 public:
  /// @param by_rank   newest first, for each rank of the stages   @param stage_of   the stage of each rank
  stage_generations(std::vector<std::vector<std::uint64_t>> by_rank, std::vector<std::uint32_t> stage_of)
      : by_rank_{std::move(by_rank)}, stage_of_{std::move(stage_of)}
  {
  }

  /// Generations that at least one stage has, newest first.
  [[nodiscard]] std::vector<std::uint64_t> of_any() const
  {
    std::vector<std::uint64_t> all;
    for (const auto& own : by_rank_) all.insert(all.end(), own.begin(), own.end());
    std::ranges::sort(all, std::greater{});
    const auto rest = std::ranges::unique(all);
    all.erase(rest.begin(), rest.end());
    return all;
  }
  /// Generations that each stage has, newest first.
  [[nodiscard]] std::vector<std::uint64_t> common() const
  {
    std::vector<std::uint64_t> all = of_any();
    std::erase_if(all, [&](std::uint64_t number) { return lacking(number).has_value(); });
    return all;
  }
  /// Generations that are newer than all common ones, newest first.
  [[nodiscard]] std::vector<std::uint64_t> newer() const
  {
    const std::vector<std::uint64_t> shared = common();
    std::vector<std::uint64_t> all = of_any();
    std::erase_if(all, [&](std::uint64_t number) { return !shared.empty() && number <= shared.front(); });
    return all;
  }
  /// The save of this generation is known to be incomplete.
  void add_unfinished(std::uint64_t number) { unfinished_.push_back(number); }
  [[nodiscard]] bool is_unfinished(std::uint64_t number) const
  {
    return std::ranges::find(unfinished_, number) != unfinished_.end();
  }
  /// The first stage without this generation.
  [[nodiscard]] std::optional<std::uint32_t> lacking(std::uint64_t number) const
  {
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank)
      if (std::ranges::find(by_rank_[rank], number) == by_rank_[rank].end()) return stage_of_[rank];
    return {};
  }
  /// Folders of one training may differ by an incomplete save, and by at most one more generation newer than all common
  /// ones, of which a manifest was lost. Without a common generation, they may differ by the first save alone:
  /// otherwise a new training would replace their generations. @throws config_error   they differ by more
  void expect_together() const
  {
    const std::vector<std::uint64_t> shared = common();
    const std::uint64_t newest = shared.empty() ? 0 : shared.front();
    const std::ptrdiff_t most_apart = shared.empty() ? 0 : 1;
    const auto differs = [&](std::uint64_t it) { return it > newest && !is_unfinished(it); };
    if (std::ranges::all_of(by_rank_,
                            [&](const auto& own) { return std::ranges::count_if(own, differs) <= most_apart; }))
      return;
    const auto newest_of = [&](std::size_t rank) { return by_rank_[rank].empty() ? 0 : by_rank_[rank].front(); };
    std::size_t least = 0;
    std::size_t most = 0;
    for (std::size_t rank = 1; rank < by_rank_.size(); ++rank) {
      if (newest_of(rank) < newest_of(least)) least = rank;
      if (newest_of(rank) > newest_of(most)) most = rank;
    }
    throw config_error{error_text{} << "chunkmem: the folder of stage " << stage_of_[most] << " has generation "
                                    << newest_of(most) << ", and that of stage " << stage_of_[least]
                                    << " has generation " << newest_of(least) << (newest_of(least) == 0 ? ": none" : "")
                                    << " (give each stage the folder that it had, with all its files, or an empty one "
                                       "to all of them)"};
  }

 private:
  std::vector<std::vector<std::uint64_t>> by_rank_;
  std::vector<std::uint32_t> stage_of_;
  std::vector<std::uint64_t> unfinished_;
};

[[nodiscard]] inline std::string lacking_text(std::uint32_t stage)
{
  return "stage " + std::to_string(stage) + " does not have it: a save that did not end on all stages";
}

/// The end of a load without a generation. @param has_own   all stages have incomplete ones
[[noreturn]] inline void refuse_folders(const std::vector<checkpoint::skipped_generation>& skipped, bool has_own)
{
  if (skipped.empty())
    throw io_error{
        "there is no checkpoint in this folder, nor in those of other stages (name others, or allow a fresh "
        "start)"};
  throw io_error{error_text{} << "chunkmem: no generation is complete on all stages; the newest, number "
                              << skipped.front().number << ": " << skipped.front().why
                              << (has_own ? " (check the disk of that stage, or start again in empty folders)"
                                          : " (allow a fresh start, or restore the folder of that stage)")};
}

/// The folders of all stages of a pipeline, each accessed by its own stage. Every stage makes the same calls. Replicas
/// of a stage share a folder, which the first of them reads.
///
///     stage_folders folders{here.all(), m, folder};
///     const stage_generations known = folders.find();
/// @tparam Folder   const for a load
template <class Ranks, class Model, class Folder>
  requires file_folder<std::remove_const_t<Folder>>
class stage_folders {
 public:
  /// @throws comm_error
  stage_folders(Ranks& stages, Model& model, Folder& folder) : stages_{stages}, content_{model}, folder_{folder}
  {
    const std::uint64_t own = word_of_first(index_of(stages.rank()));
    const std::vector<std::uint64_t> first = collective::words_of_all(stages, own);  // replica of each rank's stage
    std::vector<std::uint64_t> all = first;
    std::ranges::sort(all);
    const auto rest = std::ranges::unique(all);
    all.erase(rest.begin(), rest.end());
    for (const std::uint64_t it : first)
      stage_of_.push_back(static_cast<std::uint32_t>(std::ranges::find(all, it) - all.begin()));
    place_.number = stage_of_[index_of(stages.rank())];
    place_.count = static_cast<std::uint32_t>(all.size());
  }

  /// Checks that all stages have one number of the training, which distinguishes their folders from those of other
  /// trainings. The first save draws it. @throws config_error   on every stage: they continue two trainings
  void agree_on_run()
  {
    const std::vector<std::uint64_t> known = collective::words_of_all(stages_, word_of_first(content().run()));
    expect_equal_runs(known, "goes on with", " (load all stages, or none of them, before the save)");
    if (known[0] != 0) return;
    std::uint64_t drawn = 0;
    collective::all_or_none(stages_, [&] {
      if (index_of(stages_.rank()) == 0) drawn = checkpoint::draw_run();
    });
    drawn = word_of_first(collective::words_of_all(stages_, drawn)[0]);
    content().belongs_to(drawn);
  }
  /// @param with_foreign   see all_generations_in @throws io_error   on every stage; comm_error
  [[nodiscard]] stage_generations find(bool with_foreign = false)
  {
    std::vector<std::uint64_t> own;
    collective::all_or_none(stages_,
                            [&] { own = checkpoint::generations_of_first(content_.ranks(), folder_, with_foreign); });
    const std::vector<std::uint64_t> counts = collective::words_of_all(stages_, own.size());
    own.resize(static_cast<std::size_t>(std::ranges::max(counts)));
    std::vector<std::uint64_t> all(own.size() * stages_.ranks());
    if (!own.empty()) stages_.exchange(own, all);
    std::vector<std::vector<std::uint64_t>> by_rank;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * own.size());
      by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(counts[rank]));
    }
    stage_generations found{std::move(by_rank), stage_of_};
    if (with_foreign) return found;
    for (const std::uint64_t number : found.newer())
      if (is_claimed_by_all(number)) found.add_unfinished(number);
    return found;
  }
  /// A number that no file in the folders has. @throws as checkpoint::next_generation, on every stage; comm_error
  [[nodiscard]] std::uint64_t next_number()
  {
    for (std::uint64_t least = 1;;) {
      std::uint64_t own = 0;
      collective::all_or_none(stages_, [&] {
        own = word_of_first(with_first([&] { return checkpoint::next_generation(folder_, least); }));
      });
      const std::vector<std::uint64_t> all = collective::words_of_all(stages_, own);
      least = std::ranges::max(all);
      if (std::ranges::min(all) == least) return least;
    }
  }
  /// Checks that the newest generation in this folder is of this stage, if it has the number of a stage. @throws
  /// config_error   another stage
  void expect_own_stage()
  {
    with_first([&] {
      for (const std::uint64_t number : checkpoint::generations_in(folder_))
        if (const std::optional<checkpoint::manifest> found =
                checkpoint::readable_manifest(folder_, number, [](auto) {})) {
          expect_place(number, *found);
          break;
        }
      return 0;
    });
  }
  /// Removes generations of a save that is known to be incomplete: generations of this training that are newer than the
  /// common ones. Without a common generation it was a first save, with another number of the training. Its claims
  /// stay, so that an interrupted removal can be continued. @pre   known.expect_together()
  void remove_newer(const stage_generations& known)
  {
    const std::vector<std::uint64_t> shared = known.common();
    with_first([&] {
      std::vector<std::uint64_t> newer = checkpoint::generations_in(folder_);
      std::erase_if(newer, [&](std::uint64_t it) {
        if (!known.is_unfinished(it)) return true;
        if (shared.empty()) return false;
        const std::optional<checkpoint::manifest> found = checkpoint::readable_manifest(folder_, it, [](auto) {});
        return found && found->run != content().run();
      });
      checkpoint::remove_generations(folder_, newer);
      return 0;
    });
  }
  /// Removes files of incomplete saves. Where replicas share the folder, a process of a dead job may still write some:
  /// these are removed when a new number is claimed. @pre   the folder is locked
  void remove_leftovers()
  {
    if constexpr (checkpoint::is_manager<Model>) (void)checkpoint::remove_leftovers(folder_);
  }
  /// The oldest of the newest `keep` generations that are complete on all stages; 0 where all stay.
  /// @param checks   reads them   @param known   the present generations   @param newest   was just written and is
  ///   complete
  /// @throws comm_error
  [[nodiscard]] std::uint64_t oldest_kept(std::uint32_t keep, bool checks, const stage_generations& known,
                                          std::uint64_t newest = 0)
  {
    const std::vector<std::uint64_t> shared = known.common();
    if (shared.size() <= keep) return 0;
    std::uint32_t whole = 0;
    for (const std::uint64_t it : shared) {
      if (!checks || it == newest || is_whole(it)) ++whole;
      if (whole == keep) return it;
    }
    return 0;
  }
  /// @throws io_error   on the replicas of this stage: some generations may remain
  void remove_older_than(std::uint64_t oldest)
  {
    with_first([&] {
      std::vector<std::uint64_t> old = checkpoint::generations_in(folder_);
      std::erase_if(old, [&](std::uint64_t it) { return it >= oldest; });
      checkpoint::remove_generations(folder_, old);
      return 0;
    });
  }
  /// The stage and save that the manifests of a save record. @param files   of this rank @throws comm_error
  template <class Files>
  [[nodiscard]] checkpoint::stored_stage place_of_save(const Files& files)
  {
    collective::fingerprint own;
    for (const checkpoint::stored_file& it : files) {
      own.add(it.size);
      for (const std::uint64_t sum : it.sums) own.add(sum);
    }
    collective::fingerprint stage = own;
    if constexpr (!checkpoint::is_manager<Model>) {
      stage = {};
      for (const std::uint64_t it : collective::words_of_all(content_.ranks(), own.value())) stage.add(it);
    }
    collective::fingerprint all;
    for (const std::uint64_t it : collective::words_of_all(stages_, stage.value())) all.add(it);
    return {place_.number, place_.count, all.value()};
  }
  /// Checks that all stages opened a generation of one training and one save, each its own. @throws config_error   on
  /// every stage: they did not
  void expect_one_save(std::uint64_t number, const checkpoint::manifest& own)
  {
    expect_equal_runs(collective::words_of_all(stages_, own.run), "has a folder of",
                      " (give each stage its folder of one training)");
    collective::all_or_none(stages_, [&] { expect_place(number, own); });
    const std::vector<std::uint64_t> saves = collective::words_of_all(stages_, own.stage ? own.stage->save : 0);
    for (std::size_t rank = 1; rank < saves.size(); ++rank)
      if (saves[rank] != saves[0])
        throw config_error{error_text{} << "chunkmem: generation " << number << " of stage " << stage_of_[0]
                                        << " and that of stage " << stage_of_[rank]
                                        << " are not of one save, though of one training (give each stage the folder "
                                           "that it had, and no copy of an older one)"};
  }

 private:
  /// The word of the first replica of this stage.
  [[nodiscard]] std::uint64_t word_of_first(std::uint64_t mine)
  {
    return collective::word_of_first(content_.ranks(), mine);
  }
  /// Calls `work()` on the first replica of this stage. All replicas throw its error. @return   its result there
  template <class Work>
  auto with_first(Work work) -> decltype(work())
  {
    decltype(work()) given{};
    collective::all_or_none(content_.ranks(), [&] {
      if (index_of(content_.ranks().rank()) == 0) given = work();
    });
    return given;
  }
  [[nodiscard]] auto& content() { return content_.manager().content(); }
  /// Every stage has the claim of a save. The first claim is removed when all stages have the generation: while one
  /// lacks it, the save is incomplete. @throws as find
  [[nodiscard]] bool is_claimed_by_all(std::uint64_t number)
  {
    std::uint64_t own = 0;
    collective::all_or_none(stages_, [&] {
      own = word_of_first(with_first([&] {
        const std::vector<std::string> names = folder_.names();
        return std::uint64_t{std::ranges::find(names, checkpoint::detail::claim_name(number)) != names.end()};
      }));
    });
    return collective::least_word(stages_, own) != 0;
  }
  [[nodiscard]] bool is_whole(std::uint64_t number)
  {
    bool is = false;
    try {
      is = checkpoint::is_whole(content_.ranks(), folder_, number);
    } catch (const comm_error&) {
      throw;
    } catch (const std::exception&) {  // other stages wait for an answer: not proven
    }
    return collective::least_word(stages_, is ? 1 : 0) != 0;
  }
  void expect_place(std::uint64_t number, const checkpoint::manifest& found) const
  {
    if (!found.stage || (found.stage->number == place_.number && found.stage->count == place_.count)) return;
    throw config_error{error_text{} << "chunkmem: this is stage " << place_.number << " of " << place_.count
                                    << ", and generation " << number << " of its folder is of stage "
                                    << found.stage->number << " of " << found.stage->count
                                    << " (give each stage the folder that it had; load_from_stages loads those of "
                                       "another number of stages)"};
  }
  /// @throws config_error   on every stage
  void expect_equal_runs(const std::vector<std::uint64_t>& all, std::string_view what, std::string_view remedy) const
  {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        throw config_error{error_text{} << "chunkmem: two trainings are mixed: stage " << stage_of_[0] << " " << what
                                        << " run " << all[0] << ", and stage " << stage_of_[rank] << " " << what
                                        << " run " << all[rank] << remedy};
  }

  Ranks& stages_;
  checkpoint::content_of_model<Model> content_;  // of this stage
  Folder& folder_;
  std::vector<std::uint32_t> stage_of_;  // each rank
  checkpoint::stored_stage place_;
};

/// Does late updates of replicas before stages exchange anything else. A replica whose update fails makes the call
/// again, alone. The other replicas wait for this replica in their gathers. A manager does its updates later: all
/// stages throw the error of one.
/// @param wanted   `wanted(manager)`: the updates have to be done. Where no replica wants them, they wait on
/// @throws usage_error   on every stage: the object that runs the updates has ended on one stage; and the errors of the
///   updates
template <class Ranks, class Model, class Wanted>
void finish_updates_of_replicas(Ranks& stages, Model& model, Wanted wanted)
{
  checkpoint::content_of_model<Model> content{model};
  content.finish_updates_unless([&] {
    const bool is_wanted = wanted(content.manager());
    collective::all_or_none(stages, [&] {
      if (is_wanted) content.manager().updates().pending().expect_served();
    });
    return !is_wanted;
  });
}

}  // namespace detail

/// Saves all stages of a pipeline, each into a folder of its own. Every stage calls it after the same batch.
///
/// A generation has one number on all stages. If a stage cannot save, no stage has the generation, and the older ones
/// stay, except those that `keep_while_writing` removes. Older ones are removed when all stages have the new one,
/// except the newest `options.keep` that are complete on every stage.
///
/// After a power cut some stages may have one generation more than others: `load_stages` skips it, and the next save
/// removes it. The same holds for the first save of a training, which counts when all stages have it. Claims of all
/// stages prove that the save is incomplete. A missing manifest without these claims means a lost file: the generation
/// of the other stages stays until newer ones replace it, and folders without a common generation are refused.
///
///     io::posix_folder folder{"runs/a/stage-" + std::to_string(here.stage())};
///     pipeline::save_stages(here.all(), m, folder);
///
/// @param stages    a communicator of all stages; with replicas, of the stages of one replica, or of all
/// @throws as checkpoint::save, on every stage the error of the first stage that failed; comm_error
/// @throws out_of_memory, device_error   on one replica alone: a late update failed there. This replica calls again,
///   and the other replicas wait for it
/// @throws config_error   on every stage: folders of two trainings, folders of other stages, or folders that are more
///   than one generation apart
/// @complexity   as checkpoint::save; and an exchange of a few words, which waits for the slowest stage. With
///   check_older, older generations that stay are read before it returns
template <class Ranks, class Manager, file_folder Folder>
checkpoint::saved_generation save_stages(Ranks& stages, Manager& m, Folder& folder,
                                         const checkpoint::save_options& options = {})
{
  detail::finish_updates_of_replicas(stages, m, [](auto&) { return true; });
  collective::agree_on(stages, checkpoint::keeping_of(options),
                       "stages have different options for older checkpoints (give all of them the same keep, "
                       "keep_while_writing and check_older)");
  detail::stage_folders folders{stages, m, folder};
  checkpoint::model_save saving{m, folder, options};
  collective::all_or_none(stages, [&] {
    saving.prepare();
    saving.wait_for_last();
    saving.open();
  });
  folders.agree_on_run();
  const detail::stage_generations before = folders.find();
  before.expect_together();
  collective::all_or_none(stages, [&] {
    folders.expect_own_stage();
    folders.remove_newer(before);
  });
  collective::all_or_none(stages, [&] { folders.remove_leftovers(); });  // after that: they prove the incomplete save
  const std::uint64_t number = folders.next_number();
  try {
    collective::all_or_none(stages, [&] {
      saving.begin(number);
      if (saving.part().generation() != number)
        throw io_error{"another program writes files in the folder of a stage (name a folder for this training)"};
    });
    if (options.keep_while_writing > 0) {
      const std::uint64_t oldest = folders.oldest_kept(options.keep_while_writing, true, folders.find());
      collective::all_or_none(stages, [&] { folders.remove_older_than(oldest); });
    }
    collective::all_or_none(stages, [&] { saving.write(); });
  } catch (const comm_error&) {
    throw;  // others may continue to their commit: the claim records the save
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

/// Loads the newest generation that is complete on every stage. Every stage calls it.
///
/// - The stages agree on a generation when all of them have read it: where one finds damage, all load the next older
///   one. Where none is left, each gets the error, and tensors have no bytes on any stage.
/// - The number of stages, their parts and the versions of the weights are those of the save. A folder of another
///   training, of another stage or of another save of one number is refused. Generations of version 0.1 have no number
///   of their stage and save, so only their training is compared.
/// - `skipped` also has the generations that only some stages have, from an incomplete save.
///
/// @return   with the number 0 after a fresh start, if options allow it: the stages have no generation in common, or
///   the first save did not end on all of them. `rounded` is of this stage
/// @throws as checkpoint::load, on every stage the error of the first stage that failed; comm_error; for late updates
///   that a save waits for, as save_stages
/// @throws config_error   on every stage: folders of two trainings, of other stages, or that are more than one
///   generation apart
/// @complexity   as checkpoint::load, and exchanges of a few words
template <class Ranks, class Manager, file_folder Folder, executor Executor = const serial>
checkpoint::loaded_generation load_stages(Ranks& stages, Manager& m, const Folder& folder,
                                          const checkpoint::load_options& options = {},
                                          Executor& workers = on_this_thread)
{
  detail::finish_updates_of_replicas(stages, m,
                                     [](auto& own) { return own.content().late_updates().is_read_behind(); });
  collective::agree_on(stages, options.newest, "stages have different values of newest (give all of them the same)");
  collective::agree_on(
      stages, options.allow_fresh_start ? 1 : 0,
      "some stages allow a fresh start, and others do not (give all of them the same allow_fresh_start)");
  collective::agree_on(stages, options.allow_overflow ? 1 : 0,
                       "some stages let numbers become infinite, and others do not (give all of them the same "
                       "allow_overflow)");
  collective::agree_on(stages, checkpoint::detail::word_of_patterns(options.begins_anew, options.leaves_out),
                       "stages have different begins_anew or leaves_out (give all of them the same begins_anew and "
                       "leaves_out)");
  checkpoint::model_load loading{m, folder, options};
  collective::all_or_none(stages, [&] { loading.prepare(); });
  detail::stage_folders folders{stages, m, folder};
  const detail::stage_generations own = folders.find();
  own.expect_together();  // a save would refuse them later
  // Before tensors are looked up: swapped folders would be reported as a wrong model.
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
      folders.expect_one_save(it, loading.stored());
      collective::all_or_none(stages, [&] { loading.fill(workers); });
      loading.end();
    };
    if (!checkpoint::try_newest({number}, found.skipped, attempt)) continue;
    found.number = number;
    found.rounded = loading.rounded();
    found.names = loading.names();
    return found;
  }
  const bool has_own = !checkpoint::generations_up_to(options.newest, own.common()).empty();
  if (!options.allow_fresh_start || has_own) detail::refuse_folders(found.skipped, has_own);
  return found;
}

}  // namespace pipeline

}  // namespace chunkmem::inline v0
