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

/// The memory that the training needs and the memory that it was given.
struct memory_budget {
  chunkmem::bytes weights, gradients, optimizer_states, activations, workspace;
  chunkmem::bytes everything, smallest_device;
  chunkmem::bytes device, host;
  /// With separate gradients, and with nothing ever evicted; a little more for loops that are not rehearsed.
  chunkmem::bytes unlimited_device, unlimited_host;
};

/// The result of one run, to be compared with that of another.
struct training_result {
  std::vector<float> losses;  ///< held-out before, every completed step, held-out after the last one
  std::uint64_t parameter_hash = 0;
  std::size_t steps = 0;  ///< that are complete
  int signal = 0;         ///< that ended the training early, or came in its last step; 0: none
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
  double seconds = 0.0;                                    ///< that the step took
  double norm = std::numeric_limits<double>::quiet_NaN();  ///< of all gradients; NaN: it was not computed
  chunkmem::bytes device_peak{};                           ///< since the start
};

/// The closing table's numbers.
struct memory_figures {
  chunkmem::bytes device_peak, device_capacity, host_peak, host_capacity, loaded, written_back;
  std::uint64_t loads = 0, evictions = 0, divergences = 0, replans = 0;
  chunkmem::wait_times stalls;
  std::uint64_t updates_apart = 0;           ///< late or early updates of this rank, see update_times
  std::optional<measured_updates> measured;  ///< of this rank, where steps measure the place of updates
  std::size_t skipped = 0;                   ///< steps whose gradients were not finite
  float loss_scale = 1.0f;                   ///< at the end
};

/// Prints to a stream. On a terminal a progress line is overwritten and shows the time left.
class display {
 public:
  explicit display(std::FILE* out);

  void header(const options& chosen, const training_text& text, const memory_budget& budget,
              chunkmem::bytes chunk) const;
  /// bench/gpu.sh reads this line.
  void memory_made(double seconds) const;
  void note(const char* what, float loss) const;
  void step(const step_figures& figures) const;
  /// Prints a table of the steps since the last such table.
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
