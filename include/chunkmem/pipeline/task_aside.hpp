// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/operation.hpp>
#include <chunkmem/backend/wait_totals.hpp>
#include <chunkmem/core/ids.hpp>

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
/// Cost: nothing without a task; two wake-ups for each. No allocation after the first. Its end waits for the task.
/// @threads   one caller
class task_aside {
 public:
  task_aside() = default;
  task_aside(const task_aside&) = delete;

  /// @pre no task is running   @param work   throws nothing   @throws device_error   the system gives no thread
  template <class Work>
  void start(Work work)
  {
    if (!worker_) worker_ = std::make_unique<backend::agent_worker>(agent::host, done_, waits_);
    worker_->enqueue(backend::operation::launching(std::move(work)));
    is_running_ = true;
  }
  /// A task was started, and nobody has waited for it yet.
  [[nodiscard]] bool is_running() const noexcept { return is_running_; }
  /// @pre a task is running
  void wait() noexcept
  {
    done_[index_of(agent::host)].wait_for(worker_->given());
    is_running_ = false;
  }

 private:
  backend::progress_table done_;
  backend::wait_totals waits_;
  std::unique_ptr<backend::agent_worker> worker_;
  bool is_running_ = false;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
