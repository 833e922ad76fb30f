// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "problem.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// The state with every loss: one for each step of the training, and two.
inline constexpr std::string_view losses_state = "gpt/losses";

/// How far a training is: the part of its checkpoints beside the model.
class progress {
 public:
  /// @param ranks   ranks that share the rows of each step
  progress(const options& chosen, std::size_t ranks)
      : rows_{rows_of(chosen, ranks)},
        saved_rows_{rows_},
        losses_(chosen.steps + 2),
        is_relu_{chosen.size.mlp == nonlinearity::relu},
        is_fixed_{chosen.windows == window_choice::fixed}
  {
  }
  progress(const progress&) = delete;  // a manager has the addresses of its states

  template <class Manager>
  void name_states(Manager& manager)
  {
    manager.state("gpt/step", std::as_writable_bytes(std::span{&step_, 1}));
    manager.state("gpt/rows", std::as_writable_bytes(std::span{&saved_rows_, 1}));
    manager.state(losses_state, std::as_writable_bytes(std::span{losses_}));
    // Each choice that makes another training of the same weights has a state of its own: a file with another choice is
    // refused.
    if (is_relu_) manager.state("gpt/mlp relu", std::as_writable_bytes(std::span{&marks_[0], 1}));
    if (is_fixed_) manager.state("gpt/windows fixed", std::as_writable_bytes(std::span{&marks_[1], 1}));
  }
  /// Checks that a loaded training continues with the rows that it would have had.
  /// @throws problem   steps have more or fewer rows
  void check() const
  {
    if (saved_rows_ == rows_) return;
    throw problem{"--resume continues a training of " + std::to_string(saved_rows_) +
                  " rows in each step, and here are " + std::to_string(rows_) +
                  ": its batches would differ (choose ranks, --batch and --accumulate whose product is " +
                  std::to_string(saved_rows_) + ")"};
  }

  [[nodiscard]] std::size_t step() const noexcept { return static_cast<std::size_t>(step_); }
  [[nodiscard]] const std::vector<float>& losses() const noexcept { return losses_; }
  [[nodiscard]] float first() const noexcept { return losses_.front(); }
  void begin(float held_out) noexcept { losses_.front() = held_out; }
  void step_is_done(float loss) noexcept { losses_[++step_] = loss; }
  void end(float held_out) noexcept { losses_.back() = held_out; }
  /// The losses so far. @param signal   that was received, 0: none
  [[nodiscard]] training_result result(std::uint64_t parameter_hash, int signal) const
  {
    training_result it{.losses = losses_, .parameter_hash = parameter_hash, .steps = step(), .signal = signal};
    if (it.steps + 2 < losses_.size()) it.losses.resize(it.steps + 1);
    return it;
  }

 private:
  [[nodiscard]] static std::uint64_t rows_of(const options& chosen, std::size_t ranks)
  {
    return std::uint64_t{ranks} * chosen.size.micro_batches * chosen.size.batch;
  }

  std::uint64_t rows_;
  std::uint64_t saved_rows_;
  std::uint64_t step_ = 0;     ///< completed steps
  std::vector<float> losses_;  ///< held-out before, every step, held-out after
  bool is_relu_;
  bool is_fixed_;
  std::uint64_t marks_[2] = {};
};

}  // namespace gpt
