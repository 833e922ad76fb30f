// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/catch.hpp>
#include <support/chosen_planner.hpp>
#include <support/small_network.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace network_ways_over_ranks_test {

/// Networks over two ranks that are evaluated, whose backward is skipped, that run forward twice before a backward, or
/// that see small batches: the bits of networks that keep all activations.

namespace cm = chunkmem;
namespace small = support::small;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using model = cm::sharded_model<arena, cm::collective::local_threads>;

namespace {

constexpr std::uint32_t ranks = 2;
constexpr cm::bytes plenty = 512_KiB;

/// Losses and weights by rank. @param device   0: the smallest that a rehearsal proves
template <class Program>
std::vector<std::vector<float>> train(std::string_view planner, cm::bytes device, std::uint32_t micro_batches)
{
  std::vector<std::vector<float>> left(ranks);
  std::vector<cm::bytes> smallest(ranks, device);
  for (const bool trains : {false, true}) {
    if (!trains && device > 0_B) continue;
    cm::sharding::thread_ranks{ranks}.run([&](cm::sharding::thread_ranks::place& here) {
      const std::uint32_t rank = here.rank();
      arena memory{{.device_capacity = trains ? smallest[rank] : plenty, .host_capacity = plenty}};
      model m{memory, here.all(), {.chunk_bytes = small::frame}, {.unit_bytes = 32_KiB}};
      Program it{m, support::chosen_planner{planner}, rank};
      it.micro_batches = micro_batches;
      const cm::bytes least = m.rehearse([&] { it.step(0); }, cm::rehearse_on::scratch).smallest_device;
      if (!trains) {
        smallest[rank] = least;
        return;
      }
      it.losses.clear();
      it.fill();
      for (std::uint64_t now = 0; now < 5; ++now) it.step(now);
      left[rank] = it.collect();
    });
  }
  return left;
}

/// @param half   each planner has one and two micro-batches in turn, on another device each; else both on both
template <class Program>
void has_the_bits_of_keep_all(std::span<const std::string_view> planners, bool half)
{
  const std::vector<std::vector<float>> kept[] = {train<Program>("keep_all", plenty, 1),
                                                  train<Program>("keep_all", plenty, 2)};
  REQUIRE(kept[0][0] != kept[0][1]);  // other rows
  REQUIRE(kept[0] != kept[1]);
  std::uint32_t number = 0;
  for (const std::string_view planner : planners) {
    ++number;
    for (const cm::bytes device : {0_B, 192_KiB})
      for (const std::uint32_t micro_batches : {1U, 2U}) {
        if (half && (number + micro_batches + (device == 0_B ? 1 : 0)) % 2 == 0) continue;
        INFO(Program::name << ", planner " << planner << ", device " << device.count() << ", micro-batches "
                           << micro_batches);
        CHECK(train<Program>(planner, device, micro_batches) == kept[micro_batches - 1]);
      }
  }
}
void all_have_the_bits_of_keep_all(std::span<const std::string_view> planners, bool half)
{
  using planner = support::chosen_planner;
  has_the_bits_of_keep_all<small::convnet<model, planner>>(planners, half);
  has_the_bits_of_keep_all<small::contrastive_network<model, planner>>(planners, half);
  has_the_bits_of_keep_all<small::adversarial_networks<model, planner>>(planners, half);
  has_the_bits_of_keep_all<small::normalised_network<model, planner>>(planners, half);
}

}  // namespace

TEST_CASE("over ranks the ways of a network have the bits of one that keeps all activations", "[sharding]")
{
  constexpr std::string_view some[] = {"swap_all", "recompute_all", "karma"};
  all_have_the_bits_of_keep_all(some, true);
}

TEST_CASE("over ranks each way has the bits of keep_all under every plan, device and accumulation", "[sharding][.slow]")
{
  all_have_the_bits_of_keep_all(support::chosen_planner::names, false);
}

}  // namespace network_ways_over_ranks_test
