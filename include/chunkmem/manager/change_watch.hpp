// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>

#include <utility>

namespace chunkmem::inline v0 {

/// Tells a watcher before a weight or a state changes on the host. A save that takes bytes from where they lie is one.
///
/// `begin(before, who)` registers the watcher, `tell()` is called before each change and calls it once, `end(who)`
/// takes it away. Cost: one test for a change that nobody watches.
class change_watch {
 public:
  using call = void (*)(void* context) noexcept;

  /// `before(who)` is called once. @throws usage_error   somebody watches already
  void begin(call before, void* context)
  {
    expects(
        before_ == nullptr,
        "two saves were to take bytes of one manager from where they lie (wait for the first, or call its let_go())");
    before_ = before;
    who_ = context;
  }
  /// Does nothing where it was called, or where another one watches.
  void end(const void* context) noexcept
  {
    if (who_ == context) before_ = nullptr, who_ = nullptr;
  }
  void tell() noexcept
  {
    if (before_ == nullptr) [[likely]]
      return;
    void* const context = std::exchange(who_, nullptr);
    std::exchange(before_, nullptr)(context);
  }

 private:
  call before_ = nullptr;
  void* who_ = nullptr;
};

}  // namespace chunkmem::inline v0
