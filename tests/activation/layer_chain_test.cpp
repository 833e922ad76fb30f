// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/oracles/random_chain.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace layer_chain_test {

using namespace chunkmem;
using namespace chunkmem::activation;

namespace {

layer_chain three_blocks()
{
  return {.blocks = {{.name = "stem",
                      .forward_seconds = 1,
                      .backward_seconds = 2,
                      .recompute_seconds = 3,
                      .saved = 30_B,
                      .boundary = 10_B,
                      .gradient = 11_B,
                      .forward_working = 5_B,
                      .backward_working = 6_B,
                      .carried = 1_B,
                      .reads_input = true},
                     {.name = "body",
                      .forward_seconds = 10,
                      .backward_seconds = 20,
                      .saved = 50_B,
                      .boundary = 7_B,
                      .gradient = 8_B,
                      .forward_working = 4_B,
                      .passing_working = 9_B,
                      .carried = 3_B},
                     {.name = "head",
                      .forward_seconds = 100,
                      .backward_seconds = 200,
                      .saved = 2_B,
                      .boundary = 2_B,
                      .backward_working = 7_B}},
          .input = 17_B};
}

layer_chain equal_blocks(const std::vector<std::uint64_t>& saved)
{
  layer_chain chain;
  for (const std::uint64_t size : saved) chain.blocks.push_back({.name = "block", .saved = bytes{size}});
  return chain;
}

using cuts = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a chain that cannot be is refused with the name of its block", "[activation]")
{
  using Catch::Matchers::ContainsSubstring;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK_NOTHROW(three_blocks().check());
  CHECK_THROWS_WITH(layer_chain{}.check(), ContainsSubstring("no block"));
  struct member {
    double chain_block::*time;
    std::string_view name;
  };
  for (const auto& [time, name] :
       {member{&chain_block::forward_seconds, "forward time"}, member{&chain_block::backward_seconds, "backward time"},
        member{&chain_block::recompute_seconds, "recompute time"}})
    for (const double bad : {-1.0, nan, infinity}) {
      layer_chain chain = three_blocks();
      chain.blocks[1].*time = bad;
      CHECK_THROWS_AS(chain.check(), config_error);
      CHECK_THROWS_WITH(chain.check(), ContainsSubstring("block 1 (\"body\")") && ContainsSubstring(std::string{name}));
    }
  layer_chain chain = three_blocks();
  chain.blocks[2].boundary = 3_B;
  CHECK_THROWS_AS(chain.check(), config_error);
  CHECK_THROWS_WITH(chain.check(), ContainsSubstring("block 2 (\"head\")") && ContainsSubstring("output"));
  chain = three_blocks();
  for (chain_block& block : chain.blocks) block.forward_seconds = block.backward_seconds = 0;
  CHECK_NOTHROW(chain.check());
}

TEST_CASE("a chain adds its times and its saved bytes", "[activation]")
{
  const layer_chain chain = three_blocks();
  CHECK(chain.size() == 3);
  CHECK(chain.forward_seconds() == 111);
  CHECK(chain.backward_seconds() == 222);
  CHECK(chain.unlimited_seconds() == 333);
  CHECK(chain.saved() == 82_B);
  CHECK(chain.input_of(0) == 17_B);
  CHECK(chain.input_of(1) == 10_B);
  CHECK(chain.input_of(2) == 7_B);
  CHECK(chain.blocks[0].again_seconds() == 3);
  CHECK(chain.blocks[1].again_seconds() == 10);
  CHECK(chain.blocks[1].inner() == 43_B);
  layer_chain large = equal_blocks({UINT64_MAX, 1});
  CHECK_THROWS_AS(large.saved(), size_overflow);
}

TEST_CASE("merged blocks save what their parts save, and end with the output of the last part", "[activation]")
{
  const layer_chain whole = merged(three_blocks(), {0, 2});
  REQUIRE(whole.size() == 2);
  CHECK(whole.input == 17_B);
  const chain_block expected{.name = "stem to body",
                             .forward_seconds = 11,
                             .backward_seconds = 22,
                             .recompute_seconds = 13,
                             .saved = 80_B,
                             .boundary = 7_B,
                             .gradient = 8_B,
                             .forward_working = 5_B,
                             .passing_working = 9_B,
                             .backward_working = 17_B,  // and the gradient between the parts
                             .carried = 3_B,
                             .reads_input = true};
  CHECK(whole.blocks[0] == expected);
  layer_chain alone = three_blocks();
  alone.blocks[2].recompute_seconds = alone.blocks[2].forward_seconds;
  CHECK(whole.blocks[1] == alone.blocks[2]);
  CHECK(merged(three_blocks(), {0}).blocks[0].name == "stem to head");
}

TEST_CASE("any merge keeps the sums of a chain and the outputs at its cuts", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    const layer_chain chain = support::roll_chain(dice, {.most_blocks = 12}).chain;
    cuts begins{0};
    for (std::uint32_t block = 1; block < chain.size(); ++block)
      if (dice.one_in(2)) begins.push_back(block);
    const layer_chain coarse = merged(chain, begins);
    REQUIRE(coarse.size() == begins.size());
    REQUIRE(coarse.saved() == chain.saved());
    REQUIRE(coarse.forward_seconds() == chain.forward_seconds());
    REQUIRE(coarse.backward_seconds() == chain.backward_seconds());
    double again = 0;
    for (const chain_block& block : chain.blocks) again += block.again_seconds();
    for (const chain_block& block : coarse.blocks) again -= block.again_seconds();
    REQUIRE(again == 0);
    for (std::uint32_t block = 0; block < coarse.size(); ++block)
      REQUIRE(coarse.input_of(block) == chain.input_of(begins[block]));
    REQUIRE_NOTHROW(coarse.check());
  }
}

