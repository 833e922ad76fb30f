// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_kernel.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cstring>
#include <vector>

namespace element_rows_test {

namespace cm = chunkmem;
using cm::dtype;
using namespace chunkmem::optimizer;
using namespace chunkmem::optimizer::detail;

namespace {

template <row_order Order>
void covers_each_element_once()
{
  for (const std::uint64_t elements : {0U, 1U, 7U, 8U, 9U, 16U, 127U, 128U, 129U, 1'000U}) {
    std::vector<int> seen(elements, 0);
    for (std::uint64_t index = 0; index < row_place<Order>::rows_of(elements); ++index) {
      const row_place<Order> place{index, elements};
      REQUIRE(place.count <= row_length<Order>);
      for (std::uint32_t position = 0; position < place.count; ++position) ++seen.at(place.element(position));
    }
    for (const int times : seen) REQUIRE(times == 1);
  }
}

constexpr dtype real_types[] = {dtype::float32, dtype::bfloat16, dtype::float16};

/// Rows of hostile bytes, loaded and stored again.
template <row_order Order>
void keeps_what_it_loads(dtype type, std::uint64_t elements, bool is_aligned)
{
  alignas(16) std::byte from[2048];
  alignas(16) std::byte to[2048] = {};
  for (std::size_t position = 0; position < sizeof from; ++position)
    from[position] = static_cast<std::byte>(support::scrambled(position));
  const std::size_t distance = is_aligned ? 0 : 4;
  const std::size_t size = elements * size_of_real(type);
  for (std::uint64_t index = 0; index < row_place<Order>::rows_of(elements); ++index) {
    const row_place<Order> place{index, elements};
    const bool is_wide = Order == row_order::neighbours && is_aligned && place.count == row_length<Order>;
    const row_floats<Order> wide = widened(load_row(from + distance, type, place, is_wide), type, is_wide);
    store_row(to + distance, type, place, is_wide, wide, nearest_rounding{});
  }
  for (std::size_t position = 0; position < size / size_of_real(type); ++position) {
    std::uint16_t half[2];
    std::memcpy(&half[0], from + distance + 2 * position, 2);
    std::memcpy(&half[1], to + distance + 2 * position, 2);
    if (type == dtype::bfloat16)
      REQUIRE(half[1] == cm::round_to<cm::bf16>(cm::to_float(cm::bf16::from_bits(half[0]))).bits());
    if (type == dtype::float16)
      REQUIRE(half[1] == cm::round_to<cm::fp16>(cm::to_float(cm::fp16::from_bits(half[0]))).bits());
    if (type == dtype::float32)
      REQUIRE(std::memcmp(from + distance + 4 * position, to + distance + 4 * position, 4) == 0);
  }
  REQUIRE(to[distance + size] == std::byte{0});
}

template <row_order Order>
void draws_the_bits_of_its_elements()
{
  const cm::rounding_key key{0x123456789U, 77, 5, 2};
  for (std::uint64_t index = 0; index < 100; ++index) {
    const row_place<Order> place{index, 10'000};
    const stochastic_rounding<Order> how{cm::detail::rounding_stream{key}, place};
    for (std::uint32_t position = 0; position < row_length<Order>; ++position)
      REQUIRE(how.random[position] == cm::random_bits(key, place.element(position)));
  }
}

}  // namespace

TEST_CASE("rows cover every element of a tensor once", "[optimizer]")
{
  covers_each_element_once<row_order::neighbours>();
  covers_each_element_once<row_order::by_counter>();
}

TEST_CASE("rows keep what they load, whole or at the end, aligned or not", "[optimizer]")
{
  for (const dtype type : real_types)
    for (const std::uint64_t elements : {1U, 8U, 13U, 128U, 300U})
      for (const bool is_aligned : {true, false}) {
        keeps_what_it_loads<row_order::neighbours>(type, elements, is_aligned);
        keeps_what_it_loads<row_order::by_counter>(type, elements, is_aligned);
      }
}

TEST_CASE("rows draw the random bits of their elements", "[optimizer]")
{
  draws_the_bits_of_its_elements<row_order::neighbours>();
  draws_the_bits_of_its_elements<row_order::by_counter>();
}

}  // namespace element_rows_test
