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

/// How a save in the background is done.
struct async_save_options {
  static constexpr bytes least_buffer{4096};  ///< that is used: with less, threads wake each other for every few bytes

  save_options files{};
  bytes buffer{std::uint64_t{256} << 20};  ///< copies that wait for the disk, at most; `least_buffer` where it is less
  /// weights and states are written from where they lie on the host, pinned until something is about to change them:
  /// see save_async
  bool lends = false;
};

/// A save that goes on while its trainer does. Ends with `wait`, or with this: then its error is lost. The manager
/// outlives it. A forked child may destroy it, which changes no file; all else there is a usage_error.
class pending_save {
 public:
  pending_save(pending_save&&) noexcept = default;
  pending_save& operator=(pending_save&&) = delete;

  /// For save_async.
  template <class Manager, file_folder Folder>
  [[nodiscard]] static pending_save start(Manager& m, Folder& folder, const async_save_options& options)
  {
    m.content().expect_states();
    const std::vector<model_item> items = content_of(m);
    const save_plan plan = plan_of(items, options.files.file_size, rest_of(m, items));
    auto held = io::lock_of(folder);
    manifest rest = detail::begin_save(m, folder, plan);
    pending_save pending{std::max(options.buffer, async_save_options::least_buffer).count()};
    work& it = *pending.work_;
    const std::uint64_t generation = rest.generation;
    it.writing.start([&it, &folder, generation, files = options.files, held = std::move(held)] {
      (void)held;  // keeps others out of the folder until the thread ends
      run(it, folder, generation, files);
    });
    model_writer all{m, plan};
    options.lends ? all.write(it.writing.lend_from(m)) : all.write(it.writing.queue());
    m.content().belongs_to(rest.run);
    it.writing.queue().commit(std::move(rest));
    it.writing.queue().close();
    return pending;
  }

  /// Nothing of the manager is read any more, and nothing of it pinned: what is not written yet was copied, and what
  /// does not fit in the buffer is waited for. An update does it by itself.
  void let_go() noexcept
  {
    if (work_ != nullptr) work_->writing.let_go();
  }
  /// Its files are there, or failed: `wait` would not wait.
  [[nodiscard]] bool is_over() const
  {
    expects(work_ != nullptr, "a pending save was asked for its end that was moved from");
    return work_->writing.queue().is_over();
  }
  /// @throws io_error   the folder took not all of it; older generations are untouched. std::bad_alloc   as this one
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

/// As `save`, but the files are written by a thread of its own: returns when all that is not yet written fits in
/// `buffer`.
///
/// The bytes saved are those of this moment, whatever is trained afterwards. With a buffer for the whole model the
/// trainer waits for copies in memory alone. One save at a time: wait for the last one before the next; a folder that
/// knows locks refuses the next one. The folder has to outlive what is returned.
///
/// With `lends` it returns at once: the writing thread takes weights, masters and states from where they lie on the
/// host while the next iteration runs forward and backward; pins keep them there. Before an update, or a write on the
/// host, changes any of them, what is not written yet is copied into the buffer (`let_go`), and that waits for the disk
/// where the buffer is full. For hosts that have room for all chunks: what is pinned there makes no room for others.
/// Until then weights are not written on the device (`usage_error`), and captured steps not replayed. One save at a
/// time lends from a manager (`usage_error`).
/// @throws as `save`, with io_error also where its thread cannot be started; what the disk says later is said by `wait`
template <class Manager, file_folder Folder>
[[nodiscard]] pending_save save_async(Manager& m, Folder& folder, const async_save_options& options = {})
{
  expects(options.files.keep > 0 && options.files.file_size.count() > 0 && options.buffer.count() > 0,
          "a checkpoint that keeps no generation, files without bytes, or no buffer");
  return pending_save::start(m, folder, options);
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
