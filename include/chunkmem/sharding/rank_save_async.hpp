// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/io/file_folder.hpp>
#include <chunkmem/sharding/rank_save.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

namespace detail {

/// Writes files of a generation, and syncs them now and then, so that no single sync takes long.
template <class Part>
class syncing_part {
 public:
  /// @param round   between two syncs [B]
  syncing_part(Part& part, std::uint64_t round) : part_{part}, round_{round} {}

  void begin_file(std::uint64_t header)
  {
    part_.begin_file(header);
    since_ = 0;
  }
  void write(std::span<const std::byte> content)
  {
    part_.write(content);
    since_ += content.size();
    if (since_ < round_) return;
    part_.sync();
    since_ = 0;
  }
  void end_file() { part_.end_file(); }

 private:
  Part& part_;
  std::uint64_t round_;
  std::uint64_t since_ = 0;
};

}  // namespace detail

/// A save of one rank that goes on while all of them train. Every rank makes the same calls, but for `let_go` and
/// `most_buffered`, at the same places between its other calls. Ends with `wait`; ended without, no generation comes of
/// it, and the files of this rank go. The model and the folder outlive it.
///
///     auto save = checkpoint::save_async(model, folder);
///     while (!save.is_over()) step();
///     const checkpoint::saved_generation saved = save.wait();
template <class Model, file_folder Folder>
class rank_pending_save {
 public:
  rank_pending_save(rank_pending_save&&) noexcept = default;
  rank_pending_save& operator=(rank_pending_save&&) = delete;

  /// For save_async.
  [[nodiscard]] static rank_pending_save start(Model& model, Folder& folder,
                                               const checkpoint::async_save_options& options)
  {
    rank_pending_save pending{std::make_unique<work>(model, folder, options)};
    work& it = *pending.work_;
    it.save.prepare();
    it.save.begin();
    it.save.make_room();
    it.save.older().find();
    lending_writer* lent = nullptr;
    collective::all_or_none(model.ranks(), [&] {
      it.writing.start([&it] { it.run(); }, options.lends ? options.copying_threads : 0);
      if (options.lends) lent = &it.writing.lend_from(model.shares());
    });
    const auto nothing = [] {};
    if (lent != nullptr)
      it.save.hand_over(*lent, nothing);
    else
      it.save.hand_over(it.writing.queue(), nothing);
    collective::all_or_none(model.ranks(), [&] { it.writing.queue().commit({}); });
    it.writing.queue().close();
    return pending;
  }

  /// Nothing of the model is read any more, and nothing of it pinned: as pending_save's. Ranks do not talk in it.
  void let_go() noexcept
  {
    if (work_ != nullptr) work_->writing.let_go();
  }
  /// Every rank has written its files, or one of them failed: `wait` would not wait for a disk. One exchange of a word.
  /// @throws comm_error
  [[nodiscard]] bool is_over()
  {
    if (result_) return true;
    expects(work_ != nullptr, "a pending save over ranks was asked for its end that failed or was moved from");
    enum : std::uint64_t { goes_on, over, failed };
    const checkpoint::detail::save_queue& queue = work_->writing.queue();
    const std::vector<std::uint64_t> all =
        collective::words_of_all(work_->model.ranks(), queue.failure() != nullptr ? failed
                                                       : queue.is_over()          ? over
                                                                                  : goes_on);
    return std::ranges::count(all, std::uint64_t{failed}) > 0 || std::ranges::count(all, std::uint64_t{goes_on}) == 0;
  }
  /// The generation is there. @throws as save; then it is not, older ones are untouched, but for those that
  /// `keep_while_writing` let go, and this is no save any more
  checkpoint::saved_generation wait()
  {
    if (result_) return *result_;
    expects(work_ != nullptr, "a pending save over ranks was waited for that failed or was moved from");
    const std::unique_ptr<work> ended = std::move(work_);
    checkpoint::detail::save_queue& queue = ended->writing.queue();  // first: a forked child gets no further
    ended->writing.settle();
    while (!collective::agreed(ended->model.ranks(), [&] {
      const bool is_over = queue.wait_for_more(ended->round);
      if (const std::exception_ptr failed = queue.failure(); failed != nullptr) std::rethrow_exception(failed);
      return is_over;
    })) {
    }
    ended->writing.let_go();
    ended->save.commit();
    result_ = ended->save.finish();
    most_buffered_ = queue.most_held();
    return *result_;
  }
  /// The most copies of this rank that waited at once.
  [[nodiscard]] bytes most_buffered() const
  {
    return bytes{work_ != nullptr ? work_->writing.queue().most_held() : most_buffered_};
  }

 private:
  using lending_writer = checkpoint::detail::lending_writer<typename Model::manager_type>;

  struct work {
    work(Model& of, Folder& folder, const checkpoint::async_save_options& options)
        : model{of},
          round{options.files.round.count()},
          save{of, folder, options.files},
          writing{std::max(options.buffer, checkpoint::async_save_options::least_buffer).count()}
    {
    }
    ~work() { writing.cancel(); }
    /// On the thread that writes.
    void run()
    {
      detail::syncing_part files{save.part(), round};
      checkpoint::detail::carry_out(writing.queue(), files, [&](checkpoint::manifest) {
        save.part().finish();
        save.older().check_own_part([&](std::uint64_t read) { writing.queue().progress(read); });
      });
    }

    Model& model;
    std::uint64_t round;
    rank_save<Model, Folder> save;
    checkpoint::detail::background_write writing;  // last: its thread uses the save
  };

  explicit rank_pending_save(std::unique_ptr<work> it) : work_{std::move(it)} {}

  std::unique_ptr<work> work_;
  std::optional<checkpoint::saved_generation> result_;
  std::uint64_t most_buffered_ = 0;
};

}  // namespace sharding

namespace checkpoint {

/// As `save` over ranks, but a thread of each rank writes its files, as save_async of a manager does: with a buffer, or
/// with `lends` from where shares lie while the next iteration runs forward and backward. `wait` is called by every
/// rank, at a place of their choice: there the ranks agree that all files are there, rank 0 writes the manifest, and
/// older generations go, which were read by the threads.
///
/// Memory: `buffer`, once on each rank. A rank whose buffer is full waits for its disk before its update, the others
/// for it in their next exchange: that takes less than the deadline of their group.
/// @throws as save over ranks, with io_error also where a thread cannot be started; what a disk says later is said by
///   `wait`, on every rank
template <class Backend, class Ranks, class... Policies, file_folder Folder>
[[nodiscard]] auto save_async(sharded_model<Backend, Ranks, Policies...>& model, Folder& folder,
                              const async_save_options& options = {})
{
  collective::all_or_none(
      model.ranks(), [&] { expects(options.buffer.count() > 0, "a checkpoint in the background without a buffer"); });
  return sharding::rank_pending_save<sharded_model<Backend, Ranks, Policies...>, Folder>::start(model, folder, options);
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
