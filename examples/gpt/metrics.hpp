// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../json_text.hpp"
#include "../output_file.hpp"
#include "display.hpp"
#include "options.hpp"
#include "problem.hpp"

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/posix_file.hpp>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace gpt {

/// The file of --metrics: a line of JSON for each step, readable as soon as the step is over.
///
/// Members: `step` from 1, `loss` [nats a token], `norm` of all gradients before clipping, `learning_rate`, `seconds`,
/// `tokens_per_second`, `device_peak_bytes` since the start, `loaded_bytes` and `written_back_bytes` of the step,
/// `skipped` and the `time` at the end of the step [s since 1970]. A number that is unknown or not finite is null.
class metrics_file {
 public:
  /// Begins a new file; a resumed training keeps the lines of the steps before.
  /// @param done   steps of the resumed training
  /// @throws problem   the file cannot be written, or has no room for those lines: an older one stays
  metrics_file(const std::filesystem::path& where, std::size_t done) : where_{where.string()}
  {
    const std::string earlier = done == 0 ? std::string{} : lines_until(where, done);
    try {
      file_.emplace(where_, "the file of --metrics", chunkmem::replaced_file::naming::at_once, earlier);
    } catch (const chunkmem::io_error& failed) {
      throw problem{"--metrics '" + where_ + "' cannot be written (choose another file): " + failed.what()};
    }
  }

  void add(const step_figures& it)
  {
    using seconds = std::chrono::duration<double>;
    const double now = std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    command_line::json_object line;
    line.add("step", it.number)
        .add("loss", it.loss)
        .add("norm", it.norm)
        .add("learning_rate", it.learning_rate)
        .add("seconds", it.seconds)
        .add("tokens_per_second", it.tokens_per_second)
        .add("device_peak_bytes", it.device_peak.count())
        .add("loaded_bytes", it.loaded.count())
        .add("written_back_bytes", it.written_back.count())
        .add("skipped", it.skipped)
        .add("time", now);
    file_->write(line.text() + "\n");
    file_->flush();
  }
  /// @throws problem   not every line was written
  void finish()
  {
    try {
      file_->finish();
    } catch (const chunkmem::io_error& failed) {
      throw problem{"--metrics '" + where_ + "' could not be written to its end: " + failed.what()};
    }
  }

 private:
  /// Whole lines of the first steps. A killed run may have left lines of later steps, which are written again.
  [[nodiscard]] static std::string lines_until(const std::filesystem::path& where, std::size_t last)
  {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(where, ignored))) return {};
    constexpr std::string_view begin = "{\"step\": ";
    std::string kept;
    std::ifstream file{where};
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with(begin) || !line.ends_with('}')) continue;
      std::size_t step = 0;
      std::from_chars(line.data() + begin.size(), line.data() + line.size(), step);
      if (step > 0 && step <= last) kept += line + "\n";
    }
    return kept;
  }

  std::string where_;
  std::optional<chunkmem::replaced_file> file_;
};

/// Reports before the first step that the file cannot be written. An older file stays. @throws problem
inline void check_metrics(const options& chosen)
{
  if (chosen.metrics) (void)command_line::output_file<problem>{"--metrics", *chosen.metrics};
}

}  // namespace gpt
