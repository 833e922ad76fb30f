// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/operation.hpp>
#include <chunkmem/backend/wait_totals.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/process_owned.hpp>

#include <memory>
#include <utility>

namespace chunkmem::inline v0 {

namespace pipeline {

/// One task at a time on a thread of its own, which starts with the first task and stays.
///
///     task_aside aside;
///     aside.start([&]() noexcept { answer = ask_others(); });
///     go_on();
///     aside.wait();
///
/// Cost: nothing without a task; two wake-ups for each. No allocation after the first. Its end waits for the task, but
/// not in a forked child.
/// @threads   one caller
class task_aside {
 public:
  task_aside() = default;
  task_aside(const task_aside&) = delete;

  /// @pre no task is running   @param work   throws nothing   @throws device_error   the system gives no thread
  template <class Work>
  void start(Work work)
  {
    if (!thread_) thread_ = std::make_unique<process_owned<own_thread>>();
    (*thread_)->worker.enqueue(backend::operation::launching(std::move(work)));
    is_running_ = true;
  }
  /// A task was started, and nobody has waited for it yet.
  [[nodiscard]] bool is_running() const noexcept { return is_running_ && thread_->is_owner(); }
  /// @pre a task is running
  void wait() noexcept
  {
    (*thread_)->done[index_of(agent::host)].wait_for((*thread_)->worker.given());
    is_running_ = false;
  }

 private:
  /// A thread, and what it works with. A forked child has none of it.
  struct own_thread {
    backend::progress_table done{};
    backend::wait_totals waits{};
    backend::agent_worker worker{agent::host, done, waits};
  };

  std::unique_ptr<process_owned<own_thread>> thread_;
  bool is_running_ = false;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
