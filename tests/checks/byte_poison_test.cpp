// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/byte_poison.hpp>

#include <chunkmem/tensor/dtype.hpp>
#include <support/catch.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace byte_poison_test {

using namespace chunkmem;
using namespace chunkmem::checks;

TEST_CASE("poison is NaN in each type of floating point", "[checks]")
{
  std::array<float, 5> values{};
  fill_with_poison(std::as_writable_bytes(std::span{values}));
  for (const float value : values) CHECK(std::isnan(value));
  CHECK(std::isnan(to_float(bf16::from_bits(0xFFFF))));
  CHECK(std::isnan(to_float(fp16::from_bits(0xFFFF))));
}

TEST_CASE("a sum changes with every single byte", "[checks]")
{
  for (const std::size_t size : {1U, 7U, 8U, 30U, 256U}) {
    std::vector<std::byte> content(size, std::byte{3});
    const std::uint64_t before = sum_of_bytes(content);
    CHECK(sum_of_bytes(content) == before);
    for (std::byte& it : content) {
      it = std::byte{4};
      CHECK(sum_of_bytes(content) != before);
      it = std::byte{3};
    }
    CHECK(sum_of_bytes(std::span{content}.first(size - 1)) != before);
  }
  const std::array<std::byte, 16> ordered{std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},
                                          std::byte{0}, std::byte{0}, std::byte{0}, std::byte{2}};
  const std::array<std::byte, 16> swapped{std::byte{2}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},
                                          std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
  CHECK(sum_of_bytes(ordered) != sum_of_bytes(swapped));
}

TEST_CASE("elements that were not written are counted, and the first is named", "[checks]")
{
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16}) {
    std::vector<std::byte> content(10 * size_of(type));
    CHECK(count_unwritten(content, type).elements == 0);
    fill_as_unwritten(content, type);
    CHECK(count_unwritten(content, type).elements == 10);
    for (const std::size_t element : {0U, 1U, 5U}) content[element * size_of(type)] = std::byte{0};  // one byte of each
    CHECK(count_unwritten(content, type).elements == 7);
    CHECK(count_unwritten(content, type).first == 2);
  }
}

TEST_CASE("the mark of an unwritten element is a NaN that arithmetic does not make", "[checks]")
{
  const float mark = std::bit_cast<float>(unwritten_element(dtype::float32));
  CHECK(std::isnan(mark));
  const volatile float one = 1;  // else the product is not computed
  const volatile float unwritten = mark;
  const float made = unwritten * one;
  CHECK(std::bit_cast<std::uint32_t>(made) != unwritten_element(dtype::float32));
  CHECK(std::isnan(to_float(bf16::from_bits(static_cast<std::uint16_t>(unwritten_element(dtype::bfloat16))))));
  CHECK(std::isnan(to_float(fp16::from_bits(static_cast<std::uint16_t>(unwritten_element(dtype::float16))))));
}

}  // namespace byte_poison_test
