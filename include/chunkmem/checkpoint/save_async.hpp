#pragma once

#include <chunkmem/checkpoint/generation_files.hpp>
#include <chunkmem/checkpoint/generation_writer.hpp>
#include <chunkmem/checkpoint/lent_items.hpp>
#include <chunkmem/checkpoint/model_content.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_queue.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/io/file_folder.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

struct async_save_options {
  static constexpr bytes least_buffer{4096};  ///< that is used: with less, threads wake each other for every few bytes

  save_options files{};
  bytes buffer{std::uint64_t{256} << 20};  ///< copies that wait for the disk, at most; `least_buffer` where it is less
  bool lends = false;  ///< weights and states are written from where they lie on the host, pinned until something is about to change them: see save_async
};

/// A save that goes on while its trainer does. Ends with `wait`, or with this: then its error is lost. The manager outlives it.
class pending_save {
 public:
  pending_save(pending_save&&) noexcept = default;
  pending_save& operator=(pending_save&&) = delete;
  ~pending_save()
  {
    if (work_ == nullptr) return;
    if (work_->thread.joinable()) work_->thread.join();
    work_->let_go();
  }

  /// For save_async.
  template <class Manager, file_folder Folder>
  [[nodiscard]] static pending_save start(Manager& m, Folder& folder, const async_save_options& options)
  {
    const std::vector<model_item> items = content_of(m);
    const save_plan plan = plan_of(items, options.files.file_size, rest_of(m, items));
    auto held = io::lock_of(folder);
    manifest rest = detail::begin_save(m, folder, plan);
    pending_save pending{std::max(options.buffer, async_save_options::least_buffer).count()};
    work& it = *pending.work_;
    const std::uint64_t generation = next_generation(folder);
    it.thread = started([&it, &folder, generation, files = options.files, held = std::move(held)]() mutable {
      run(it, folder, generation, files, std::move(held));
    });
    try {
      options.lends ? lend(m, plan, it) : model_writer{m, plan}.write(it.queue);
      m.belongs_to(rest.run);
      it.queue.commit(std::move(rest));
    } catch (...) {
      it.queue.close();
      throw;
    }
    it.queue.close();
    return pending;
  }

  /// Nothing of the manager is read any more, and nothing of it pinned: what is not written yet was copied, and what does not fit in the buffer is
  /// waited for. An update does it by itself.
  void let_go() noexcept
  {
    if (work_ != nullptr) work_->let_go();
  }
  /// @throws io_error   the folder took not all of it; older generations are untouched. std::bad_alloc   as this one
  saved_generation wait()
  {
    expects(work_ != nullptr, "a pending save was waited for that was moved from");
    if (work_->thread.joinable()) work_->thread.join();
    work_->let_go();
    if (const std::exception_ptr failed = work_->queue.failure(); failed != nullptr) std::rethrow_exception(failed);
    return work_->result;
  }
  /// The most copies that waited at once.
  [[nodiscard]] bytes most_buffered() const
  {
    expects(work_ != nullptr, "a pending save was asked for its copies that was moved from");
    return bytes{work_->queue.most_held()};
  }

 private:
  struct work {
    explicit work(std::uint64_t bound) : queue{bound} {}
    void let_go() noexcept
    {
      if (lent == nullptr) return;
      queue.take_back();
      unwatch();
      lent.reset();
    }
    detail::save_queue queue;
    saved_generation result;
    std::unique_ptr<detail::lent_pins> lent;
    std::function<void()> unwatch;
    std::thread thread;
  };

  template <class Manager>
  static void lend(Manager& m, const save_plan& plan, work& it)
  {
    auto lent = std::make_unique<detail::lending_writer<Manager>>(it.queue);
    detail::lending_writer<Manager>& to = *lent;
    it.lent = std::move(lent);
    it.unwatch = [&m, &it] { m.changes().end(&it); };
    m.changes().begin([](void* who) noexcept { static_cast<work*>(who)->let_go(); }, &it);
    model_writer{m, plan}.write(to);
  }
  template <class Work>
  [[nodiscard]] static std::thread started(Work writing)
  {
    try {
      return std::thread{std::move(writing)};
    } catch (const std::system_error& refused) {
      throw io_error{error_text{} << "chunkmem: starting the thread of a background save failed: system error "
                                  << static_cast<std::uint64_t>(refused.code().value()) << " (raise the limit of threads, or call checkpoint::save)",
                     {.number = refused.code().value()}};
    }
  }

  explicit pending_save(std::uint64_t bound) : work_{std::make_unique<work>(bound)} {}

  /// @param held   keeps others out of the folder until this returns
  template <file_folder Folder, class Guard>
  static void run(work& it, Folder& folder, std::uint64_t generation, const save_options& options, [[maybe_unused]] Guard held) noexcept
  {
    try {
      generation_writer<Folder> writer{folder, generation};
      for (detail::save_queue::order next; it.queue.take(next);) {
        switch (next.what) {
          case detail::save_queue::kind::begin_file: writer.begin_file(next.header); break;
          case detail::save_queue::kind::bytes: writer.write(next.bytes()); break;
          case detail::save_queue::kind::end_file: writer.end_file(); break;
          case detail::save_queue::kind::commit:
            writer.commit(std::move(next.rest));
            it.result = {generation, writer.files(), bytes{writer.size()}, detail::remove_superseded(folder, generation, options)};
        }
        it.queue.written(next);
      }
    } catch (...) {
      it.queue.fail(std::current_exception());
    }
  }

  std::unique_ptr<work> work_;
};

/// As `save`, but the files are written by a thread of its own: returns when all that is not yet written fits in `buffer`.
///
/// The bytes saved are those of this moment, whatever is trained afterwards. With a buffer for the whole model the trainer waits for copies
/// in memory alone. One save at a time: wait for the last one before the next; a folder that knows locks refuses the next
/// one. The folder has to outlive what is returned.
///
/// With `lends` it returns at once: the writing thread takes weights, masters and states from where they lie on the host while the next
/// iteration runs forward and backward; pins keep them there. Before an update, or a write on the host, changes any of them, what is not
/// written yet is copied into the buffer (`let_go`), and that waits for the disk where the buffer is full. For hosts that have room for all
/// chunks: what is pinned there makes no room for others. Until then weights are not written on the device (`usage_error`), and captured
/// steps not replayed. One save at a time lends from a manager (`usage_error`).
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
