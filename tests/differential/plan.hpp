// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "words.hpp"

#include <vector>

namespace differential {

struct tensor_plan {
  element type = element::real;
  std::uint32_t elements = 1;
  role part = role::parameter;
};
struct list_plan {
  const char* name;
  bool is_master = false;
};

/// The tensors and lists of a setting. Sizes lie at and beside the edges of frames.
struct plan {
  std::vector<tensor_plan> tensors;
  std::vector<list_plan> lists;  ///< behind values and gradients
  std::uint32_t parameters = 0;  ///< the first ones of the tensors
};

[[nodiscard]] inline plan plan_of(std::uint32_t set)
{
  plan result;
  constexpr std::uint32_t sizes[] = {128, 5, 350, 32, 65, 150};
  for (std::uint32_t index = 0; index < 6; ++index) {
    const bool brain = set == 2 || (set == 1 && index % 3 != 1);
    result.tensors.push_back({brain ? element::brain : element::real, sizes[index], role::parameter});
  }
  result.parameters = 6;
  result.tensors.push_back({element::real, 100, role::frozen});
  result.tensors.push_back({element::real, 3, role::buffer});
  result.tensors.push_back({element::brain, 130, role::buffer});
  result.tensors.push_back({element::real, 60, role::activation});
  result.tensors.push_back({element::real, 257, role::activation});
  if (set != 0) result.lists.push_back({"master", true});
  result.lists.push_back({"momentum"});
  if (set != 1) result.lists.push_back({"variance"});
  return result;
}

}  // namespace differential
