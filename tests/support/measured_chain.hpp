// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace support {

/// A chain from a file with a line for each block, below a line of names: seconds forward, backward and of a second
/// forward run; bytes saved, of the output, of its gradient, of working memory forward, passing and backward, and
/// carried; 1 if the backward run reads the input. The chain's input has no bytes.
/// @throws std::runtime_error   the file cannot be read, or a line has other fields
inline chunkmem::activation::layer_chain measured_chain(const std::string& file)
{
  using chunkmem::bytes;
  std::ifstream in{file};
  std::string line;
  if (!std::getline(in, line)) throw std::runtime_error{"no measured chain in " + file};
  chunkmem::activation::layer_chain chain;
  while (std::getline(in, line)) {
    std::istringstream fields{line};
    std::vector<double> values;
    for (std::string field; std::getline(fields, field, ',');) values.push_back(std::stod(field));
    if (values.size() != 11) throw std::runtime_error{"a line of " + file + " has no 11 fields: " + line};
    const auto size = [&](std::size_t field) { return bytes{static_cast<std::uint64_t>(values[field])}; };
    chain.blocks.push_back({.name = "block " + std::to_string(chain.blocks.size()),
                            .forward_seconds = values[0],
                            .backward_seconds = values[1],
                            .recompute_seconds = values[2],
                            .saved = size(3),
                            .boundary = size(4),
                            .gradient = size(5),
                            .forward_working = size(6),
                            .passing_working = size(7),
                            .backward_working = size(8),
                            .carried = size(9),
                            .reads_input = values[10] != 0});
  }
  return chain;
}

}  // namespace support
