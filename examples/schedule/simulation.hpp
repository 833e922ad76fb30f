// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>

#include <cstdint>
#include <vector>

namespace schedule_example {

/// A schedule and its simulation on virtual clocks.
struct simulation {
  chunkmem::pipeline::schedule plan{};
  chunkmem::pipeline::pipeline_times times{};  ///< of each step
  std::vector<double> peaks{};                 ///< by stage, in activations of one micro-batch
  bool updates_aside = false;
};

/// The schedule of the command line.
/// @throws gpt::problem           a file that cannot be read
/// @throws chunkmem::config_error, chunkmem::format_error   the schedule is impossible
[[nodiscard]] chunkmem::pipeline::schedule chosen_schedule(const options& chosen);

/// Puts a second forward run directly before each backward run. @throws chunkmem::config_error   the schedule has one
/// already
void add_recompute(chunkmem::pipeline::schedule& plan);

/// Runs the chosen schedule. @throws as chosen_schedule
[[nodiscard]] simulation simulate(const options& chosen);

/// A step of a stage that has a length: a run or an update.
struct bar {
  chunkmem::pipeline::operation step{};
  std::uint32_t stage = 0;
  std::uint32_t part_of_stage = 0;  ///< 0: the stage's first part
  bool is_aside = false;            ///< an update concurrent with the runs
  double begin = 0;                 ///< [s]
  double end = 0;                   ///< [s]

  /// The number in a picture: the micro-batch of a run, or the version that an update makes.
  [[nodiscard]] std::uint32_t number() const noexcept
  {
    return step.kind == chunkmem::pipeline::operation_kind::update ? step.version : step.micro_batch;
  }
};

/// All bars, stage by stage in the order of the lists. A step that takes no time has no bar.
[[nodiscard]] std::vector<bar> bars_of(const simulation& it);

/// For each part, the number of parts of its stage that come before it.
[[nodiscard]] std::vector<std::uint32_t> ranks_of_parts(const chunkmem::pipeline::schedule& plan);

/// The length of a cell of a row, and of 20 units of a picture where it has room: the shortest run, and at least an
/// eighth of the longest run [s].
[[nodiscard]] double cell_seconds(const std::vector<bar>& bars);

}  // namespace schedule_example
