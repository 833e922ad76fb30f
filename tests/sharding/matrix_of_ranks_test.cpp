// SPDX-License-Identifier: Apache-2.0
// Random trainings over ranks: element types, policies, ownerships, stages, groupings and capacities, each compared
// with one rank.
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/train_on_ranks.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace matrix_of_ranks_test {

namespace cm = chunkmem;
using support::ranks::job;
using support::ranks::train;
using support::ranks::train_by;
using support::ranks::updates;

constexpr std::uint64_t kinds = 8;  ///< of element types, policies and ownerships, which take turns with stages

job random_job(std::uint64_t seed, std::mt19937_64& random)
{
  job result{.ranks = 1 + static_cast<std::uint32_t>(random() % 8)};
  result.steps = 2 + static_cast<std::uint32_t>(random() % 3);
  result.micro_batches = 1 + static_cast<std::uint32_t>(random() % 3);
  result.sums_each = random() % 2 == 0;
  result.clip = random() % 3 == 0 ? 0.0F : 0.5F * static_cast<float>(random() % 5);
  result.scale = random() % 2 == 0 ? 1.0F : 1.0F / static_cast<float>(result.ranks);
  result.frames = (result.ranks == 1 ? 40 : 20) + static_cast<std::uint32_t>(random() % 30);
  result.rehearses = random() % 2 == 0;
  result.on_compute = random() % 2 == 0;
  result.is_tight = random() % 2 == 0;
  constexpr cm::sharding::zero stages[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3,
                                           cm::sharding::zero_3_reduce_last};
  result.divided = stages[(seed + seed / kinds) % 4];
  std::mt19937_64 of_updates{seed * 77};
  result.when = static_cast<updates>(of_updates() % 3);
  if (result.when == updates::early) {
    // the norm is some hundreds: it is never reached, behind some gradients, by all of them, or by the first one
    constexpr float norms[] = {1e6F, 1e6F, 100, 400, 1000, 1};
    result.clip = norms[of_updates() % std::size(norms)];
    result.undo_kilobytes = of_updates() % 2 == 0 ? 4096 : 64U << of_updates() % 4;
  }
  return result;
}
/// Nodes of any size that divides the ranks; without them a node has all.
job in_nodes(job wanted, std::uint64_t which)
{
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = 1; size <= wanted.ranks; ++size)
    if (wanted.ranks % size == 0) sizes.push_back(size);
  wanted.of_node = sizes[which % sizes.size()];
  return wanted;
}
/// Weights of 16 bits lend their bytes to gradients in half of the trainings that can.
job lending(job wanted, std::uint64_t seed)
{
  std::mt19937_64 random{seed * 91};
  wanted.in_place = random() % 2 == 0 && (wanted.micro_batches == 1 || wanted.divided != cm::sharding::zero_3);
  return wanted;
}
/// Chunks that hold the largest tensor, and room for some groups of them.
job in_groups(job wanted)
{
  wanted.frame = cm::bytes{std::uint64_t{20} * 4096 * 4};
  wanted.frames += 10 * wanted.ranks;
  return wanted;
}

constexpr std::string_view ownership_of_kind[kinds] = {"whole", "sharded",      "sharded",      "sharded",
                                                       "whole", "hierarchical", "hierarchical", "hierarchical"};

std::vector<std::string> run(std::uint64_t seed)
{
  std::mt19937_64 random{seed};
  const job wanted = random_job(seed, random);
  const job of_16_bits = lending(wanted, seed);
  using namespace cm::ownership;
  switch (seed % kinds) {
    case 0: return train_by<float, whole>({}, in_groups(wanted));
    case 1: return train_by<cm::bf16, sharded>({.transfer = "planned"}, of_16_bits);
    case 2: return train<float, cm::eviction::lru, cm::transfer::no_prefetch>(wanted);
    case 3: return train_by<float, sharded>({.eviction = "cost_aware", .placement = "device_margin"}, wanted);
    case 4: return train_by<cm::bf16, whole>({.eviction = "fifo", .layout = "best_fit_layout"}, in_groups(of_16_bits));
    case 5: return train_by<float, hierarchical>({}, in_nodes(wanted, random()), support::adversarial_ranks{seed});
    case 6:
      return train_by<cm::bf16, hierarchical>({.transfer = "planned"}, of_16_bits, support::adversarial_ranks{seed});
    default:
      return train_by<cm::fp16, hierarchical>({.eviction = "lru", .transfer = "planned"},
                                              in_nodes(of_16_bits, random()));
  }
}

/// @return   how many were not the same as one rank
std::uint64_t differing(std::uint64_t first, std::uint64_t count)
{
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::vector<std::string> complaints = run(seed);
    const auto found = std::ranges::find_if(complaints, [](const std::string& it) { return !it.empty(); });
    if (found == complaints.end()) continue;
    ++wrong;
    UNSCOPED_INFO("seed " << seed << ": " << *found);
  }
  return wrong;
}

/// Ownership x stage x capacity x accumulation (k micro-batches or one) x time of updates, each as words.
std::vector<std::string> words_of(std::uint64_t seed)
{
  std::mt19937_64 random{seed};
  const job it = random_job(seed, random);
  const std::string stage =
      std::string{it.divided.gradients ? "gradients" : "-"} + (it.divided.parameters ? "+parameters" : "");
  return {std::string{ownership_of_kind[seed % kinds]}, stage, it.is_tight ? "tight" : "wide",
          it.micro_batches > 1 ? "accumulates" : "one batch",
          it.when == updates::late    ? "late"
          : it.when == updates::early ? "early"
                                      : "at once"};
}

constexpr std::uint64_t count_in_ci = 48;

TEST_CASE("random trainings have every pair of an ownership, a stage, a capacity, an accumulation and a time",
          "[sharding]")
{
  std::set<std::string> single;
  std::set<std::pair<std::string, std::string>> pairs;
  for (std::uint64_t seed = 1; seed <= count_in_ci; ++seed) {
    const auto words = words_of(seed);
    for (std::size_t left = 0; left < words.size(); ++left)
      for (std::size_t right = left + 1; right < words.size(); ++right) pairs.insert({words[left], words[right]});
    single.insert(words.begin(), words.end());
  }
  CHECK(single.size() == 3 + 4 + 2 + 2 + 3);
  CHECK(pairs.size() == 3 * 4 + 2 * (3 * 2) + 3 * 3 + 2 * (4 * 2) + 4 * 3 + 2 * 2 + 2 * (2 * 3));
}

TEST_CASE("random trainings over ranks have the bits of one rank", "[sharding]")
{
  constexpr std::uint64_t count = count_in_ci;
  const std::uint64_t wrong = differing(1, count);
  CHECK(wrong == 0);
  support::write_figures("test_sharding_matrix", "build/test/bin/test_sharding",
                         {{"sharding.ranks_equal_single_percent", 100 * (count - wrong) / count, "%", "==", 100}});
}

TEST_CASE("two thousand random trainings over ranks have the bits of one rank", "[sharding][.slow]")
{
  CHECK(differing(1'000, 2'000) == 0);
}

}  // namespace matrix_of_ranks_test
