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

}  // namespace differential
