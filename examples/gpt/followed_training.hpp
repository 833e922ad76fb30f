// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "foresight.hpp"
#include "model.hpp"
#include "step_watch.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace gpt {

/// The first steps of a training and their forecast: chooses the plan of activations once their times are known, and
/// prints at the end how accurate the forecast was.
template <class Manager, class Trainer>
class followed_training {
 public:
  /// @param show   null prints nothing   @param manager, trainer   outlive this
  followed_training(Manager& manager, Trainer& trainer, const model& net, foresight ahead, const display* show)
      : m_{manager},
        trainer_{trainer},
        net_{net},
        ahead_{std::move(ahead)},
        watch_{manager, trainer.meter()},
        show_{show}
  {
  }
  followed_training(const followed_training&) = delete;

  /// Called before the first step and evaluation.
  void measure_links() { watch_.measure_links(net_.rows.front().layers.front().hidden); }
  void begin_step() { watch_.begin_step(); }
  /// @param events   before this step
  void end_step(unforeseen events)
  {
    if (watch_.done() == first_steps::all) return;
    watch_.end_step();
    if (watch_.done() == first_steps::measured) {
      const auto& later = ahead_.choose(watch_.times());
      if (!(later.steps == trainer_.settings().plan.steps)) trainer_.use(later);
      tell(ahead_.told());
    }
    if (watch_.done() != first_steps::all) return;
    events.skipped = trainer_.skipped();
    events.divergences = m_.report().divergences;
    tell(ahead_.compared_with(watch_.seen(), events));
  }
  [[nodiscard]] const foresight& ahead() const noexcept { return ahead_; }
  [[nodiscard]] const step_account& seen() const noexcept { return watch_.seen(); }

 private:
  void tell(std::string text) const
  {
    if (show_ == nullptr || text.empty()) return;
    text.pop_back();  // a line ends itself
    show_->line(text);
  }

  Manager& m_;
  Trainer& trainer_;
  const model& net_;
  foresight ahead_;
  step_watch<Manager> watch_;
  const display* show_;
};

/// The same steps as `followed_training` on virtual clocks: without files, and with a given plan of the later steps.
template <class Manager, class Trainer, class Setup>
[[nodiscard]] foreseen_steps foreseen_by(Manager& manager, Trainer& trainer, const model& net, const Setup& setup,
                                         const chunkmem::activation::activation_plan& later,
                                         const training_start& start)
try {
  (void)rehearse_step(manager, trainer, &start.need);
  fill(manager, net, setup.chosen.seed, setup.workers);
  step_watch<Manager> watch{manager, trainer.meter()};
  watch.measure_links(net.rows.front().layers.front().hidden);
  (void)trainer.evaluate();
  foreseen_steps found;
  for (std::size_t number = 0; number < first_steps::all; ++number) {
    const part_operations before = manager.backend().operations();
    watch.begin_step();
    (void)trainer.step(number);
    watch.end_step();
    if (number + 1 != first_steps::measured) continue;
    for (std::size_t part = 0; part < step_parts; ++part)
      found.operations[part] = manager.backend().operations()[part] - before[part];
    if (!(later.steps == trainer.settings().plan.steps)) trainer.use(later);
  }
  found.fits = true;
  found.compared = watch.seen();
  return found;
} catch (const chunkmem::out_of_memory&) {
  return {};
}

}  // namespace gpt
