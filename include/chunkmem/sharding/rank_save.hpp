// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/sharding/older_generations.hpp>
#include <chunkmem/sharding/own_items.hpp>
#include <chunkmem/sharding/rank_content.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/stored_files.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// One save of one rank, step by step: see checkpoint::save. Every rank makes the same calls in the same order.
///
///     rank_save save{model, folder, options};
///     save.prepare(), save.begin(), save.write(), save.commit();
///     const checkpoint::saved_generation saved = save.finish();
template <class Model, file_folder Folder>
class rank_save {
 public:
  rank_save(Model& model, Folder& folder, const checkpoint::save_options& options)
      : model_{model}, folder_{folder}, options_{options}, older_{model.ranks(), folder, options}, manifest_{folder}
  {
  }

  /// What is to be written is agreed on; nothing is written yet.
  void prepare()
  {
    model_.finish_updates();  // units are gathered in it, by all ranks
    collective::all_or_none(ranks(), [&] {
      expects(options_.keep > 0 && options_.file_size.count() > 0 && options_.round.count() > 0,
              "a checkpoint that keeps no generation, or files or rounds without bytes");
      model_.settle();
      model_.shares().content().expect_states();
      content_.emplace(model_);
      model_.expect_no_gradients();
      checkpoint::prepare_to_save(model_.shares());
    });
    content_->agree_on_names();
    model_.agree_on_model();
    model_.agree_on_values();
    agree_on_keeping();
    const std::vector<std::string> empty = share_own_items(model_, *content_);
    collective::all_or_none(ranks(), [&] { plan(empty); });
  }
  /// Others are kept out of the folder: for stages, which look into it before they begin.
  void open()
  {
    collective::all_or_none(ranks(), [&] { lock(); });
  }
  /// The folder is clean, and this rank knows the number of the generation and of its first file. @param least   number
  void begin(std::uint64_t least = 1)
  {
    std::uint64_t run = model_.shares().content().run();
    collective::all_or_none(ranks(), [&] {
      if (is_first()) {
        lock();
        checkpoint::expect_own_folder(folder_, run);
        if (run == 0) run = checkpoint::draw_run();
      }
    });
    const std::vector<std::uint64_t> runs = collective::words_of_all(ranks(), run);
    std::uint64_t number = 0;
    collective::all_or_none(ranks(), [&] {
      if (model_.shares().content().run() != 0 && run != runs[0])
        throw config_error{error_text{} << "chunkmem: ranks go on with other trainings: here run " << run
                                        << ", rank 0 has " << runs[0] << " (load the same checkpoint on every rank)"};
    });
    collective::all_or_none(ranks(), [&] {
      if (!is_first()) return;
      // before leftovers go: who still writes those has another number
      number = checkpoint::claim_generation(folder_, least);
      claim_ = checkpoint::detail::claim_name(number);
      checkpoint::remove_leftovers(folder_, number);
    });
    number = collective::words_of_all(ranks(), number)[0];
    model_.shares().content().belongs_to(runs[0]);  // before the commit: it may be there though it failed
    const std::vector<std::uint64_t> files = collective::words_of_all(ranks(), plan_.files.size());
    const auto mine = files.begin() + static_cast<std::ptrdiff_t>(index_of(ranks().rank()));
    part_.emplace(folder_, number, std::accumulate(files.begin(), mine, std::uint64_t{0}));
  }
  /// Older generations go where options ask for room, and this model alone decides.
  void make_room() { older_.make_room(); }
  /// The files of all ranks are there for good.
  void write()
  {
    hand_over(*part_, [&] { part_->sync(); });
    collective::all_or_none(ranks(), [&] { part_->finish(); });
  }
  /// All of this rank goes to a writer, as to a model_writer, in rounds, so that nobody waits for long. @param
  /// after   a round
  template <class Writer, class After>
  void hand_over(Writer& to, After after)
  {
    checkpoint::model_writer writer{model_.shares(), plan_};
    while (!collective::agreed(ranks(), [&] {
      writer.write(to, options_.round.count());
      after();
      return writer.is_done();
    })) {
    }
  }
  /// The generation is there. @param stage   of whom it is a part
  void commit(const std::optional<checkpoint::stored_stage>& stage = {})
  {
    plan_.rest.stage = stage;
    plan_.rest.generation = part_->generation();
    plan_.rest.run = model_.shares().content().run();
    // whoever takes part in what follows may be the last that rank 0 waits for, and hear no answer: the manifest may be
    // there then
    part_->keep();
    plan_.rest.files = files_of_all(ranks(), part_->files(), part_->generation());
    enum : std::uint64_t { done, withdrawn, unknown };
    std::uint64_t outcome = done;
    std::exception_ptr failed;
    if (is_first()) {
      try {
        expect_files_of_all();
        manifest_.write(plan_.rest);
      } catch (const std::exception&) {
        failed = std::current_exception();
        outcome = manifest_.withdraw() ? withdrawn : unknown;
      }
    }
    outcome = collective::words_of_all(ranks(), outcome)[0];
    if (outcome == withdrawn) part_->keep(false);
    collective::all_or_none(ranks(), [&] {
      if (failed != nullptr) std::rethrow_exception(failed);
    });
  }
  /// Takes the generation back, behind its commit. Where a rank is gone, its files stay.
  void withdraw() noexcept
  {
    try {
      const std::uint64_t is_gone = is_first() && manifest_.withdraw() ? 1 : 0;
      if (collective::words_of_all(ranks(), is_gone)[0] != 0) part_->keep(false);
    } catch (...) {
    }
  }
  /// Behind the commit. Older ones are still there.
  [[nodiscard]] checkpoint::saved_generation saved() const
  {
    checkpoint::saved_generation result{part_->generation(), plan_.rest.files.size(), {}, {}};
    std::uint64_t size = 0;
    for (const checkpoint::stored_file& stored : plan_.rest.files) size += stored.size;
    result.size = bytes{size};
    return result;
  }
  /// The claim goes: the manifest has the number now, or nothing ever will. A claim that stays goes with the leftovers
  /// of a later save.
  void unclaim() noexcept
  {
    if (!claim_.empty()) (void)folder_.remove(claim_);
  }
  /// Older generations go. @return   as checkpoint::save
  [[nodiscard]] checkpoint::saved_generation finish()
  {
    checkpoint::saved_generation result = saved();
    unclaim();
    older_.remove(result);
    held_.reset();
    return result;
  }

