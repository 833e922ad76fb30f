#pragma once

#include <chunkmem/chunk/arranging_layout.hpp>
#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/place_all.hpp>
#include <chunkmem/chunk/searchable_layout.hpp>
#include <chunkmem/core/error.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

/// Checks places against the plain definition: aligned, disjoint, inside their chunk, chunks opened in order, and a
/// chunk as long as its largest tensor needs. Returns the first mistake, or an empty text.
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
    if (frames[chunk] != std::max<std::uint64_t>((largest + frame - 1) / frame, 1))
      return "a chunk has the wrong length";
  }
  return {};
}

/// Sizes at and around the edges of a frame.
inline std::vector<chunkmem::bytes> random_sizes(support::dice& dice, std::uint64_t frame, std::uint32_t most)
{
  std::vector<chunkmem::bytes> sizes(dice.between(1, most));
  for (chunkmem::bytes& size : sizes) {
    const std::uint64_t edges[] = {1, 255, 256, 257, frame - 1, frame, frame + 1, 2 * frame, 3 * frame + 5};
    size = chunkmem::bytes{dice.one_in(2) ? edges[dice.below(9)] : 1 + dice.below(static_cast<std::uint32_t>(frame))};
  }
  return sizes;
}

inline std::vector<std::uint64_t> counts_of(const std::vector<chunkmem::bytes>& sizes)
{
  std::vector<std::uint64_t> counts;
  for (const chunkmem::bytes size : sizes) counts.push_back(size.count());
  return counts;
}

/// Places by `run(layout, sizes, places)` for random sizes: they are right, the same every time, and a reset forgets.
template <class Layout, class Run>
void placing_laws(const Layout& prototype, Run run)
{
  using chunkmem::bytes;
  Layout used = prototype;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const std::uint64_t frame = 256 * std::uint64_t{dice.one_in(4) ? dice.between(60, 300) : dice.between(1, 20)};
    const std::vector<bytes> sizes = random_sizes(dice, frame, 60);
    std::vector<chunkmem::chunk_place> places(sizes.size());
    std::vector<chunkmem::chunk_place> again(sizes.size());
    Layout fresh = prototype;
    fresh.reset(bytes{frame});
    run(fresh, sizes, places);
    const std::string mistake = mistake_in(counts_of(sizes), places, frame);
    if (!mistake.empty()) FAIL(mistake);
    used.reset(bytes{frame});
    run(used, sizes, again);
    if (places != again) FAIL("the same sizes gave two places");
  }
}

/// The laws of chunk_layout, and of arranging_layout where it is one, on random sizes, many of them at the edges of a
/// frame.
template <chunkmem::chunk_layout Layout>
void chunk_layout_laws(const Layout& prototype = {})
{
  using chunkmem::bytes;
  placing_laws(prototype,
               [](Layout& layout, const std::vector<bytes>& sizes, std::vector<chunkmem::chunk_place>& places) {
                 for (std::size_t at = 0; at < sizes.size(); ++at) places[at] = layout.place(sizes[at]);
               });
  if constexpr (chunkmem::arranging_layout<Layout>)
    placing_laws(prototype, [](Layout& layout, const std::vector<bytes>& sizes,
                               std::vector<chunkmem::chunk_place>& places) { layout.arrange(sizes, places); });
  Layout layout = prototype;
  for (const std::uint64_t frame : {0U, 1U, 255U, 257U, 1'000U})
    CHECK_THROWS_AS(layout.reset(bytes{frame}), chunkmem::usage_error);
  layout.reset(bytes{256});
  CHECK_THROWS_AS(layout.place(bytes{UINT64_MAX}), chunkmem::size_overflow);
  CHECK_THROWS_AS(layout.place(bytes{std::uint64_t{1} << 41}), chunkmem::size_overflow);
  CHECK((layout.place(bytes{100}).offset == 0 &&
         layout.place(bytes{256 * 7}).frames == 7));  // as if nothing had been asked
}

/// The law of searchable_layout: with every frame from this one to `changes_at()` the places are the same.
template <chunkmem::searchable_layout Layout>
void searchable_layout_laws(const Layout& prototype = {})
{
  using chunkmem::bytes;
  std::uint64_t passed_over = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const std::uint64_t frame = 256 * std::uint64_t{dice.one_in(4) ? dice.between(60, 300) : dice.between(1, 20)};
    const std::vector<bytes> sizes = random_sizes(dice, frame, dice.one_in(3) ? 40 : 6);
    const auto places_in = [&](Layout& layout, std::uint64_t size) {
      std::vector<chunkmem::chunk_place> places(sizes.size());
      layout.reset(bytes{size});
      chunkmem::place_all(layout, sizes, places);
      return places;
    };
    Layout layout = prototype;
    const auto places = places_in(layout, frame);
    const std::uint64_t changes = layout.changes_at().count();
    if (changes <= frame) FAIL("nothing changes below " << changes << " with frames of " << frame);
    for (std::uint64_t other = frame + 256; other < std::min(changes, 6 * frame); other += 256, ++passed_over)
      if (places_in(layout, other) != places)
        FAIL("frames of " << other << " change what cannot change below " << changes);
  }
  CHECK(passed_over > 100);
}

}  // namespace conformance
