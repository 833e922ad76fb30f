// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace bench {

/// Instructions of one whole run of a program, by callgrind; negative without callgrind.
[[nodiscard]] inline double count_instructions(const std::string& program, const std::string& arguments)
{
  const std::string command =
      "valgrind --tool=callgrind --callgrind-out-file=/dev/null '" + program + "' " + arguments + " 2>&1";
  std::FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) return -1;
  double instructions = -1;
  char line[512];
  while (std::fgets(line, sizeof line, out) != nullptr)
    if (const char* found = std::strstr(line, "Collected : "); found != nullptr) instructions = std::atof(found + 12);
  return pclose(out) == 0 ? instructions : -1;
}

}  // namespace bench
