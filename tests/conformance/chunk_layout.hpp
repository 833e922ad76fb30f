// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/core/error.hpp>
#include <conformance/trials.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const chunkmem::chunk_place& place = places[index];
    if (place.offset % chunkmem::tensor_alignment.count() != 0) return "a place is not aligned";
    if (place.chunk > opened) return "a chunk was passed over";
    if (place.chunk == opened) ++opened;
    for (const auto& [begin, end] : taken[place.chunk])
      if (begin < place.offset + sizes[index] && place.offset < end) return "two tensors share a byte";
    taken[place.chunk].emplace_back(place.offset, place.offset + sizes[index]);
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

/// One trial on random sizes, which `run(layout, sizes, places)` places: the places are right, the same every time, and
/// a reset forgets.
template <class Layout, class Run>
[[nodiscard]] std::string mistake_in_placing(const Layout& prototype, Layout& used, std::uint64_t seed, Run run)
{
  using chunkmem::bytes;
  support::dice dice{seed};
  const std::uint64_t frame = 256 * std::uint64_t{dice.one_in(4) ? dice.between(60, 300) : dice.between(1, 20)};
  const std::vector<bytes> sizes = random_sizes(dice, frame, 60);
  std::vector<chunkmem::chunk_place> places(sizes.size());
  std::vector<chunkmem::chunk_place> again(sizes.size());
  Layout fresh = prototype;
  fresh.reset(bytes{frame});
  run(fresh, sizes, places);
  if (std::string mistake = mistake_in(counts_of(sizes), places, frame); !mistake.empty()) return mistake;
  used.reset(bytes{frame});
  run(used, sizes, again);
  return places == again ? "" : "the same sizes gave two places";
}

/// A copy that is taken half-way and used further does not change the original.
template <class Layout>
[[nodiscard]] std::string mistake_in_copying(const Layout& prototype, std::uint64_t seed)
{
  using chunkmem::bytes;
  support::dice dice{seed};
  const std::uint64_t frame = 256 * std::uint64_t{dice.between(1, 20)};
  const std::vector<bytes> sizes = random_sizes(dice, frame, 20);
  Layout alone = prototype;
  alone.reset(bytes{frame});
  std::vector<chunkmem::chunk_place> places;
  for (const bytes size : sizes) places.push_back(alone.place(size));
  Layout layout = prototype;
  layout.reset(bytes{frame});
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    Layout copy = layout;
    (void)copy.place(bytes{1 + dice.below(static_cast<std::uint32_t>(frame))});
    if (layout.place(sizes[index]) != places[index]) return "a copy shares its chunks with the original";
  }
  return {};
}

/// The refusals of a layout, which leave it unchanged.
template <class Layout>
[[nodiscard]] std::string mistake_in_refusals(const Layout& prototype)
{
  using chunkmem::bytes;
  Layout layout = prototype;
  for (const std::uint64_t frame : {0U, 1U, 255U, 257U, 1'000U})
    if (!is_refused_as<chunkmem::usage_error>([&] { layout.reset(bytes{frame}); }))
      return "a frame of " + std::to_string(frame) + " B was no usage_error";
  layout.reset(bytes{256});
  for (const std::uint64_t size : {UINT64_MAX, std::uint64_t{1} << 41})
    if (!is_refused_as<chunkmem::size_overflow>([&] { (void)layout.place(bytes{size}); }))
      return "a tensor beyond the numbers of a chunk was no size_overflow";
  const chunkmem::chunk_place small = layout.place(bytes{100});
  const chunkmem::chunk_place large = layout.place(bytes{256 * 7});
  if (small != chunkmem::chunk_place{0, 0, 1} || large.frames != 7) return "a refused tensor changed something";
  return {};
}

inline constexpr std::uint64_t layout_trials = 200;

/// One trial of the laws of chunk_layout, and of arranging_layout where it is one. The layouts `used` are passed from
/// trial to trial.
template <chunkmem::chunk_layout Layout>
[[nodiscard]] std::string mistake_in_layouts(const Layout& prototype, Layout& used, std::uint64_t seed)
{
  using sizes_of = std::vector<chunkmem::bytes>;
  using places_of = std::vector<chunkmem::chunk_place>;
  if (std::string_view{Layout::name}.empty()) return "a policy without a name";
  std::string mistake =
      mistake_in_placing(prototype, used, seed, [](Layout& layout, const sizes_of& sizes, places_of& places) {
        for (std::size_t index = 0; index < sizes.size(); ++index) places[index] = layout.place(sizes[index]);
      });
  if (!mistake.empty()) return mistake;
  if constexpr (chunkmem::arranging_layout<Layout>) {
    mistake = mistake_in_placing(prototype, used, seed, [](Layout& layout, const sizes_of& sizes, places_of& places) {
      layout.arrange(sizes, places);
    });
    if (!mistake.empty()) return "arranged: " + mistake;
  }
  if (seed % 10 == 0) mistake = mistake_in_copying(prototype, seed);
  return !mistake.empty() || seed != layout_trials ? mistake : mistake_in_refusals(prototype);
}

/// The broken law of chunk_layout; empty: none.
template <chunkmem::chunk_layout Layout>
[[nodiscard]] std::string mistake_in_chunk_layout(const Layout& prototype = {})
{
  Layout used = prototype;
  return first_mistake(layout_trials, [&](std::uint64_t seed) { return mistake_in_layouts(prototype, used, seed); });
}

/// The laws of chunk_layout, and of arranging_layout where it is one, on random sizes, many of them at the edges of a
/// frame.
template <chunkmem::chunk_layout Layout>
void chunk_layout_laws(const Layout& prototype = {})
{
  Layout used = prototype;
  require_trials(layout_trials, [&](std::uint64_t seed) { return mistake_in_layouts(prototype, used, seed); });
}

/// One trial of the law of searchable_layout. @param passed_over   counts the frames that a search need not try
template <chunkmem::searchable_layout Layout>
[[nodiscard]] std::string mistake_in_searching(const Layout& prototype, std::uint64_t seed, std::uint64_t& passed_over)
{
  using chunkmem::bytes;
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
  if (changes <= frame)
    return "changes_at is no larger frame: " + std::to_string(changes) + " B with frames of " + std::to_string(frame) +
           " B";
  for (std::uint64_t other = frame + 256; other < std::min(changes, 6 * frame); other += 256, ++passed_over)
    if (places_in(layout, other) != places)
      return "places change before changes_at: with frames of " + std::to_string(other) + " B, where " +
             std::to_string(changes) + " B was promised";
  return {};
}

inline constexpr std::uint64_t searching_trials = 300;

/// Whether the law of searchable_layout is broken; empty: it is not.
template <chunkmem::searchable_layout Layout>
[[nodiscard]] std::string mistake_in_searchable_layout(const Layout& prototype = {})
{
  std::uint64_t passed_over = 0;
  return first_mistake(searching_trials,
                       [&](std::uint64_t seed) { return mistake_in_searching(prototype, seed, passed_over); });
}

/// The law of searchable_layout: with every frame from this one to `changes_at()` the places are the same.
template <chunkmem::searchable_layout Layout>
void searchable_layout_laws(const Layout& prototype = {})
{
  std::uint64_t passed_over = 0;
  require_trials(searching_trials,
                 [&](std::uint64_t seed) { return mistake_in_searching(prototype, seed, passed_over); });
  CHECK(passed_over > 100);
}

}  // namespace conformance
