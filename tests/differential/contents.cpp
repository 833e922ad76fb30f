// SPDX-License-Identifier: Apache-2.0
#include "contents.hpp"

#include <cstring>

namespace differential {

void fill_with(std::vector<std::byte>& content, element type, std::uint32_t number)
{
  std::uint32_t random = number * 2'654'435'761U + 1;
  if (type == element::brain) {
    for (std::size_t at = 0; at + 2 <= content.size(); at += 2) {
      random = random * 1'664'525U + 1'013'904'223U;
      const auto bits = static_cast<std::uint16_t>(0x3F00U | random >> 24U);
      std::memcpy(&content[at], &bits, 2);
    }
    return;
  }
  for (std::size_t at = 0; at + 4 <= content.size(); at += 4) {
    random = random * 1'664'525U + 1'013'904'223U;
    const std::uint32_t bits = 0x3F000000U | random >> 9U;
    std::memcpy(&content[at], &bits, 4);
  }
}

std::vector<std::byte> rounded(const std::vector<std::byte>& master)
{
  std::vector<std::byte> result(master.size() / 2);
  for (std::size_t at = 0; at < result.size() / 2; ++at) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &master[4 * at], 4);
    bits += 0x7FFFU + (bits >> 16U & 1U);  // to the nearest, ties to even
    const auto upper = static_cast<std::uint16_t>(bits >> 16U);
    std::memcpy(&result[2 * at], &upper, 2);
  }
  return result;
}

std::vector<std::byte> widened(const std::vector<std::byte>& weight)
{
  std::vector<std::byte> result(weight.size() * 2);
  for (std::size_t at = 0; at < weight.size() / 2; ++at) std::memcpy(&result[4 * at + 2], &weight[2 * at], 2);
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
  for (std::size_t at = 0; at < all.parameter.size(); ++at) {
    const float before = all.parameter[at];
    all.momentum[at] = mean(all.momentum[at], all.gradient[at]);
    if (!all.variance.empty()) all.variance[at] = mean(all.variance[at], before);
    all.parameter[at] = mean(before, all.momentum[at]);
    if (number % 2 == 0) all.parameter[at] = mean(all.parameter[at], all.gradient[at]);
  }
}

}  // namespace differential
