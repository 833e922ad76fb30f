// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/checkpoint/older_generations.hpp>
#include <chunkmem/checkpoint/own_items.hpp>
#include <chunkmem/checkpoint/save_options.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// One save of a model, step by step: see save. Over ranks every rank makes the same calls in the same order. Stages of
/// a pipeline take each step together.
///
///     model_save saving{m, folder, options};
///     saving.prepare(), saving.begin(), saving.make_room(), saving.write(), saving.commit();
///     const saved_generation saved = saving.finish();
template <class Model, file_folder Folder>
class model_save {
 public:
  using content_type = content_of_model<Model>;
  using ranks_type = std::remove_cvref_t<decltype(std::declval<content_type&>().ranks())>;

  /// The model and the folder outlive this.
  model_save(Model& model, Folder& folder, const save_options& options)
      : folder_{folder}, options_{options}, content_{model}, older_{ranks(), folder, options}
  {
  }
  model_save(const model_save&) = delete;

  /// Collects the content of the save, on which ranks agree; writes nothing yet.
  /// @param buffer   of a save whose bytes are taken while the model trains, after late updates; a manager's are sorted
  ///   in the order in which the last iteration changed them. 0 B: all bytes are copied
  void prepare(bytes buffer = bytes{})
  {
    const bool lends = buffer.count() > 0;
    content_.finish_updates_unless([&] { return can_wait_for_updates(buffer); });
    collective::all_or_none(ranks(), [&] {
      expects(options_.keep > 0 && options_.file_size.count() > 0 && (is_manager<Model> || options_.round.count() > 0),
              "a checkpoint that keeps no generation, or files or rounds without bytes");
      manager().content().states().expect_whole();
      content_.prepare_to_save(lends);
      content_.collect();
      if constexpr (is_manager<Model>) detail::leave_out_zeros(content_.items());
    });
    content_.agree_on_model();
    content_.agree_on_values();
    agree_on_keeping();
    const std::vector<std::string> empty = share_own_items(content_);
    if constexpr (is_manager<Model>)
      if (lends) content_.sort_by_change();
    collective::all_or_none(ranks(), [&] { plan(empty); });
  }
  /// Waits until the thread of the manager's last save has ended, so that the thread removes nothing more. For saves
  /// that wait for their disk.
  /// @throws std::bad_alloc
  void wait_for_last()
  {
    if constexpr (is_manager<Model>) detail::older_check_of(manager()).wait();
  }
  /// Locks the folder: for stages, which look into it before they begin.
  void open()
  {
    collective::all_or_none(ranks(), [&] { lock(); });
  }
  /// Removes leftovers, and gives this rank the number of the generation and of its first file. @param least   number
  /// of the generation, which is claimed. 0: any; a manager, which has locked the folder, then claims none
  void begin(std::uint64_t least = 0)
  {
    const std::uint64_t known = manager().content().run();
    std::uint64_t run = known, number = 0;
    collective::all_or_none(ranks(), [&] {
      if (!is_first()) return;
      lock();
      expect_own_folder(folder_, run);
      if (run == 0) run = draw_run();
    });
    plan_.rest.run = collective::word_of_first(ranks(), run);
    collective::all_or_none(ranks(), [&] {
      if (known != 0 && run != plan_.rest.run)
        throw config_error{error_text{} << "chunkmem: ranks resume different trainings: here run " << run
                                        << ", rank 0 has " << plan_.rest.run
                                        << " (load the same checkpoint on every rank)"};
    });
    collective::all_or_none(ranks(), [&] {
      if (!is_first()) return;
      // the number is claimed before leftovers go: another process that still writes them has another number
      number = is_manager<Model> && least == 0 ? next_generation(folder_) : claim(least);
      remove_leftovers(folder_, number);
    });
    number = collective::word_of_first(ranks(), number);
    writer_.emplace(folder_, number, first_file());
  }
  /// Removes older generations where options ask for room. Only this model decides.
  void make_room() { older_.make_room(); }
  /// Writes the files of all ranks, durably.
  void write()
  {
    hand_over(*writer_, [&] { part().sync(); });
    collective::all_or_none(ranks(), [&] { part().finish(); });
  }
  /// Writes all bytes of this rank to a writer, as a model_writer does; over ranks in rounds, so that no rank waits for
  /// long. Then frees the items and tables. Call this once. @param after   called after each round
  template <class Writer, class After>
  void hand_over(Writer& to, After after)
  {
    model_writer writer{manager(), plan_};
    while (!collective::agreed(ranks(), [&] {
      writer.write(to, is_manager<Model> ? UINT64_MAX : options_.round.count());
      after();
      return writer.is_done();
    })) {
    }
    plan_.files = std::vector<std::vector<save_plan::entry>>{};
    plan_.tables = std::vector<std::string>{};
    content_.items() = std::vector<model_item>{};
  }
  /// The model belongs to the training of this save from here on, also if the save fails later: the manifest may exist.
  void belong() { manager().content().belongs_to(plan_.rest.run); }
  /// Makes the generation exist. @param stage   the stage of a pipeline that it belongs to
  void commit(const std::optional<stored_stage>& stage = {})
  {
    belong();
    plan_.rest.stage = stage;
    commit_files();
  }
  /// The same where the model belongs to the training already: for a manager, on any thread.
  void commit_files()
  {
    writer_->commit(ranks(), plan_.rest);
    std::uint64_t size = 0;
    for (const stored_file& stored : plan_.rest.files) size += stored.size;
    saved_ = {plan_.rest.generation, plan_.rest.files.size(), bytes{size}, {}};
    plan_.rest = manifest{};
  }
  /// Removes the generation after its commit. Where a rank is gone, its files stay.
  void withdraw() noexcept { writer_->withdraw(ranks()); }
  /// The result after the commit, while older generations still exist.
  [[nodiscard]] const saved_generation& saved() const noexcept { return saved_; }
  /// Removes the claim: the manifest has the number now, or the number stays unused. A claim that stays goes with the
  /// leftovers of a later save.
  void unclaim() noexcept
  {
    if (!claim_.empty()) (void)folder_.remove(claim_);
  }
  /// Removes older generations, for a manager on a thread. @return   as save
  [[nodiscard]] saved_generation finish()
  {
    saved_generation result = saved();
    unclaim();
    result.clean_up = supersede(result.number);
    held_.reset();
    return result;
  }
  /// Removes the files of this rank, unless they are a generation, and unlocks the folder.
  void close() noexcept
  {
    writer_.reset();
    held_.reset();
  }

