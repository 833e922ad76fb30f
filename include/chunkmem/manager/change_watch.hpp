// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/ids.hpp>

namespace chunkmem::inline v0 {

/// Tells a watcher before a weight or a state changes on the host. A save that takes bytes from where they lie is one.
///
/// `begin(before, who)` registers the watcher, `tell(chunk)` is called before each change, `end(who)` takes the watcher
/// away. Cost: one test for a change that nobody watches.
class change_watch {
 public:
  /// @param chunk   a tensor in it changes; none: all may change
  using call = void (*)(void* context, chunk_id chunk) noexcept;

  /// @throws usage_error   somebody watches already
  void begin(call before, void* context)
  {
    expects(
        before_ == nullptr,
        "two saves were to take bytes of one manager from where they lie (wait for the first, or call its let_go())");
    before_ = before;
    who_ = context;
  }
  /// Does nothing where another one watches.
  void end(const void* context) noexcept
  {
    if (who_ == context) before_ = nullptr, who_ = nullptr;
  }
  void tell(chunk_id chunk) noexcept
  {
    if (before_ != nullptr) [[unlikely]]
      before_(who_, chunk);
  }

 private:
  call before_ = nullptr;
  void* who_ = nullptr;
};

}  // namespace chunkmem::inline v0
