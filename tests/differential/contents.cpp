// SPDX-License-Identifier: Apache-2.0
#include "contents.hpp"

#include <cstring>

namespace differential {

void fill_with(std::vector<std::byte>& content, element type, std::uint32_t number)
{
  std::uint32_t random = number * 2'654'435'761U + 1;
  if (type == element::brain) {
    for (std::size_t index = 0; index + 2 <= content.size(); index += 2) {
      random = random * 1'664'525U + 1'013'904'223U;
      const auto bits = static_cast<std::uint16_t>(0x3F00U | random >> 24U);
      std::memcpy(&content[index], &bits, 2);
    }
    return;
  }
  for (std::size_t index = 0; index + 4 <= content.size(); index += 4) {
    random = random * 1'664'525U + 1'013'904'223U;
    const std::uint32_t bits = 0x3F000000U | random >> 9U;
    std::memcpy(&content[index], &bits, 4);
  }
}

std::vector<std::byte> rounded(const std::vector<std::byte>& master)
{
  std::vector<std::byte> result(master.size() / 2);
  for (std::size_t index = 0; index < result.size() / 2; ++index) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &master[4 * index], 4);
    bits += 0x7FFFU + (bits >> 16U & 1U);  // to the nearest, ties to even
    const auto upper = static_cast<std::uint16_t>(bits >> 16U);
    std::memcpy(&result[2 * index], &upper, 2);
  }
  return result;
}

std::vector<std::byte> widened(const std::vector<std::byte>& weight)
{
  std::vector<std::byte> result(weight.size() * 2);
  for (std::size_t index = 0; index < weight.size() / 2; ++index)
    std::memcpy(&result[4 * index + 2], &weight[2 * index], 2);
  return result;
}

std::vector<float> numbers_of(const std::vector<std::byte>& content, element type)
{
  const std::vector<std::byte> wide = type == element::brain ? widened(content) : content;
  std::vector<float> result(wide.size() / 4);
  if (!result.empty()) std::memcpy(result.data(), wide.data(), wide.size());
  return result;
}

std::vector<std::byte> bytes_of(const std::vector<float>& numbers)
{
  std::vector<std::byte> result(numbers.size() * 4);
  if (!result.empty()) std::memcpy(result.data(), numbers.data(), result.size());
  return result;
}

void take_averages(update_model& all, std::uint64_t number)
{
  const auto mean = [](float left, float right) { return (left + right) / 2; };
  for (std::size_t index = 0; index < all.parameter.size(); ++index) {
    const float before = all.parameter[index];
    all.momentum[index] = mean(all.momentum[index], all.gradient[index]);
    if (!all.variance.empty()) all.variance[index] = mean(all.variance[index], before);
    all.parameter[index] = mean(before, all.momentum[index]);
    if (number % 2 == 0) all.parameter[index] = mean(all.parameter[index], all.gradient[index]);
  }
}

}  // namespace differential
