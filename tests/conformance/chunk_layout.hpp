#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace conformance {

/// Checks places against the plain definition: aligned, disjoint, inside their chunk, chunks opened in order, and a chunk
/// as long as its largest tensor needs. Returns the first mistake, or an empty text.
inline std::string mistake_in(const std::vector<std::uint64_t>& sizes, const std::vector<chunkmem::chunk_place>& places,
                              std::uint64_t frame)
{
  std::map<std::uint32_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>> taken;
  std::map<std::uint32_t, std::uint64_t> frames;
  std::uint32_t opened = 0;
  for (std::size_t at = 0; at < sizes.size(); ++at) {
    const chunkmem::chunk_place& place = places[at];
    if (place.offset % chunkmem::tensor_alignment.count() != 0) return "a place is not aligned";
    if (place.chunk > opened) return "a chunk was passed over";
    if (place.chunk == opened) ++opened;
    for (const auto& [begin, end] : taken[place.chunk])
      if (begin < place.offset + sizes[at] && place.offset < end) return "two tensors share a byte";
    taken[place.chunk].emplace_back(place.offset, place.offset + sizes[at]);
    frames[place.chunk] = std::max<std::uint64_t>(frames[place.chunk], place.frames);
  }
  for (const auto& [chunk, intervals] : taken) {
    std::uint64_t largest = 0;
    for (const auto& [begin, end] : intervals) {
      if (end > frames[chunk] * frame) return "a tensor reaches beyond its chunk";
      largest = std::max(largest, end - begin);
    }
    if (frames[chunk] != std::max<std::uint64_t>((largest + frame - 1) / frame, 1)) return "a chunk has the wrong length";
  }
  return {};
}

/// The laws of chunk_layout on random sizes, many of them at the edges of a frame.
template <chunkmem::chunk_layout Layout>
void chunk_layout_laws()
{
  using chunkmem::bytes;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const std::uint64_t frame = 256 * std::uint64_t{dice.between(1, 20)};
    std::vector<std::uint64_t> sizes(dice.between(1, 60));
    for (std::uint64_t& size : sizes) {
      const std::uint64_t edges[] = {1, 255, 256, 257, frame - 1, frame, frame + 1, 2 * frame, 3 * frame + 5};
      size = dice.one_in(2) ? edges[dice.below(9)] : 1 + dice.below(static_cast<std::uint32_t>(frame));
    }
    std::vector<chunkmem::chunk_place> places[2];
    for (auto& each : places) {
      Layout layout{bytes{frame}};
      for (const std::uint64_t size : sizes) each.push_back(layout.place(bytes{size}));
    }
    const std::string mistake = mistake_in(sizes, places[0], frame);
    if (!mistake.empty()) FAIL(mistake);
    for (std::size_t at = 0; at < sizes.size(); ++at)
      if (places[0][at].chunk != places[1][at].chunk || places[0][at].offset != places[1][at].offset)
        FAIL("the same sizes gave two places, tensor " << at);
  }
}

}  // namespace conformance
