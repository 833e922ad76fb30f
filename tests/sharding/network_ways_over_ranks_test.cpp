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
std::vector<std::vector<float>> train(std::string_view planner, cm::bytes device)
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

template <class Program>
void has_the_bits_of_keep_all()
{
  const auto kept = train<Program>("keep_all", plenty);
  REQUIRE(kept[0] != kept[1]);  // other rows
  for (const std::string_view planner : {"swap_all", "recompute_all", "karma"})
    for (const cm::bytes device : {0_B, 192_KiB}) {
      INFO(Program::name << ", planner " << planner << ", device " << device.count());
      CHECK(train<Program>(planner, device) == kept);
    }
}

}  // namespace

TEST_CASE("over ranks the ways of a network have the bits of one that keeps all activations", "[sharding]")
{
  using planner = support::chosen_planner;
  has_the_bits_of_keep_all<small::picture_network<model, planner>>();
  has_the_bits_of_keep_all<small::contrastive_network<model, planner>>();
  has_the_bits_of_keep_all<small::adversarial_networks<model, planner>>();
  has_the_bits_of_keep_all<small::normalised_network<model, planner>>();
}

}  // namespace network_ways_over_ranks_test