  /// The manager of this rank's bytes.
  [[nodiscard]] auto& manager() noexcept { return content_.manager(); }
  /// Of all ranks.
  [[nodiscard]] ranks_type& ranks() noexcept { return content_.ranks(); }
  /// The files of this rank, after `begin`.
  [[nodiscard]] generation_part<Folder>& part() noexcept { return writer_->part(); }
  [[nodiscard]] older_generations<ranks_type, Folder>& older() noexcept { return older_; }

 private:
  using lock_type = decltype(io::lock_of(std::declval<Folder&>()));

  [[nodiscard]] bool is_first() noexcept { return index_of(ranks().rank()) == 0; }

  void lock()
  {
    if (is_first() && !held_) held_.emplace(io::lock_of(folder_));
  }
  [[nodiscard]] std::uint64_t claim(std::uint64_t least)
  {
    if (least != 0) claim_ = detail::claim_name(least);  // first: a claim that failed may have left its file
    const std::uint64_t number = claim_generation(folder_, std::max(least, std::uint64_t{1}));
    claim_ = detail::claim_name(number);
    return number;
  }
  /// The number of this rank's first file, after those of the ranks before it.
  [[nodiscard]] std::uint64_t first_file()
  {
    if constexpr (collective::is_alone<ranks_type>) {
      return 0;
    } else {
      const std::vector<std::uint64_t> files = collective::words_of_all(ranks(), plan_.files.size());
      const auto mine = files.begin() + static_cast<std::ptrdiff_t>(index_of(ranks().rank()));
      return std::accumulate(files.begin(), mine, std::uint64_t{0});
    }
  }
  /// The exchanges after the commit depend on these options: ranks with different ones would exchange different words.
  void agree_on_keeping()
  {
    collective::agree_on(ranks(), keeping_of(options_),
                         "ranks differ in how many checkpoints they keep or check (give all of them the same keep, "
                         "keep_while_writing and check_older)");
  }
  void plan(const std::vector<std::string>& empty)
  {
    manifest rest = rest_of(manager());
    rest.empty = empty;
    content_.for_each_shared([&](const std::string& name, const auto&, std::size_t item) {
      if (!content_.items()[item].is_filled) rest.empty.push_back(name);
    });
    content_.for_each_divided([&](const std::string& name, const auto& extents) {
      rest.divided.push_back({name, extents});
    });
    plan_ = plan_of(content_.items(), options_.file_size, std::move(rest), ranks().ranks());
  }
  /// Whether the bytes of this rank can be taken behind its late updates: its copies fit in the buffer, so that nothing
  /// has to be written before an update. Where another rank writes a share in place of this one, its updates have to be
  /// on the host: copies from a device would let that rank alone plan its next iteration anew.
  [[nodiscard]] bool can_wait_for_updates(bytes buffer)
  {
    if (buffer.count() == 0 || !detail::can_save_behind_updates(manager())) return false;
    content_.collect();
    for (const model_item& item : content_.items())
      if (!item.is_written && item.is_weight_or_list() && manager().updates().waits(item.tensor) &&
          manager().updates().place_of_states(item.tensor) == memory_location::device)
        return false;
    const save_plan all = plan_of(content_.items(), options_.file_size, {});
    detail::changing_chunks changing{manager()};
    std::uint64_t copied = 0;
    for (const std::string& table : all.tables) copied += table.size();
    for (const auto& file : all.files)
      for (const save_plan::entry& it : file)
        if (!it.item->is_weight_or_list() || !changing.has(it.item->tensor, it.item->list)) copied += it.size();
    return copied <= buffer.count();
  }
  /// Removes older generations: a manager on a thread that reads them, ranks together. @return   also the failure of
  /// the last save's removal
  [[nodiscard]] error_text supersede(std::uint64_t newest)
  {
    error_text failure;
    if constexpr (is_manager<Model>) {
      failure = finish_save(manager());
      if constexpr (shareable_folder<Folder>)
        if (older_.checks()) {
          detail::older_check_of(manager()).start(folder_, newest, options_.keep);
          return failure;
        }
    }
    const error_text now = older_.remove(newest);
    return now.view().empty() ? failure : now;
  }

