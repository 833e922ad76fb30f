// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// Runs the parts of one piece of work, in parallel or one after another.
///
/// Laws: `run(parts, work)` calls `work(part)` once for each part below `parts` and returns when all are done; their
/// writes are then visible to the caller; `work` does not throw. `threads()` is the number of parts that may run at the
/// same time, at least 1.
template <class Executor>
concept executor = requires(Executor& workers, unsigned parts, void (*work)(unsigned)) {
  {
    workers.threads()
  } -> std::convertible_to<unsigned>;
  workers.run(parts, work);
};

/// Runs all parts on the calling thread.
///
///     const serial on_caller;
///     step(m, adam, {}, on_caller);
struct serial {
  [[nodiscard]] static constexpr unsigned threads() noexcept { return 1; }

  template <class Work>
  void run(unsigned parts, Work&& work) const noexcept
  {
    for (unsigned part = 0; part < parts; ++part) work(part);
  }
};

static_assert(executor<serial> && executor<const serial>);

inline constexpr serial on_this_thread{};

}  // namespace chunkmem::inline v0