TEST_CASE("cuts that leave a block out, or merge nothing, are refused", "[activation]")
{
  const layer_chain chain = three_blocks();
  for (const cuts& bad : {cuts{}, cuts{1}, cuts{0, 0}, cuts{0, 2, 1}, cuts{0, 3}, cuts{0, 1, 7}})
    CHECK_THROWS_AS(merged(chain, bad), config_error);
}

TEST_CASE("equal cuts give merged blocks of about equal bytes", "[activation]")
{
  CHECK(equal_cuts(equal_blocks({1, 1, 1, 1, 1, 1}), 3) == cuts{0, 2, 4});
  CHECK(equal_cuts(equal_blocks({1, 1, 1, 1}), 4) == cuts{0, 1, 2, 3});
  CHECK(equal_cuts(equal_blocks({1, 1, 1, 1}), 9) == cuts{0, 1, 2, 3});
  CHECK(equal_cuts(equal_blocks({2, 1, 1, 4}), 2) == cuts{0, 3});
  CHECK(equal_cuts(equal_blocks({2, 1, 1, 4}), 4) == cuts{0, 1, 2, 3});  // as the chain is
  CHECK(equal_cuts(equal_blocks({1, 1, 1, 1}), 1) == cuts{0});
  CHECK(equal_cuts(equal_blocks({0, 0, 0}), 2) == cuts{0});
  CHECK(equal_cuts(equal_blocks({5}), 3) == cuts{0});
}

TEST_CASE("equal cuts are cuts of any chain, at most as many as asked for", "[activation]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    std::vector<std::uint64_t> saved;
    for (std::uint32_t block = dice.between(1, 30); block > 0; --block)
      saved.push_back(dice.one_in(4) ? dice.below(1'000) : dice.below(20));
    const layer_chain chain = equal_blocks(saved);
    const std::uint32_t most = dice.between(1, 35);
    CAPTURE(seed, most);
    const cuts begins = equal_cuts(chain, most);
    REQUIRE(begins.size() <= most);
    REQUIRE(merged(chain, begins).saved() == chain.saved());
    // No merged block exceeds a share by more than its largest parts.
    const std::uint64_t largest = *std::max_element(saved.begin(), saved.end());
    const layer_chain coarse = merged(chain, begins);
    for (const chain_block& block : coarse.blocks)
      REQUIRE(block.saved.count() <= chain.saved().count() / most + 1 + largest);
  }
}

TEST_CASE("long chains are tried with at most twelve numbers of blocks, the whole chain among them", "[activation]")
{
  CHECK(block_counts(equal_blocks({1, 1, 1})) == cuts{3});
  CHECK(block_counts(equal_blocks(std::vector<std::uint64_t>(9, 1))) == cuts{4, 6, 8, 9});
  CHECK(block_counts(equal_blocks(std::vector<std::uint64_t>(200, 1))) ==
        cuts{4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 200});
}

}  // namespace layer_chain_test
