// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adapter_base.hpp"
#include "averages.hpp"

#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <optional>
#include <vector>

namespace differential {
namespace {

/// The optimizer of a manager, and the three ways to take its steps.
template <class World>
class stepper {
  using manager = typename World::manager;

 public:
  stepper(manager& m, averages& kernel) : m_{m}, kernel_{kernel} {}

  /// @param first   of those whose updates may wait, these do not
  answer step(const step_request& wanted, const std::vector<cm::tensor_handle>& first, stepped& got)
  {
    return ask([&] {
      const cm::optimizer::step_options options{
          .clip = {.norm = wanted.limit, .order = cm::optimizer::norm_order::linf},
          .skip_nonfinite = wanted.skips_nonfinite};
      const cm::optimizer::step_outcome outcome = step(wanted, first, options);
      got = {outcome.result == cm::optimizer::step_result::updated, outcome.norm};
    });
  }
  answer finish_updates()
  {
    return ask([&] { late_ ? late_->finish() : m_.updates().finish_updates(); });
  }
  void end_late() { late_.reset(); }
  /// A step that early updates have begun has not been decided yet.
  [[nodiscard]] bool is_guessed() const { return kernel_.progress.decision == cm::optimizer::step_decision::guessed; }

 private:
  cm::optimizer::step_outcome step(const step_request& wanted, const std::vector<cm::tensor_handle>& first,
                                   const cm::optimizer::step_options& options)
  {
    switch (wanted.how) {
      case updates::late:
        if (!late_) late_.emplace(m_, kernel_);
        return late_->step(options, first);
      case updates::early:
        if (!is_guessed()) early_.emplace(m_, kernel_, cm::bytes{wanted.undo_bytes});  // else it has what it overwrote
        return early_->step(options);
      default: return cm::optimizer::step(m_, kernel_, options);
    }
  }

  manager& m_;
  averages& kernel_;
  std::optional<cm::optimizer::late_updates<manager, averages>> late_;
  std::optional<cm::optimizer::early_updates<manager, averages>> early_;
};

}  // namespace
}  // namespace differential
