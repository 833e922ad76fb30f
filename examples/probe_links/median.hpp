// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace probe_links {

/// The median of the numbers, the upper one of two. @pre   not empty
[[nodiscard]] inline double median(std::vector<double> numbers)
{
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

/// The spread of the numbers, as a part of their median. @pre   they are above 0
[[nodiscard]] inline double spread(const std::vector<double>& numbers)
{
  const auto [least, most] = std::ranges::minmax(numbers);
  return (most - least) / median(numbers);
}

}  // namespace probe_links
