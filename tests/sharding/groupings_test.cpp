// SPDX-License-Identifier: Apache-2.0
// How far apart are sums of gradients that were added in other groupings? At most 2 (W k - 1) 2^-24 times the sum of
// magnitudes.
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace groupings_test {

using namespace chunkmem;
using values = std::vector<float>;

values sum_of(const std::vector<values>& all)
{
  std::vector<const std::byte*> places;
  for (const values& it : all) places.push_back(reinterpret_cast<const std::byte*>(it.data()));
  values sum(all[0].size());
  collective::add_in_order(reinterpret_cast<std::byte*>(sum.data()), places, bytes{sum.size() * sizeof(float)},
                           {dtype::float32, 1});
  return sum;
}

/// The gradients of each rank for each element in each micro-batch: [rank][batch][element].
struct gradients {
  std::vector<std::vector<values>> of;

  gradients(std::uint64_t seed, std::uint32_t ranks, std::uint32_t batches)
  {
    std::mt19937_64 random{seed};
    std::normal_distribution<float> numbers;
    of.assign(ranks, std::vector<values>(batches, values(64)));
    for (auto& rank : of)
      for (values& batch : rank)
        for (float& it : batch) it = numbers(random) * std::exp2f(static_cast<float>(random() % 20));
  }
  /// Each rank adds up its batches, then ranks are added: reduce_last. In nodes of `of_node` first.
  [[nodiscard]] values ranks_last(std::size_t of_node) const
  {
    std::vector<values> nodes;
    for (std::size_t first = 0; first < of.size(); first += of_node) {
      std::vector<values> ranks;
      for (std::size_t rank = first; rank < first + of_node; ++rank) ranks.push_back(sum_of(of[rank]));
      nodes.push_back(sum_of(ranks));
    }
    return sum_of(nodes);
  }
  /// Ranks are added in each batch, then batches: reduce_each.
  [[nodiscard]] values batches_last() const
  {
    std::vector<values> batches;
    for (std::size_t batch = 0; batch < of[0].size(); ++batch) {
      std::vector<values> ranks;
      for (const auto& rank : of) ranks.push_back(rank[batch]);
      batches.push_back(sum_of(ranks));
    }
    return sum_of(batches);
  }
  /// One after the other.
  [[nodiscard]] values chain() const
  {
    std::vector<values> all;
    for (const auto& rank : of) all.insert(all.end(), rank.begin(), rank.end());
    return sum_of(all);
  }
  [[nodiscard]] double magnitude(std::size_t index) const
  {
    double sum = 0;
    for (const auto& rank : of)
      for (const values& batch : rank) sum += std::abs(static_cast<double>(batch[index]));
    return sum;
  }
};

TEST_CASE("other groupings of ranks and micro-batches differ by no more than rounding may", "[sharding]")
{
  double worst = 0;  // of the bound
  bool differ = false;
  for (const std::uint32_t ranks : {1U, 2U, 4U, 8U})
    for (const std::uint32_t batches : {1U, 2U, 5U}) {
      const gradients all{ranks * 100 + batches, ranks, batches};
      std::vector<values> sums{all.chain(), all.batches_last()};
      for (std::uint32_t of_node = 1; of_node <= ranks; of_node *= 2) sums.push_back(all.ranks_last(of_node));
      for (std::size_t index = 0; index < sums[0].size(); ++index)
        for (const values& it : sums) {
          const double difference = std::abs(static_cast<double>(it[index]) - static_cast<double>(sums[0][index]));
          const double bound = 2.0 * (ranks * batches - 1) * 0x1p-24 * all.magnitude(index);
          CHECK(difference <= bound);
          if (bound > 0) worst = std::max(worst, difference / bound);
          differ = differ || difference > 0;
        }
    }
  CHECK(differ);  // or nothing was compared
  CHECK(worst < 1);
}

}  // namespace groupings_test