  Folder& folder_;
  save_options options_;
  content_type content_;
  older_generations<ranks_type, Folder> older_;
  save_plan plan_;
  saved_generation saved_;
  std::optional<lock_type> held_;  // rank 0 alone, as the next
  std::string claim_;              // the name of a file
  std::optional<generation_writer<Folder>> writer_;
};

/// Saves everything that a manager, or a model over ranks, needs to go on: values or their masters, every list, and
/// registered states.
///
/// Files are safetensors, which other programs open.
///
/// - When this returns, the new generation is there, whole, also after a power cut. Until then, and where this throws,
///   the older generations are untouched, except those that `keep_while_writing` removes.
/// - Then generations older than the newest `keep` whole ones are removed. With `check_older` a thread reads the ones
///   that stay, each once, and removes the others: `finish_save` waits for it. So do the next save, a load, and the end
///   of the manager. Where the removal fails, the save has succeeded: `finish_save` or the next result has the failure.
/// - Reading the tensors may move chunks, so the next iteration may plan again.
/// - A folder is for one training: a folder with generations of another training is refused.
///
/// Use:
///
///     io::posix_folder folder{"runs/a"};
///     checkpoint::save(m, folder);
///
/// Over ranks every rank has to call this, with a folder that all of them see. Each writes its shards: nothing is
/// gathered.
///
/// - Shards of W ranks load on any number of ranks, divided in any way, or into one manager. Registered states and
///   buffers are stored once where all ranks have the same bytes; else each rank stores its own, which load only on
///   equally many ranks.
/// - An error is thrown on every rank: no rank then has the generation. Files are synced on every rank, sizes and
///   checksums agreed on, and then rank 0 writes the manifest. Checkpoints of PyTorch and DeepSpeed lack these two
///   phases: their metadata may come before the shards.
/// - `check_older` reads the older generations before the call returns, each rank its part.
///
/// @throws io_error        the folder did not take all bytes, or another saver has it; training may go on
/// @throws usage_error     inside an iteration, or with gradients that no step has used; over ranks also where models
///   or settings differ: names the difference
/// @throws config_error    two tensors have one name, or names exceed the limits of a loader; a folder of another
///   training; nothing was written
/// @throws out_of_memory   the host has no room to read a tensor, on a device that the calling thread cannot read;
///   std::bad_alloc   no room for names
/// @throws device_error    a tensor could not be copied
/// @throws comm_error      a rank is gone, or did not answer within the deadline: the generation exists whole, or not
///   at all
/// @complexity             one pass over the bytes; where a generation is removed, one over each older one that stays,
///   on a thread (over ranks, and in a folder that is no shareable_folder, before this returns); memory for the names
template <class Model, file_folder Folder>
saved_generation save(Model& model, Folder& folder, const save_options& options = {})
{
  model_save saving{model, folder, options};
  saving.prepare();
  saving.wait_for_last();
  saving.begin();
  saving.make_room();
  saving.write();
  saving.commit();
  return saving.finish();
}
/// Refuses a path in the place of a folder, with a sentence.
template <class Model, class Path>
  requires std::convertible_to<const Path&, std::string>
auto save(Model&, const Path&, const save_options& = {})
{
  static_assert(!std::convertible_to<const Path&, std::string>,
                "chunkmem: a checkpoint lies in a folder: write io::posix_folder folder{\"runs/a\"} and "
                "checkpoint::save(m, folder)");
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
