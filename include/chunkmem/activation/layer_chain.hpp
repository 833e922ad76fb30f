// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A part of a network that runs as a whole: one forward callback, one backward callback.
///
///     const chain_block layer{.name = "layer 3", .forward_seconds = 0.002, .backward_seconds = 0.004,
///                             .saved = 96_MiB, .boundary = 8_MiB};
struct chain_block {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double recompute_seconds = 0;  ///< of a second forward run; 0: as the first one
  bytes saved{};                 ///< made by the forward run and read by the backward run, the output included
  bytes boundary{};              ///< the output alone: the next block's input; at most `saved`
  bytes gradient{};              ///< of the output, from the next block's backward run to the end of this block's
  bytes forward_working{};       ///< in addition, while it runs forward and saves
  bytes passing_working{};       ///< in addition, while it runs forward and saves nothing
  bytes backward_working{};      ///< in addition, while it runs backward
  bytes carried{};               ///< in addition in each run: tensors of earlier blocks that stay for later ones
  bool reads_input = false;      ///< the backward run reads the block's input too

  [[nodiscard]] bool operator==(const chain_block&) const = default;

  [[nodiscard]] double again_seconds() const noexcept
  {
    return recompute_seconds > 0 ? recompute_seconds : forward_seconds;
  }
  /// The bytes that the forward run makes, without the output. @pre boundary <= saved
  [[nodiscard]] bytes inner() const { return saved - boundary; }
};

/// Tensors of one block that later blocks read too: a skip connection. They are saved once, and counted in no block.
///
/// The block that makes the tensors makes the same bytes in each of its forward runs. From its first run to its
/// backward run the bytes are on the device or on the host. Each run of a reader needs them on the device.
///
///     const chain_skip skip{.from = 0, .readers = {1, 6}, .size = 8_MiB};
struct chain_skip {
  std::uint32_t from = 0;                ///< the block that makes them
  std::vector<std::uint32_t> readers{};  ///< later blocks, ascending
  bytes size{};

  [[nodiscard]] bool operator==(const chain_skip&) const = default;
};

/// Blocks that run one after the other, and backward in reverse. A block reads the output of the block before, and
/// tensors of earlier blocks that are skips.
///
/// Sums of seconds and bytes are O(blocks).
///
/// Use:
///
///     layer_chain chain{.blocks = {first, second, third}, .input = 4_MiB};
///     chain.check();
///     const layer_chain coarse = merged(chain, {0, 2});   // two blocks: the first two of them together, the third
struct layer_chain {
  std::vector<chain_block> blocks;
  bytes input{};  ///< of the first block; on the device from the beginning
  std::vector<chain_skip> skips{};

  [[nodiscard]] bool operator==(const layer_chain&) const = default;

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(blocks.size()); }
  /// The input of a block: the output of the block before.
  [[nodiscard]] bytes input_of(std::uint32_t block) const noexcept
  {
    return block == 0 ? input : blocks[block - 1].boundary;
  }
  [[nodiscard]] double forward_seconds() const noexcept { return sum(&chain_block::forward_seconds); }
  [[nodiscard]] double backward_seconds() const noexcept { return sum(&chain_block::backward_seconds); }
  /// Seconds of a step with enough memory: forward and backward.
  [[nodiscard]] double unlimited_seconds() const noexcept { return forward_seconds() + backward_seconds(); }
  /// Bytes that all blocks save, without skips. @throws size_overflow
  [[nodiscard]] bytes saved() const
  {
    bytes all;
    for (const chain_block& block : blocks) all += block.saved;
    return all;
  }
  /// Bytes of all skips. @throws size_overflow
  [[nodiscard]] bytes skipped() const
  {
    bytes all;
    for (const chain_skip& skip : skips) all += skip.size;
    return all;
  }

  /// @throws config_error   no block; a time that is negative or not a number; a sum of times that overflows; an output
  ///   larger than all saved bytes; or a skip that no later block reads; names the block
  void check() const
  {
    if (blocks.empty()) throw config_error{"a chain has no block (add one)"};
    const auto is_time = [](double seconds) { return seconds >= 0 && seconds <= std::numeric_limits<double>::max(); };
    double all = 0;
    for (std::uint32_t index = 0; index < size(); ++index) {
      const chain_block& block = blocks[index];
      const auto refuse = [&](std::string_view why) {
        throw config_error{error_text{} << "chunkmem: block " << index << " (\"" << block.name << "\") " << why};
      };
      if (!is_time(block.forward_seconds)) refuse("has a forward time that is negative or not a number");
      if (!is_time(block.backward_seconds)) refuse("has a backward time that is negative or not a number");
      if (!is_time(block.recompute_seconds)) refuse("has a recompute time that is negative or not a number");
      if (block.boundary > block.saved) refuse("has an output that is larger than all bytes that it saves");
      all += block.forward_seconds + block.backward_seconds + block.again_seconds();
      if (!is_time(all)) refuse("makes the sum of all times larger than a double holds");
    }
    for (const chain_skip& skip : skips)
      if (skip.readers.empty() || skip.readers.front() <= skip.from || skip.readers.back() >= size() ||
          !std::ranges::is_sorted(skip.readers))
        throw config_error{error_text{} << "chunkmem: a skip from block " << skip.from << " in a chain of " << size()
                                        << " blocks has no readers after that block, or not in ascending order"};
  }

 private:
  [[nodiscard]] double sum(double chain_block::*seconds) const noexcept
  {
    double all = 0;
    for (const chain_block& block : blocks) all += block.*seconds;
    return all;
  }
};

