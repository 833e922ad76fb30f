// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <exception>
#include <functional>
#include <utility>

namespace chunkmem::inline v0 {

namespace pipeline {

/// A long computation was cancelled by its caller. Not an error.
///
///     } catch (const interrupted&) {
///       return best_so_far;
///     }
class interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "chunkmem: interrupted by the caller"; }
};

/// A cancellation check of a long computation, called after each bounded number of steps.
///
///     const interruption stop{[token = source.get_token()] { return token.stop_requested(); }};
///     const pipeline_times times = pipeline_timeline{plan, costs, stop}.run();  // throws interrupted
class interruption {
 public:
  /// Never interrupts.
  interruption() = default;
  /// @param is_wanted   must not throw; threads that share the computation call it at the same time
  explicit interruption(std::function<bool()> is_wanted) : is_wanted_{std::move(is_wanted)} {}

  [[nodiscard]] bool is_wanted() const { return is_wanted_ && is_wanted_(); }
  /// @throws interrupted   the caller wants to end
  void look() const
  {
    if (is_wanted()) throw interrupted{};
  }

 private:
  std::function<bool()> is_wanted_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
