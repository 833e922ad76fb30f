// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// A measured number and its bound.
struct figure {
  template <class Number>
  figure(std::string of_name, Number found, std::string in, std::string related, double bounded_by)
      : name{std::move(of_name)},
        value{static_cast<double>(found)},
        unit{std::move(in)},
        relation{std::move(related)},
        bound{bounded_by}
  {
  }
  [[nodiscard]] bool is_met() const
  {
    return relation == "<=" ? value <= bound : relation == ">=" ? value >= bound : value == bound;
  }

  std::string name;
  double value;
  std::string unit;
  std::string relation;  ///< "<=", ">=" or "=="
  double bound;
};

/// Writes the figures of a program to a file in the folder of the environment variable CHUNKMEM_FIGURES. Does nothing
/// without the variable.
/// @param file   its name without ".json"   @param command   makes the figures again
inline void write_figures(const std::string& file, const std::string& command, const std::vector<figure>& all)
{
  const char* const folder = std::getenv("CHUNKMEM_FIGURES");
  if (folder == nullptr) return;
  std::ofstream out{std::string{folder} + "/" + file + ".json"};
  out.precision(10);
  const char* before = "[";
  for (const figure& it : all) {
    out << before << R"({"name": ")" << it.name << R"(", "value": )" << it.value << R"(, "unit": ")" << it.unit
        << R"(", "relation": ")" << it.relation << R"(", "bound": )" << it.bound << R"(, "command": ")" << command
        << R"("})";
    before = ",\n ";
  }
  out << "]\n";
}

}  // namespace support
