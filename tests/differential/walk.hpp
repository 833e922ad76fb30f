// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/splitmix64.hpp>
#include <support/mixed_model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

/// Training loops that leave what they did before at random moments: skipped and repeated layers, other orders, dropped
/// gradients, steps given up, begun again, skipped and clipped, evaluations and overwritten weights in between.
namespace divergence {

namespace mixed = support::mixed;
using mixed::batch;
using mixed::width;

inline constexpr std::uint32_t blocks = 4;
inline constexpr std::uint32_t most_visits = 6;  ///< of blocks, in one pass
inline constexpr std::uint64_t widest = 72;
inline constexpr std::uint64_t largest_extra = 2048;

/// A head, then an up, a bias in single precision and a down for each block, of several sizes.
struct uneven_blocks {
  static constexpr std::uint32_t blocks = divergence::blocks;
  static constexpr std::uint32_t most_visits = divergence::most_visits;
  static constexpr std::uint64_t widest = divergence::widest;

  [[nodiscard]] static constexpr std::uint64_t inner_of(std::uint32_t block) noexcept
  {
    constexpr std::uint64_t sizes[blocks] = {56, 24, widest, 8};
    return sizes[block];
  }
  [[nodiscard]] static constexpr std::size_t up_of(std::uint32_t block) noexcept { return 1 + std::size_t{block} * 3; }
  [[nodiscard]] static constexpr std::size_t bias_of(std::uint32_t block) noexcept { return up_of(block) + 1; }
  [[nodiscard]] static constexpr std::size_t down_of(std::uint32_t block) noexcept { return up_of(block) + 2; }
  [[nodiscard]] static std::vector<mixed::parameter> parameters()
  {
    std::vector<mixed::parameter> all{{width, width}};
    for (std::uint32_t block = 0; block < blocks; ++block)
      for (const mixed::parameter& it :
           {mixed::parameter{width, inner_of(block)}, mixed::parameter{1, inner_of(block), true, 1},
            mixed::parameter{inner_of(block), width}})
        all.push_back(it);
    return all;
  }
};
template <class Net>
inline constexpr std::size_t parameters_in = 1 + std::size_t{Net::blocks} * 3;
inline constexpr std::size_t parameter_count = parameters_in<uneven_blocks>;

/// The same random numbers on every machine.
class dice {
 public:
  explicit dice(std::uint64_t seed) noexcept : numbers_{seed} {}
  [[nodiscard]] std::uint32_t below(std::size_t end) noexcept
  {
    return static_cast<std::uint32_t>(numbers_.next() % end);
  }
  [[nodiscard]] bool percent(std::uint32_t chance) noexcept { return below(100) < chance; }