/// Blocks `first` to `last` - 1 as one block.
///
/// The merged block saves the bytes that its parts save. Its recompute time is the sum of theirs. Its working memory is
/// the most of one part, and the largest gradient within.
[[nodiscard]] inline chain_block merged_block(const layer_chain& chain, std::uint32_t first, std::uint32_t last)
{
  chain_block whole = chain.blocks[first];
  whole.recompute_seconds = whole.again_seconds();
  bytes within;
  for (std::uint32_t index = first + 1; index < last; ++index) {
    const chain_block& part = chain.blocks[index];
    within = std::max(within, chain.blocks[index - 1].gradient);
    whole.forward_seconds += part.forward_seconds;
    whole.backward_seconds += part.backward_seconds;
    whole.recompute_seconds += part.again_seconds();
    whole.saved += part.saved;
    whole.forward_working = std::max(whole.forward_working, part.forward_working);
    whole.passing_working = std::max(whole.passing_working, part.passing_working);
    whole.backward_working = std::max(whole.backward_working, part.backward_working);
    whole.carried = std::max(whole.carried, part.carried);
  }
  const chain_block& end = chain.blocks[last - 1];
  whole.boundary = end.boundary;
  whole.gradient = end.gradient;
  whole.backward_working += within;
  if (last > first + 1) whole.name += " to " + end.name;
  return whole;
}

/// The chain with neighbours merged. @param begins   the first block of each merged block, ascending from 0
/// @throws config_error   `begins` is not ascending from 0, or has a block that the chain lacks
[[nodiscard]] inline layer_chain merged(const layer_chain& chain, const std::vector<std::uint32_t>& begins)
{
  layer_chain coarse;
  coarse.input = chain.input;
  if (begins.empty() || begins.front() != 0) throw config_error{"merged blocks have to begin with block 0"};
  for (std::size_t index = 0; index < begins.size(); ++index) {
    const std::uint32_t end = index + 1 < begins.size() ? begins[index + 1] : chain.size();
    if (end <= begins[index] || end > chain.size())
      throw config_error{error_text{} << "chunkmem: merged block " << index << " has no block of its own"};
    coarse.blocks.push_back(merged_block(chain, begins[index], end));
  }
  const auto group_of = [&](std::uint32_t block) {
    return static_cast<std::uint32_t>(std::ranges::upper_bound(begins, block) - begins.begin()) - 1;
  };
  for (const chain_skip& skip : chain.skips) {
    chain_skip whole{.from = group_of(skip.from), .size = skip.size};
    for (const std::uint32_t reader : skip.readers)
      if (const std::uint32_t group = group_of(reader);
          group > whole.from && (whole.readers.empty() || whole.readers.back() != group))
        whole.readers.push_back(group);
    if (whole.readers.empty())
      coarse.blocks[whole.from].saved += skip.size;  // within one block
    else
      coarse.skips.push_back(std::move(whole));
  }
  return coarse;
}

/// A chain of the same blocks without skips, for planners that know none: blocks carry the bytes instead.
/// @param on_device   by block: 1 if its skips are on the device from its first run to its backward run; else they are
///   there in the runs of the block and of the readers alone
[[nodiscard]] inline layer_chain carrying_skips(const layer_chain& chain, const std::vector<std::uint8_t>& on_device)
{
  layer_chain plain{.blocks = chain.blocks, .input = chain.input};
  for (const chain_skip& skip : chain.skips)
    for (std::uint32_t block = skip.from; block < chain.size(); ++block)
      if (on_device[skip.from] != 0 || block == skip.from || std::ranges::binary_search(skip.readers, block))
        plain.blocks[block].carried += skip.size;
  return plain;
}

/// Where to merge a chain to at most `blocks` blocks of about equal saved bytes. A chain of no more blocks stays as it
/// is. @pre blocks > 0
/// @complexity   O(chain)
[[nodiscard]] inline std::vector<std::uint32_t> equal_cuts(const layer_chain& chain, std::uint32_t blocks)
{
  std::vector<std::uint32_t> begins;
  const double share = static_cast<double>(chain.saved().count()) / blocks;
  double before = 0;
  for (std::uint32_t index = 0; index < chain.size(); ++index) {
    // A block whose middle lies beyond the share of the merged blocks so far begins the next merged block.
    const double size = static_cast<double>(chain.blocks[index].saved.count());
    const double middle = share > 0 ? std::floor((before + size / 2) / share) : 0;
    const double last = begins.empty() ? -1 : static_cast<double>(begins.size()) - 1;
    if (chain.size() <= blocks || (middle > last && begins.size() < blocks)) begins.push_back(index);
    before += size;
  }
  return begins;
}

}  // namespace activation

}  // namespace chunkmem::inline v0
