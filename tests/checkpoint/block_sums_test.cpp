// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/generation_files.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace block_sums_test {

using namespace chunkmem;
using namespace chunkmem::checkpoint;

namespace {

std::vector<std::byte> random_bytes(std::size_t size)
{
  support::dice dice{size};
  std::vector<std::byte> made(size);
  for (std::size_t index = 0; index < size; index += 1 + dice.below(300))
    made[index] = static_cast<std::byte>(dice.below(256));
  return made;
}

/// One block after the other, as the definition says it.
std::vector<std::uint64_t> plain_sums(std::span<const std::byte> content, std::size_t header)
{
  std::vector<std::uint64_t> sums{io::checksum_of(content.first(header))};
  for (content = content.subspan(header); !content.empty();
       content = content.subspan(std::min<std::size_t>(content.size(), sum_block)))
    sums.push_back(io::checksum_of(content.first(std::min<std::size_t>(content.size(), sum_block))));
  return sums;
}

}  // namespace

TEST_CASE("a file has a checksum for its header and one for each block behind it, in whatever pieces it is written",
          "[checkpoint]")
{
  for (const std::size_t header : {std::size_t{0}, std::size_t{8}, std::size_t{1000}})
    for (const std::size_t behind : {std::size_t{0}, std::size_t{1}, std::size_t{sum_block} - 1, std::size_t{sum_block},
                                     2 * std::size_t{sum_block} + 1}) {
      INFO(header << " B of header, " << behind << " behind it");
      const auto content = random_bytes(header + behind);
      const auto right = plain_sums(content, header);
      CHECK(right.size() == blocks_in(content.size(), header));
      support::dice dice{behind};
      for (int turn = 0; turn < 3; ++turn) {
        block_sums sums{header};
        for (std::span<const std::byte> left = content; !left.empty();) {
          const std::size_t size = turn == 0
                                       ? left.size()
                                       : std::min<std::size_t>(left.size(), turn == 1 ? 1 + dice.below(100'000)
                                                                                      : 8 + dice.below(3) * sum_block);
          sums.add(left.first(size));
          left = left.subspan(size);
        }
        CHECK(sums.take() == right);
      }
    }
}

TEST_CASE("blocks cover a file without a gap, and each byte knows its own", "[checkpoint]")
{
  for (const std::uint64_t header : {std::uint64_t{0}, std::uint64_t{9}})
    for (const std::uint64_t behind : {std::uint64_t{0}, std::uint64_t{5}, sum_block, 3 * sum_block + 7}) {
      const std::uint64_t size = header + behind;
      std::uint64_t next = 0;
      for (std::uint64_t block = 0; block < blocks_in(size, header); ++block) {
        const block_range where = block_at(block, size, header);
        CHECK(where.begin == next);
        CHECK((where.size() > 0 || header == 0));
        CHECK((block == 0 || where.size() <= sum_block));
        next = where.end;
        if (where.size() == 0) continue;
        CHECK(block_of(where.begin, header) == block);
        CHECK(block_of(where.end - 1, header) == block);
      }
      CHECK(next == size);
    }
}

}  // namespace block_sums_test
