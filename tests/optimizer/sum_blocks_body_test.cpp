// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/sum_blocks_body.hpp>

#include <chunkmem/optimizer/loop_launcher.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cstring>
#include <span>
#include <vector>

namespace sum_blocks_body_test {

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
  for (std::size_t at = 0; at < std::size(sizes); ++at) {
    tensors.push_back(support::tame_numbers(sizes[at], at));
    if (at == 3) tensors.back()[17] = -INFINITY;
    loop_launcher::run(measure_body{reinterpret_cast<const std::byte*>(tensors[at].data()), cm::dtype::float32,
                                    sizes[at], sums.data(), &ranges[at], first});
    first += blocks_of(sizes[at]);
  }
  loop_launcher::run(sum_blocks_body{sums.data(), ranges.data(), found.data(), std::size(sizes)});
  for (std::size_t at = 0; at < std::size(sizes); ++at) {
    const gradient_measure expected = cm::measure(std::span<const float>{tensors[at]});
    CHECK(std::memcmp(&found[at].squares, &expected.squares, 8) == 0);
    CHECK(std::memcmp(&found[at].magnitudes, &expected.magnitudes, 8) == 0);
    CHECK(found[at].largest == expected.largest);
    CHECK(found[at].finite == expected.finite);
  }
}

}  // namespace sum_blocks_body_test