  [[nodiscard]] Model& model() const noexcept { return model_; }
  /// Files of this rank, behind `begin`.
  [[nodiscard]] checkpoint::generation_part<Folder>& part() noexcept { return *part_; }
  [[nodiscard]] older_generations<typename Model::communicator_type, Folder>& older() noexcept { return older_; }

 private:
  using lock_type = decltype(io::lock_of(std::declval<Folder&>()));

  [[nodiscard]] auto& ranks() const noexcept { return model_.ranks(); }
  [[nodiscard]] bool is_first() const noexcept { return index_of(ranks().rank()) == 0; }

  void lock()
  {
    if (is_first() && !held_) held_.emplace(io::lock_of(folder_));
  }
  /// Which exchanges come behind the commit depends on them: a rank with others would answer other questions than it is
  /// asked.
  void agree_on_keeping()
  {
    collective::agree_on(ranks(), checkpoint::keeping_of(options_),
                         "ranks keep other numbers of checkpoints, or check others (give all of them the same keep, "
                         "keep_while_writing and check_older)");
  }
  void plan(const std::vector<std::string>& empty)
  {
    checkpoint::manifest rest = checkpoint::rest_of(model_.shares(), std::vector<checkpoint::model_item>{});
    rest.empty = empty;
    content_->for_each_shared([&](const std::string& name, const auto&, std::size_t item) {
      if (!content_->items()[item].is_filled) rest.empty.push_back(name);
    });
    content_->for_each_divided([&](const std::string& name, const auto& extents) {
      rest.divided.push_back({name, extents});
    });
    plan_ = checkpoint::plan_of(content_->items(), options_.file_size, std::move(rest), ranks().ranks());
  }
  /// Files that rank 0 does not see would make a damaged generation: the folder is not the same for all.
  void expect_files_of_all() const
  {
    for (const checkpoint::stored_file& stored : plan_.rest.files)
      if (auto file = std::as_const(folder_).open(stored.name); file.size() != stored.size)
        checkpoint::detail::refuse_damaged(stored.name);
  }
  Model& model_;
  Folder& folder_;
  checkpoint::save_options options_;
  older_generations<typename Model::communicator_type, Folder> older_;
  std::optional<rank_content<Model>> content_;
  checkpoint::save_plan plan_;
  std::optional<lock_type> held_;  // rank 0 alone, as the next two
  std::string claim_;              // the name of a file
  checkpoint::manifest_writer<Folder> manifest_;
  std::optional<checkpoint::generation_part<Folder>> part_;
};

}  // namespace sharding

namespace checkpoint {

/// As save_of a manager.
template <class Backend, class Ranks, class... Policies, file_folder Folder>
[[nodiscard]] auto save_of(sharded_model<Backend, Ranks, Policies...>& model, Folder& folder,
                           const save_options& options)
{
  return sharding::rank_save<sharded_model<Backend, Ranks, Policies...>, Folder>{model, folder, options};
}

/// Saves a model over ranks, each rank its shares: nothing is gathered. Every rank has to call it, with a folder that
/// all of them see.
///
/// What W ranks save loads on any number of them, divided in any way, or by one manager. Registered states and buffers
/// are stored once where all ranks have the same bytes; else each rank's own, which load on as many ranks alone.
/// Source: the commit of two phases that Torch's and DeepSpeed's checkpoints lack (their metadata may come before the
/// shards): files synced on every rank, sizes and checksums agreed on, the manifest by rank 0, success. Memory beside
/// the pins: none but tables
/// @throws as save, on every rank what the first that failed threw: no rank then has the generation, and older ones are
///   untouched, but for those that `keep_while_writing` lets go
/// @throws comm_error   a rank is gone, or did not answer within the deadline: the generation is there whole, or it is
///   not there
/// @throws usage_error, config_error   ranks have other models or settings: what differs
template <class Backend, class Ranks, class... Policies, file_folder Folder>
saved_generation save(sharded_model<Backend, Ranks, Policies...>& model, Folder& folder,
                      const save_options& options = {})
{
  sharding::rank_save save{model, folder, options};
  save.prepare();
  save.begin();
  save.make_room();
  save.write();
  save.commit();
  return save.finish();
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
