// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_reader.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/manifest.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/model_writer.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The generations that a save keeps, and the sizes of its files and rounds.
///
///     save(m, folder, {.keep = 3});
///     save(m, folder, {.keep = 2, .keep_while_writing = 1});  // a disk with room for 2.6 generations
struct save_options {
  std::uint32_t keep = 2;                   ///< whole generations that stay, this one too; at least 1
  bytes file_size{std::uint64_t{4} << 30};  ///< a file ends with the tensor that reaches it
  bool check_older = true;                  ///< generations that stay are read: a damaged one does not count
  /// over ranks: each writes this many bytes before they tell each other how it went. Writing them takes less than the
  /// deadline of their group
  bytes round{std::uint64_t{256} << 20};
  /// whole older generations that stay while the new one is written; 0: all. A disk with room for fewer than `keep` + 1
  /// generations refuses each save, unless this is smaller than `keep`: with 1 it needs room for two. The older ones go
  /// before the new one is there: where that save fails, only so many are left. They are read before others go
  std::uint32_t keep_while_writing = 0;
};

/// How a save treats older generations, as one number: parts of one save compare it.
[[nodiscard]] constexpr std::uint64_t keeping_of(const save_options& it) noexcept
{
  return std::uint64_t{it.keep} << 33U ^ std::uint64_t{it.keep_while_writing} << 1U ^ (it.check_older ? 1U : 0U);
}

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

/// Makes room for a new generation, where options ask for it. @throws io_error   as remove_older
template <file_folder Folder>
void make_room(Folder& folder, const save_options& options)
{
  if (options.keep_while_writing > 0)
    remove_older(folder, options.keep_while_writing, [&](std::uint64_t it) { return is_whole(folder, it); });
}

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

/// One save of one manager, step by step: see save. Stages of a pipeline take each step together.
///
///     manager_save saving{m, folder, options};
///     saving.prepare(), saving.open(), saving.begin(), saving.write(), saving.commit();
///     const saved_generation saved = saving.finish();
template <class Manager, file_folder Folder>
class manager_save {
 public:
  /// All outlive this.
  manager_save(Manager& m, Folder& folder, const save_options& options) : m_{m}, folder_{folder}, options_{options} {}
  manager_save(const manager_save&) = delete;

  /// Collects the content of the save; writes nothing yet.
  void prepare()
  {
    expects(options_.keep > 0 && options_.file_size.count() > 0,
            "a checkpoint that keeps no generation, or files without bytes");
    m_.content().expect_states();
    items_ = content_of(m_);
    plan_ = plan_of(items_, options_.file_size, rest_of(m_, items_));
    detail::older_check_of(m_).wait();
  }
  /// Others are kept out of the folder.
  void open() { held_.emplace(io::lock_of(folder_)); }
  /// The folder is clean. @param number   of the generation, which no file of the folder has; it is claimed. 0: the
  /// next one, which is not
  void begin(std::uint64_t number = 0)
  {
    if (number == 0) {
      rest_ = detail::begin_save(m_, folder_, plan_);
    } else {
      expect_own_folder(folder_, m_.content().run());
      rest_ = plan_.rest;
      rest_.run = m_.content().run();
      claim_ = detail::claim_name(number);
      rest_.generation = claim_generation(folder_, number);
      if (rest_.generation != number) claim_ = detail::claim_name(rest_.generation);
      remove_leftovers(folder_, number);
    }
    writer_.emplace(folder_, rest_.generation);
  }
  /// Older generations go where options ask for room, and this manager alone decides.
  void make_room() { detail::make_room(folder_, options_); }
  /// All files are there for good.
  void write()
  {
    model_writer{m_, plan_}.write(*writer_);
    writer_->finish();
  }
  /// The generation is there. @param stage   of whom it is a part
  void commit(const std::optional<stored_stage>& stage = {})
  {
    rest_.stage = stage;
    m_.content().belongs_to(rest_.run);  // before the commit: it may be there though it failed
    writer_->commit(rest_);
  }
  /// Takes the generation back, behind its commit.
  void withdraw() noexcept { writer_->withdraw(); }
  /// Behind the commit. Older ones are still there.
  [[nodiscard]] saved_generation saved() const
  {
    return {writer_->generation(), writer_->files(), bytes{writer_->size()}, {}};
  }
  /// The claim goes: the manifest has the number now, or nothing ever will. A claim that stays goes with the leftovers
  /// of a later save.
  void unclaim() noexcept
  {
    if (!claim_.empty()) (void)folder_.remove(claim_);
  }
  /// Older generations go. @return   as save
  [[nodiscard]] saved_generation finish()
  {
    saved_generation result = saved();
    unclaim();
    result.clean_up = detail::supersede(m_, folder_, result.number, options_);
    return result;
  }
  /// Files of this save, behind `begin`.
  [[nodiscard]] generation_part<Folder>& part() noexcept { return writer_->part(); }

 private:
  using lock_type = decltype(io::lock_of(std::declval<Folder&>()));

  Manager& m_;
  Folder& folder_;
  const save_options& options_;
  std::vector<model_item> items_;
  save_plan plan_;
  manifest rest_;
  std::optional<lock_type> held_;
  std::optional<generation_writer<Folder>> writer_;
  std::string claim_;  // the name of a file
};

/// A save of a manager, step by step; of a sharded_model: rank_save. For code that saves either.
template <class Manager, file_folder Folder>
[[nodiscard]] manager_save<Manager, Folder> save_of(Manager& m, Folder& folder, const save_options& options)
{
  return {m, folder, options};
}

/// Saves everything that a manager needs to go on: values or their masters, every list, and registered states.
///
/// Files are safetensors, which other programs open.
///
/// - When this returns, the new generation is there, whole, also after a power cut. Until then, and where this throws,
///   the older generations are untouched, but for those that `keep_while_writing` lets go.
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
  manager_save saving{m, folder, options};
  saving.prepare();
  saving.open();
  saving.begin();
  saving.make_room();
  saving.write();
  saving.commit();
  return saving.finish();
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