 private:
  chunkmem::splitmix64 numbers_;
};

/// A parameter is read on the host before the pass visits its next block.
struct look {
  std::uint32_t visit;
  std::uint32_t parameter;
};

/// The work of one iteration, and the call right before it.
struct turn {
  std::string_view name = "train";                   ///< of the loop
  std::vector<std::uint32_t> rewritten{};            ///< before: parameters that get new values
  bool finishes = false;                             ///< before: updates that wait are done
  bool rehearses = false;                            ///< before
  bool evaluates = false;                            ///< forward alone
  std::vector<std::vector<std::uint32_t>> passes{};  ///< the blocks that each one visits; gradients add up
  std::vector<look> looks{};                         ///< in the forward part of the first pass
  std::uint64_t extra = 0;                           ///< elements of a workspace that only this iteration has
  std::vector<std::uint32_t> dropped{};              ///< parameters whose gradients are dropped before the update
  bool false_start = false;  ///< its first pass is taken, its gradients are dropped, and it begins anew
  bool abandoned = false;    ///< gradients are dropped, nothing is updated
  bool spoilt = false;       ///< a gradient is infinite
};

template <class Net = uneven_blocks>
[[nodiscard]] turn regular()
{
  turn result;
  result.passes.emplace_back();
  for (std::uint32_t block = 0; block < Net::blocks; ++block) result.passes[0].push_back(block);
  return result;
}

/// It is that iteration, with nothing before it.
template <class Net>
[[nodiscard]] bool is_regular(const turn& it)
{
  return it.passes == regular<Net>().passes && it.rewritten.empty() && it.looks.empty() && it.dropped.empty() &&
         it.extra == 0 && !(it.finishes || it.rehearses || it.evaluates || it.false_start || it.abandoned || it.spoilt);
}

/// Leaves the usual way at a random moment. @param adds_up   gradients of several passes may add up
inline void stray(turn& it, dice& random, bool adds_up)
{
  std::vector<std::uint32_t>& visits = it.passes[0];
  const std::uint32_t index = random.below(visits.size());
  const auto there = visits.begin() + index;
  switch (random.below(12)) {
    case 0:
      if (visits.size() > 1) visits.erase(there);
      break;
    case 1:
      if (visits.size() < most_visits) visits.insert(there, visits[random.below(visits.size())]);
      break;
    case 2: std::swap(*there, visits[random.below(visits.size())]); break;
    case 3: visits.resize(1 + index); break;
    case 4:
      for (std::size_t left = visits.size(); left > 1; --left) std::swap(visits[left - 1], visits[random.below(left)]);
      break;
    case 5: it.looks.push_back({index, random.below(parameter_count)}); break;
    case 6: it.extra = 1 + random.below(largest_extra); break;
    case 7: it.dropped.push_back(random.below(parameter_count)); break;
    case 8: it.false_start = true; break;
    case 9: it.abandoned = random.percent(50); break;
    case 10: it.spoilt = true; break;
    default:
      if (adds_up)
        it.passes.push_back(visits);
      else
        std::reverse(visits.begin(), visits.end());
  }
}

/// A loop that is regular for a few iterations, leaves it, comes back.
[[nodiscard]] inline std::vector<turn> random_turns(std::uint64_t seed, std::size_t count, bool adds_up)
{
  dice random{seed};
  std::vector<turn> all;
  while (all.size() < count) {
    turn it = regular();
    if (random.percent(45))
      for (std::uint32_t times = 1 + random.below(2); times > 0; --times) stray(it, random, adds_up);
    if (random.percent(8)) it.rewritten.push_back(random.below(parameter_count));
    it.finishes = random.percent(8);
    it.rehearses = random.percent(4);
    all.push_back(it);
    if (!random.percent(20)) continue;
    turn evaluation = regular();
    evaluation.evaluates = true;
    evaluation.name = "evaluation";
    if (random.percent(30)) evaluation.passes[0].resize(1 + random.below(blocks));
    if (random.percent(30))
      evaluation.looks.push_back({random.below(evaluation.passes[0].size()), random.below(parameter_count)});
    all.push_back(evaluation);
  }
  return all;
}

/// New values of a parameter that is overwritten in this iteration.
[[nodiscard]] inline float rewritten(std::size_t parameter, std::uint64_t key, std::uint64_t index) noexcept
{
  return 0.3F * mixed::noise(key * 7'000'003 + parameter * 40'009 + index);
}

/// For each visit of a turn's backward passes, by parameter: how many gradients are still to come.
template <class Net>
[[nodiscard]] std::vector<std::uint32_t> gradients_of(const turn& it)
{
  std::vector<std::uint32_t> left(parameters_in<Net>, 0);
  for (const auto& visits : it.passes) {
    ++left[0];
    for (const std::uint32_t block : visits)
      for (const std::size_t index : {Net::up_of(block), Net::bias_of(block), Net::down_of(block)}) ++left[index];
  }
  return left;
}

[[nodiscard]] constexpr std::uint64_t key_of(std::uint64_t number, std::size_t pass) noexcept
{
  return number * 4 + pass;
}

}  // namespace divergence
