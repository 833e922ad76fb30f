// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/background_write.hpp>
#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// The options of a save in the background.
///
///     pending_save saving = save_async(m, folder, {.files = {.keep = 3}, .lends = true});
struct async_save_options {
  static constexpr bytes least_buffer{4096};  ///< with less, threads wake each other for every few bytes

  save_options files{};
  bytes buffer{std::uint64_t{256} << 20};  ///< copies that wait for the disk, at most; `least_buffer` where it is less
  /// weights and states are written from their place on the host. They are pinned until something is about to change
  /// them: see save_async
  bool lends = false;
  /// threads that copy lent bytes into the buffer before anything changes them; 0: an update copies them itself. For
  /// saves that the disk does not finish within forward and backward: see save_async
  std::uint32_t copying_threads = 0;
};

/// A save that goes on while its trainer does. It ends with `wait`, or with this object: then its error is lost. The
/// manager outlives it. A forked child may destroy it, which changes no file; every other call there is a usage_error.
///
///     pending_save save = save_async(m, folder);
///     while (!save.is_over()) step();
///     const saved_generation saved = save.wait();  // throws what the save threw
class pending_save {
 public:
  pending_save(pending_save&&) noexcept = default;
  pending_save& operator=(pending_save&&) = delete;

  /// For save_async.
  template <class Manager, file_folder Folder>
  [[nodiscard]] static pending_save start(Manager& m, Folder& folder, const async_save_options& options)
  {
    m.content().expect_states();
    const std::vector<model_item> items = options.lends ? content_by_change(m) : content_of(m);
    const save_plan plan = plan_of(items, options.files.file_size, rest_of(m, items));
    auto held = io::lock_of(folder);
    manifest rest = detail::begin_save(m, folder, plan);
    detail::make_room(folder, options.files);
    pending_save pending{std::max(options.buffer, async_save_options::least_buffer).count()};
    work& it = *pending.work_;
    const std::uint64_t generation = rest.generation;
    it.writing.start(
        [&it, &folder, generation, files = options.files, held = std::move(held)] {
          (void)held;  // keeps others out of the folder until the thread ends
          run(it, folder, generation, files);
        },
        options.lends ? options.copying_threads : 0);
    model_writer all{m, plan};
    options.lends ? all.write(it.writing.lend_from(m)) : all.write(it.writing.queue());
    m.content().belongs_to(rest.run);
    it.writing.queue().commit(std::move(rest));
    it.writing.queue().close();
    return pending;
  }

  /// Stops reading and pinning bytes of the manager. Bytes that are not written yet are copied. Bytes that do not fit
  /// in the buffer are waited for. A load makes this call itself; an update does the same for its own chunks.
  void let_go() noexcept
  {
    if (work_ != nullptr) work_->writing.let_go();
  }
  /// The files are there, or failed: `wait` would not wait.
  [[nodiscard]] bool is_over() const
  {
    expects(work_ != nullptr, "a pending save was asked for its end that was moved from");
    return work_->writing.queue().is_over();
  }
  /// @throws io_error   the folder did not take all bytes; older generations are untouched, but for those that
  ///   `keep_while_writing` let go. std::bad_alloc   likewise
  saved_generation wait()
  {
    expects(work_ != nullptr, "a pending save was waited for that was moved from");
    work_->writing.expect_own_process();
    work_->writing.join();
    work_->writing.let_go();
    if (const std::exception_ptr failed = work_->writing.queue().failure(); failed != nullptr)
      std::rethrow_exception(failed);
    return work_->result;
  }
  /// The most copies that waited at once.
  [[nodiscard]] bytes most_buffered() const
  {
    expects(work_ != nullptr, "a pending save was asked for its copies that was moved from");
    return bytes{work_->writing.queue().most_held()};
  }

 private:
  struct work {
    explicit work(std::uint64_t bound) : writing{bound} {}
    saved_generation result;
    detail::background_write writing;  // last: its thread writes the result
  };

  explicit pending_save(std::uint64_t bound) : work_{std::make_unique<work>(bound)} {}

  template <file_folder Folder>
  static void run(work& it, Folder& folder, std::uint64_t generation, const save_options& options)
  {
    generation_writer<Folder> writer{folder, generation};
    detail::carry_out(it.writing.queue(), writer, [&](manifest rest) {
      writer.commit(std::move(rest));
      it.result = {generation, writer.files(), bytes{writer.size()},
                   detail::remove_superseded(folder, generation, options)};
    });
  }

  std::unique_ptr<work> work_;
};

/// As `save`, but a thread of its own writes the files. Returns when all bytes that are not yet written fit in
/// `buffer`.
///
/// The saved bytes are those of the call: later training does not change them. With a buffer for the whole model the
/// trainer waits for copies in memory alone. One save at a time: wait for the last one before the next. A folder that
/// knows locks refuses the next one. The folder has to outlive the returned object.
///
/// Use:
///
///     auto saving = checkpoint::save_async(m, folder, {.lends = true});
///     ...                 // train on
///     saving.wait();      // the generation is there, or this throws
///
/// With `lends`:
///
/// - The call returns at once. The writing thread reads weights, masters and states in their place on the host, while
///   the next iteration runs forward and backward. Pins keep them there.
/// - Before an update, or a write on the host, changes a chunk, the bytes of this chunk that are not written yet are
///   copied into the buffer. This waits for the disk where the buffer is full. Other chunks stay lent.
/// - Items are written in the order in which the last iteration changed them, so updates find the first ones written:
///   see content_by_change.
/// - With `copying_threads` such copies are made ahead, while forward and backward run, as far as the buffer has room.
///   Where the disk would finish in time they are work for nothing: three times the traffic in host memory.
/// - Take it for hosts that have room for all chunks: pinned bytes make no room for others.
/// - While bytes of a chunk are lent, it is not written on the device, also not by a gradient (`usage_error`), and
///   captured steps are not replayed.
/// - One save at a time lends from a manager (`usage_error`).
///
/// @throws as `save`, with io_error also where its thread cannot be started; `wait` throws later errors of the disk
template <class Manager, file_folder Folder>
[[nodiscard]] pending_save save_async(Manager& m, Folder& folder, const async_save_options& options = {})
{
  expects(options.files.keep > 0 && options.files.file_size.count() > 0 && options.buffer.count() > 0,
          "a checkpoint that keeps no generation, files without bytes, or no buffer");
  return pending_save::start(m, folder, options);
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
