// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/decision_kernels.hpp>

#include <chunkmem/optimizer/device_kernel.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cstring>
#include <span>
#include <vector>

namespace measure_kernel_test {

namespace cm = chunkmem;
using cm::gradient_measure;
using namespace chunkmem::optimizer;

namespace {

bool same(const gradient_measure& left, const gradient_measure& right)
{
  return std::memcmp(&left.squares, &right.squares, 8) == 0 &&
         std::memcmp(&left.magnitudes, &right.magnitudes, 8) == 0 &&
         std::memcmp(&left.largest, &right.largest, 4) == 0 && left.finite == right.finite;
}

template <class Element>
Element number_of(float value)
{
  return cm::round_to<Element>(value);
}

/// Blocks as `measure_one_block` takes them; `spoilt` is a place for a NaN.
template <class Element>
void equals_the_host(std::size_t elements, std::uint64_t key, bool is_hostile)
{
  std::vector<Element> numbers(elements);
  for (std::size_t index = 0; index < elements; ++index) {
    const float value =
        is_hostile && index % 4099 == 4098 ? support::hostile(11 * (key + index)) : support::tame(key + index);
    numbers[index] = number_of<Element>(index % 5 == 0 ? value * 1e-6F : value);
  }
  const std::uint64_t blocks = blocks_of(elements);
  std::vector<gradient_measure> sums(blocks + 2, gradient_measure{-1.0, -1.0, -1.0F, true});
  block_range range{99, 99};
  loop_launcher::run(measure_kernel{reinterpret_cast<const std::byte*>(numbers.data()), cm::dtype_of<Element>, elements,
                                    sums.data(), &range, 1});
  for (std::uint64_t block = 0; block < blocks; ++block) {
    const std::size_t begin = block * cm::measure_block;
    const std::span<const Element> all{numbers};
    REQUIRE(same(sums[1 + block],
                 cm::measure_one_block(all.subspan(begin, std::min(cm::measure_block, elements - begin)))));
  }
  CHECK(sums[0].squares == -1.0);
  CHECK(sums[blocks + 1].squares == -1.0);
  if (blocks > 0) CHECK((range.first == 1 && range.count == blocks));
}

}  // namespace

TEST_CASE("blocks measured in lanes have the bits of the host's", "[optimizer]")
{
  for (const std::size_t elements :
       {0U, 1U, 31U, 32U, 33U, 193U, 210U, 225U, 255U, 256U, 257U, 4095U, 4096U, 4097U, 8'400U, 20'011U})
    for (const bool is_hostile : {false, true}) {
      INFO(elements << " elements" << (is_hostile ? ", hostile" : ""));
      equals_the_host<float>(elements, 3, is_hostile);
      equals_the_host<cm::bf16>(elements, 5, is_hostile);
      equals_the_host<cm::fp16>(elements, 7, is_hostile);
    }
}

TEST_CASE("blocks of hostile numbers have the bits of the host's", "[optimizer]")
{
  for (std::uint64_t key = 0; key < 64; ++key) equals_the_host<float>(4'098 + 4'099 * (key % 3), 1000 * key, true);
}

TEST_CASE("numbers are counted in blocks of 4,096", "[optimizer]")
{
  CHECK(blocks_of(0) == 0);
  CHECK(blocks_of(1) == 1);
  CHECK(blocks_of(4096) == 1);
  CHECK(blocks_of(4097) == 2);
}

}  // namespace measure_kernel_test

namespace clear_ranges_kernel_test {

using namespace chunkmem::optimizer;

TEST_CASE("ranges are cleared, as many as there are tensors", "[optimizer]")
{
  block_range ranges[3] = {{1, 2}, {3, 4}, {5, 6}};
  loop_launcher::run(clear_ranges_kernel{ranges, 2});
  CHECK((ranges[0].count == 0 && ranges[1].count == 0 && ranges[2].count == 6));
}

}  // namespace clear_ranges_kernel_test

namespace sum_blocks_kernel_test {

namespace cm = chunkmem;
using cm::gradient_measure;
using namespace chunkmem::optimizer;

TEST_CASE("sums of blocks add up to the measures of the host, tensor by tensor", "[optimizer]")
{
  const std::size_t sizes[] = {1, 5000, 0, 4096, 100'003};
  std::vector<gradient_measure> sums(40);
  std::vector<block_range> ranges(std::size(sizes));
  std::vector<gradient_measure> found(std::size(sizes), gradient_measure{-1.0, -1.0, -1.0F, false});
  std::vector<std::vector<float>> tensors;
  std::uint64_t first = 3;
  for (std::size_t index = 0; index < std::size(sizes); ++index) {
    tensors.push_back(support::tame_numbers(sizes[index], index));
    if (index == 3) tensors.back()[17] = -INFINITY;
    loop_launcher::run(measure_kernel{reinterpret_cast<const std::byte*>(tensors[index].data()), cm::dtype::float32,
                                      sizes[index], sums.data(), &ranges[index], first});
    first += blocks_of(sizes[index]);
  }
  loop_launcher::run(sum_blocks_kernel{sums.data(), ranges.data(), found.data(), std::size(sizes)});
  for (std::size_t index = 0; index < std::size(sizes); ++index) {
    const gradient_measure expected = cm::measure(std::span<const float>{tensors[index]});
    CHECK(std::memcmp(&found[index].squares, &expected.squares, 8) == 0);
    CHECK(std::memcmp(&found[index].magnitudes, &expected.magnitudes, 8) == 0);
    CHECK(found[index].largest == expected.largest);
    CHECK(found[index].finite == expected.finite);
  }
}

}  // namespace sum_blocks_kernel_test
