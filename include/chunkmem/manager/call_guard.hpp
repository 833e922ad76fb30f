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
  try {
    [[maybe_unused]] const auto inside = engine_->checks().enter(call, from);
    return work();
  } catch (error& failed) {
    error_text line;
    engine_->checks().tell_place(line, from);
    try {
      if (failed.details().find(line.view()) == std::string_view::npos) failed.append_details(line.view());
    } catch (...) {  // no memory for a line about it
    }
    throw;
  }

  Engine* engine_;
};

}  // namespace chunkmem::inline v0
