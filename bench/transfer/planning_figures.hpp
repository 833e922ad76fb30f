// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace transfer_bench {

struct figure {
  std::string name;
  double value;
  std::string unit;
  std::string_view relation;  ///< "<=", ">=" or "=="
  double bound;

  [[nodiscard]] bool is_met() const
  {
    return relation == "<=" ? value <= bound : relation == ">=" ? value >= bound : value == bound;
  }
};

/// Writes the figures of a program if the environment names a folder. @return   0 if all bounds are met
inline int write_figures(const std::string& program, const std::vector<figure>& figures)
{
  int missed = 0;
  std::string text;
  for (const figure& it : figures) {
    missed += it.is_met() ? 0 : 1;
    text += std::string{text.empty() ? "[" : ",\n "} + R"({"name": ")" + it.name + R"(", "value": )" +
            std::to_string(it.value) + R"(, "unit": ")" + it.unit + R"(", "relation": ")" + std::string{it.relation} +
            R"(", "bound": )" + std::to_string(it.bound) + R"(, "command": "build/bench/bin/)" + program + R"("})";
  }
  if (const char* const folder = std::getenv("CHUNKMEM_FIGURES"); folder != nullptr)
    std::ofstream{std::string{folder} + "/" + program + ".json"} << text << "]\n";
  return missed == 0 ? 0 : 1;
}

}  // namespace transfer_bench
