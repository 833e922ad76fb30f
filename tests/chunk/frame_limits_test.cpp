// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_size_search.hpp>

#include <support/catch.hpp>

#include <vector>

namespace frame_limits_test {

using namespace chunkmem;

namespace {

/// The 16-bit sizes of a GPT without its small tensors.
std::vector<bytes> gpt(std::uint64_t hidden, std::uint64_t layers, std::uint64_t vocabulary)
{
  std::vector<bytes> sizes{bytes{2 * vocabulary * hidden}};
  for (std::uint64_t layer = 0; layer < layers; ++layer)
    for (const std::uint64_t part : {3U, 1U, 4U, 4U}) sizes.emplace_back(2 * part * hidden * hidden);
  return sizes;
}

}  // namespace

TEST_CASE("the largest tensor of the body is no vocabulary, whether that is larger or smaller", "[chunk]")
{
  for (const std::uint64_t hidden : {768U, 2'048U, 8'192U, 12'288U, 20'480U})
    CHECK(frame_limits::largest_of_body(gpt(hidden, 6, 50'257)) == bytes{8 * hidden * hidden});
  std::vector<bytes> untied = gpt(1'024, 4, 32'000);
  untied.push_back(untied.front());
  CHECK(frame_limits::largest_of_body(untied) == bytes{8 * 1'024 * 1'024});
}

TEST_CASE("the largest tensor of all counts where nothing large is repeated", "[chunk]")
{
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{}) == 0_B);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{100_B}) == 100_B);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{100_B, 200_B, 200_B}) == 200_B);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{1_MiB, 2_MiB, 1_KiB, 1_KiB, 1_KiB}) == 2_MiB);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{1_KiB, 2_KiB, 1_KiB, 1_KiB}) == 1_KiB);
}

TEST_CASE("limits are 1.25 times the largest tensor, at least 64 MiB, and 1/64 of it", "[chunk]")
{
  CHECK(frame_limits::around(128_MiB).most == 160_MiB);
  CHECK(frame_limits::around(128_MiB).least == 2_MiB);
  CHECK(frame_limits::around(8_MiB).most == 64_MiB);
  CHECK(frame_limits::around(8_MiB).least == 128_KiB);
  CHECK(frame_limits::around(0_B).least == 256_B);
  CHECK(frame_limits::around(bytes{300'000'001}).most <= bytes{375'000'320});
  CHECK(frame_limits::around(bytes{300'000'001}).most.count() % 256 == 0);
  CHECK(frame_limits::around(bytes{300'000'001}).least.count() % 256 == 0);
  CHECK_THROWS_AS(frame_limits::around(bytes{UINT64_MAX}), size_overflow);
  CHECK(frame_limits::of(gpt(4'096, 5, 50'257)).most == 160_MiB);
}

}  // namespace frame_limits_test
