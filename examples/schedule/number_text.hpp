// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace schedule_example {

/// "27.3": always with this number of decimals.
[[nodiscard]] inline std::string fixed_text(double value, int decimals)
{
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

/// "0.5": at most this number of figures, and no zeros at the end.
[[nodiscard]] inline std::string short_text(double value, int figures = 6)
{
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*g", figures, value);
  return text.data();
}

/// "1 batch", "3 batches".
[[nodiscard]] inline std::string counted(unsigned long long count, const char* one, const char* many)
{
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace schedule_example
