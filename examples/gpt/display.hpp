// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/sampling_report.hpp>
#include <chunkmem/chunkmem.hpp>

#include "measured_updates.hpp"
#include "options.hpp"
#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace gpt {

/// What the training needs, in bytes, and what it was given.
struct memory_budget {
  chunkmem::bytes weights, gradients, optimizer_states, activations, workspace;
  chunkmem::bytes everything, smallest_device;
  chunkmem::bytes device, host;
  /// With gradients of their own, nothing ever has to leave; a little room for the loops not rehearsed.
  chunkmem::bytes unlimited_device, unlimited_host;
};

/// What one run leaves to be compared with another.
struct training_result {
  std::vector<float> losses;  ///< held-out before, every step that is done, held-out after the last one
  std::uint64_t parameter_hash = 0;
  std::size_t steps = 0;  ///< that are done
  int signal = 0;         ///< that ended it early, or came in its last step; 0: none
};

/// One line about one step.
struct step_figures {
  std::size_t number = 0;  ///< from 1
  std::size_t steps = 0;
  float loss = 0.0f;
  float learning_rate = 0.0f;
  double tokens_per_second = 0.0;
  chunkmem::bytes loaded{}, written_back{};
  bool skipped = false;                                    ///< its gradients were not finite: nothing was updated
  double seconds = 0.0;                                    ///< that it took
  double norm = std::numeric_limits<double>::quiet_NaN();  ///< of all gradients; not a number: nobody asked for it
  chunkmem::bytes device_peak{};                           ///< since the start
};

/// The closing table's numbers.
struct memory_figures {
  chunkmem::bytes device_peak, device_capacity, host_peak, host_capacity, loaded, written_back;
  std::uint64_t loads = 0, evictions = 0, divergences = 0, replans = 0;
  chunkmem::wait_times stalls;
  std::uint64_t updates_apart = 0;           ///< of a rank, late or early: see update_times
  std::optional<measured_updates> measured;  ///< of a rank, where steps measure the place of its updates
  std::size_t skipped = 0;                   ///< steps whose gradients were not finite
  float loss_scale = 1.0f;                   ///< at the end
};

/// Prints to a stream that is a terminal, where a line of progress is written over and says the time left, or is not.
class display {
 public:
  explicit display(std::FILE* out);

  void header(const options& chosen, const training_text& text, const memory_budget& budget,
              chunkmem::bytes chunk) const;
  /// bench/gpu.sh reads this line.
  void memory_made(double seconds) const;
  void note(const char* what, float loss) const;
  void step(const step_figures& figures) const;
  /// Of the steps since the last such table.
  void noise(std::size_t step, const chunkmem::activation::sampling_report& of) const;
  void closing(const options& chosen, const memory_figures& figures) const;
  /// Bytes outside printable ASCII appear as `?`.
  void sample(std::string_view prompt, std::string_view written) const;
  void line(std::string_view text) const;
  /// @return whether every loss and the parameters are the same, bit for bit
  [[nodiscard]] bool verdict(const training_result& limited, const training_result& unlimited) const;

 private:
  std::FILE* out_;
  bool terminal_;
};

}  // namespace gpt
