// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common_flags.hpp"
#include "../interruption.hpp"
#include "../json_text.hpp"
#include "display.hpp"
#include "options.hpp"

#include <cstdio>
#include <ostream>
#include <sstream>
#include <string>

namespace gpt {

/// The object of --report and --json, a member a line: `program`, `version`, the completed `steps` and all `of` them,
/// `ended_by` a signal or null, `losses`, `parameter_hash`, `memory` as report::json has it, `noise` where it was
/// measured.
/// @param noise   tables; empty: there are none
inline void write_report(std::ostream& out, const options& chosen, const training_result& result,
                         const std::string& memory, const std::string& noise = {})
{
  using namespace command_line;
  char hash[24];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(result.parameter_hash));
  out << "{\n\"program\": " << json_quoted(name_of(chosen.whose)) << ",\n\"version\": " << json_quoted(version_number())
      << ",\n\"steps\": " << result.steps << ",\n\"of\": " << chosen.steps
      << ",\n\"ended_by\": " << (result.signal == 0 ? "null" : json_quoted(interruption::name(result.signal)))
      << ",\n\"losses\": " << json_list(result.losses, [](float loss) { return json_number(loss); })
      << ",\n\"parameter_hash\": \"" << hash << "\",\n\"memory\": " << memory;
  if (!noise.empty()) out << ",\n\"noise\": " << noise;
  out << "\n}\n";
}

/// The stream of text for people: standard output, or standard error with --json.
[[nodiscard]] inline std::FILE* stream_of_text(const options& chosen) noexcept
{
  return chosen.common.json ? stderr : stdout;
}
/// Prints the object on standard output if the command line has --json.
inline void print_json(const options& chosen, const training_result& result, const std::string& memory,
                       const std::string& noise = {})
{
  if (!chosen.common.json) return;
  std::ostringstream text;
  write_report(text, chosen, result, memory, noise);
  std::fputs(text.str().c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace gpt
