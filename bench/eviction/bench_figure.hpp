// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace eviction_bench {

struct figure {
  std::string name;
  double value;
  double bound;  ///< at most
};

/// Writes the figures of a program if the environment names a folder. @return   0 if all bounds are met
inline int write_figures(const std::string& program, const std::vector<figure>& figures)
{
  int missed = 0;
  std::string text;
  for (const figure& it : figures) {
    missed += it.value <= it.bound ? 0 : 1;
    text += std::string{text.empty() ? "[" : ",\n "} + R"({"name": ")" + it.name + R"(", "value": )" +
            std::to_string(it.value) + R"(, "unit": "", "relation": "<=", "bound": )" + std::to_string(it.bound) +
            R"(, "command": "build/bench/bin/)" + program + R"("})";
  }
  if (const char* const folder = std::getenv("CHUNKMEM_FIGURES"); folder != nullptr)
    std::ofstream{std::string{folder} + "/" + program + ".json"} << text << "]\n";
  return missed == 0 ? 0 : 1;
}

}  // namespace eviction_bench
