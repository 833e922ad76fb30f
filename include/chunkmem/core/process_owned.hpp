// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/own_process.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// A value that only the process which made it destroys: for threads, and for what threads wait on.
///
///     process_owned<std::thread> worker{work};
///     if (worker.is_owner()) worker->join();
///
/// In a forked child the threads do not exist: to join one, or to end a condition variable that one waits on, would
/// last for ever, and what a thread was changing may be half changed. There the value is left as it is, with all memory
/// that it holds. Cost: the number of a process beside the value.
template <class Value>
class process_owned {
 public:
  template <class... Arguments>
  explicit process_owned(Arguments&&... arguments) : value_(std::forward<Arguments>(arguments)...)
  {
  }
  process_owned(const process_owned&) = delete;
  process_owned& operator=(const process_owned&) = delete;
  ~process_owned()
  {
    if (owner_.is_here()) std::destroy_at(&value_);
  }

  [[nodiscard]] bool is_owner() const noexcept { return owner_.is_here(); }
  /// @throws usage_error   this is a forked child; @see own_process
  void expect_owner(std::string_view what) const { owner_.expect_here(what); }

  [[nodiscard]] Value& operator*() noexcept { return value_; }
  [[nodiscard]] const Value& operator*() const noexcept { return value_; }
  [[nodiscard]] Value* operator->() noexcept { return &value_; }
  [[nodiscard]] const Value* operator->() const noexcept { return &value_; }
  [[nodiscard]] decltype(auto) operator[](std::size_t index) noexcept
    requires requires(Value& value) { value[index]; }
  {
    return value_[index];
  }
  [[nodiscard]] decltype(auto) operator[](std::size_t index) const noexcept
    requires requires(const Value& value) { value[index]; }
  {
    return value_[index];
  }

 private:
  own_process owner_;
  union {
    Value value_;
  };
};

}  // namespace chunkmem::inline v0
