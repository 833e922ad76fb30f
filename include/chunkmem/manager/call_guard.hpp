// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

/// Runs the public calls of a manager for its check policy, and tells errors details where they were asked for.
///
/// `guard.within("acquire", from, [&] { ... })` with checks: for one thread at a time, after what was noted before is
/// thrown; an error that leaves says where in the caller's program it was called. Without checks it only calls.
template <class Engine>
class call_guard {
 public:
  using place_type = typename Engine::checks_type::part::place_type;
  static constexpr bool is_on = Engine::checks_type::is_on;

  explicit call_guard(Engine& engine) noexcept : engine_{&engine} {}

  /// @param call   a literal
  template <class Work>
  [[gnu::always_inline]] decltype(auto) within(const char* call, place_type from, Work&& work) const
  {
    if constexpr (!is_on)
      return work();
    else
      return watched(call, from, work);
  }

 private:
  template <class Work>
  decltype(auto) watched(const char* call, place_type from, Work& work) const
  {
    bool is_callers_own = true;  // else it is the library's, within a call that knows the caller's place
    try {
      const auto inside = engine_->checks().enter(call, from);
      is_callers_own = inside.is_outermost();
      return work();
    } catch (error& failed) {
      if (is_callers_own) tell_place(failed, from);
      throw;
    }
  }
  void tell_place(error& failed, place_type from) const noexcept
  try {
    error_text line;
    engine_->checks().tell_place(line, from);
    failed.append_details(line.view());
  } catch (...) {  // no memory for a line about it
  }

  Engine* engine_;
};

}  // namespace chunkmem::inline v0
