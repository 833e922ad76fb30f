// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/borrowed_items.hpp>
#include <chunkmem/checkpoint/save_queue.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/process_owned.hpp>

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

namespace detail {

/// Carries out the orders of a queue, until none follows. @param commit   `commit(manifest)`: all was handed over
template <class Writer, class Commit>
void carry_out(save_queue& queue, Writer& writer, Commit commit)
{
  for (save_queue::order next; queue.take(next); queue.written(next)) {
    switch (next.what) {
      case save_queue::kind::begin_file: writer.begin_file(next.header); break;
      case save_queue::kind::bytes: writer.write(next.bytes()); break;
      case save_queue::kind::end_file: writer.end_file(); break;
      case save_queue::kind::commit: commit(std::move(next.rest));
    }
  }
}

/// Threads that write and copy while their trainer goes on, and the pins of the bytes that they read in a manager. The
/// threads end with the last order. In a forked child they do not exist: destroying this there leaves all files to the
/// parent.
class background_write {
 public:
  /// @param bound   of the queue's copies [B]
  explicit background_write(std::uint64_t bound) : queue_(std::make_shared<save_queue>(bound)) {}
  background_write(const background_write&) = delete;
  ~background_write()
  {
    if (!threads_.is_owner()) {
      if (unwatch_) unwatch_();
      return;
    }
    (*queue_)->close();
    join();
    let_go();
  }

  /// @throws usage_error   this is a forked child. So for the next call
  [[nodiscard]] save_queue& queue()
  {
    expect_own_process();
    return **queue_;
  }
  [[nodiscard]] const save_queue& queue() const
  {
    expect_own_process();
    return **queue_;
  }
  void expect_own_process() const { threads_.expect_owner("a background save"); }
  /// Stops: bytes that are not written yet are not written any more.
  void cancel() noexcept
  {
    if (threads_.is_owner()) (*queue_)->cancel();
  }

  /// Runs `work()` once, on a thread of its own. An exception of `work()` is the failure of the queue.
  /// @param copying   so many more threads copy lent bytes ahead
  /// @throws io_error   a thread could not be started
  template <class Work>
  void start(Work work, std::uint32_t copying = 0)
  {
    try {
      threads_->reserve(copying + std::size_t{1});
      threads_->emplace_back([this, work = std::move(work)]() mutable noexcept {
        try {
          work();
        } catch (...) {
          (*queue_)->fail(std::current_exception());
        }
        (*queue_)->end();
      });
      for (std::uint32_t each = 0; each < copying; ++each)
        threads_->emplace_back([this]() noexcept { (*queue_)->copy_ahead(); });
    } catch (const std::system_error& refused) {
      throw io_error{error_text{} << "chunkmem: starting the thread of a background save failed: system error "
                                  << static_cast<std::uint64_t>(refused.code().value())
                                  << " (raise the limit of threads, or call checkpoint::save)",
                     {.number = refused.code().value()}};
    }
  }
  /// A target for a model_writer of this manager. It reads the bytes of weights and states in their place, until they
  /// are about to change.
  /// @throws usage_error   somebody else does
  template <class Manager>
  [[nodiscard]] lending_writer<Manager>& lend_from(Manager& m)
  {
    auto borrowed = std::make_unique<lending_writer<Manager>>(m, *queue_);
    lending_writer<Manager>& to = *borrowed;
    *borrowed_ = std::move(borrowed);
    unwatch_ = [&m, this] { m.content().changes().end(this); };
    m.content().changes().begin(
        [](void* context, chunk_id chunk) noexcept { static_cast<background_write*>(context)->before_change(chunk); },
        this);
    return to;
  }
  /// Lent bytes have arrived, or the queue knows that they will not: nobody waits for a device that is lost.
  void settle() noexcept { settle(chunk_id::none); }
  /// Before bytes of this chunk change: they are written or copied, and pinned no more. None: all.
  void before_change(chunk_id chunk) noexcept
  {
    if (chunk == chunk_id::none) return let_go();
    if (!borrowed_.is_owner() || *borrowed_ == nullptr || !(*borrowed_)->has(chunk)) return;
    settle(chunk);
    (*borrowed_)->take_back(chunk);
  }
  /// Stops reading and pinning bytes of the manager. Waits where the buffer is full.
  void let_go() noexcept
  {
    if (!borrowed_.is_owner() || *borrowed_ == nullptr) return;
    settle();
    (*queue_)->take_back();
    unwatch_();
    borrowed_->reset();
  }
  /// Waits until all orders are written, or failed. The queue was closed, or its last order is the commit.
  void join() noexcept
  {
    settle();
    if (!threads_.is_owner()) return;
    for (std::thread& it : *threads_) it.join();
    threads_->clear();
  }

 private:
  void settle(chunk_id chunk) noexcept
  {
    if (!borrowed_.is_owner() || *borrowed_ == nullptr) return;
    try {
      chunk == chunk_id::none ? (*borrowed_)->wait() : (*borrowed_)->wait_for(chunk);
    } catch (...) {
      (*queue_)->refuse(std::current_exception());
    }
  }

  process_owned<std::shared_ptr<save_queue>> queue_;
  process_owned<std::unique_ptr<borrowed_pins>> borrowed_;
  std::function<void()> unwatch_;
  process_owned<std::vector<std::thread>> threads_;
};

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
