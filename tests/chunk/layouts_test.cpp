// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/layouts.hpp>

#include <chunkmem/chunk/size_class_layout.hpp>

#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/own_policies.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace append_layout_test {

using namespace chunkmem;

namespace {

void placed_at(chunk_place place, std::uint32_t chunk, std::uint64_t offset, std::uint32_t frames)
{
  CHECK(place.chunk == chunk);
  CHECK(place.offset == offset);
  CHECK(place.frames == frames);
}

}  // namespace

TEST_CASE("append layout keeps the laws of a layout", "[chunk]")
{
  conformance::chunk_layout_laws<append_layout>();
}

TEST_CASE("append layout fills a chunk and opens the next one where a tensor does not fit", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{1'024});
  placed_at(layout.place(bytes{300}), 0, 0, 1);
  placed_at(layout.place(bytes{256}), 0, 512, 1);
  placed_at(layout.place(bytes{256}), 0, 768, 1);  // to the last byte
  placed_at(layout.place(bytes{1}), 1, 0, 1);
  placed_at(layout.place(bytes{1'024}), 2, 0, 1);
  placed_at(layout.place(bytes{1}), 3, 0, 1);  // never looks back to chunk 1
}

TEST_CASE("append layout gives what is larger than a frame a window for itself", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{512});
  placed_at(layout.place(bytes{10}), 0, 0, 1);
  placed_at(layout.place(bytes{513}), 1, 0, 2);
  placed_at(layout.place(bytes{10}), 2, 0, 1);  // not back into chunk 0
  placed_at(layout.place(bytes{1'024}), 3, 0, 2);
  placed_at(layout.place(bytes{1'025}), 4, 0, 3);
}

TEST_CASE("append layout keeps the laws of layouts that can be searched", "[chunk]")
{
  conformance::searchable_layout_laws<append_layout>();
}

TEST_CASE("append layout says with which frame its next decision would be another", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{1'024});
  CHECK(layout.changes_at() == bytes{UINT64_MAX});
  layout.place(bytes{700});
  layout.place(bytes{500});  // together they need 768 + 512
  CHECK(layout.changes_at() == bytes{1'280});
  layout.place(bytes{2'049});  // three frames, two of 1,280 would do as well
  CHECK(layout.changes_at() == bytes{1'280});
  layout.reset(bytes{1'024});
  layout.place(bytes{4'097});
  CHECK(layout.changes_at() == bytes{1'280});  // four of those hold 4,352
}

}  // namespace append_layout_test

namespace chunk_gaps_test {

using namespace chunkmem;

namespace {

/// Each unit of 256 B of each chunk, free or not.
struct model {
  std::uint64_t frame;
  std::vector<std::vector<bool>> is_free;  // by chunk

  std::optional<chunk_gaps::gap> tightest(std::uint64_t need) const
  {
    std::optional<chunk_gaps::gap> best;
    const auto before = [&](const chunk_gaps::gap& a, const chunk_gaps::gap& b) {
      const std::size_t frames_of_a = is_free[a.chunk].size();
      const std::size_t frames_of_b = is_free[b.chunk].size();
      return a.length != b.length ? a.length < b.length : frames_of_a < frames_of_b;
    };
    for (std::uint32_t chunk = 0; chunk < is_free.size(); ++chunk)
      for (std::size_t begin = 0; begin < is_free[chunk].size();) {
        std::size_t end = begin;
        while (end < is_free[chunk].size() && is_free[chunk][end]) ++end;
        const chunk_gaps::gap here{chunk, begin * 256, (end - begin) * 256};
        if (here.length >= need && (!best || before(here, *best))) best = here;
        begin = end + 1;
      }
    return best;
  }
  void mark(std::uint32_t chunk, std::uint64_t begin, std::uint64_t count)
  {
    for (std::uint64_t index = begin / 256; index < (begin + count) / 256; ++index) is_free[chunk][index] = false;
  }
};

void compare(std::uint64_t seed)
{
  support::dice dice{seed};
  model plain{256 * std::uint64_t{dice.between(1, 9)}, {}};
  chunk_gaps gaps;
  gaps.reset(frame_size{bytes{plain.frame}});
  for (int step = 0; step < 60; ++step) {
    const std::uint64_t need = 256 * std::uint64_t{dice.between(1, 11)};
    const auto found = gaps.tightest(need);
    const auto expected = plain.tightest(need);
    if (found.has_value() != expected.has_value()) FAIL("seed " << seed << ", step " << step << ": found or not");
    if (found &&
        (found->chunk != expected->chunk || found->begin != expected->begin || found->length != expected->length))
      FAIL("seed " << seed << ", step " << step << ": another gap");
    const auto frames = static_cast<std::uint32_t>((need - 1) / plain.frame + 1);
    const chunk_gaps::gap target = found ? *found : gaps.open(frames);
    if (!found) plain.is_free.emplace_back(frames * plain.frame / 256, true);
    gaps.take(target, need);
    plain.mark(target.chunk, target.begin, need);
  }
}

}  // namespace

TEST_CASE("gaps are those of a model that marks each unit of each chunk", "[chunk]")
{
  for (std::uint64_t seed = 1; seed <= 150; ++seed) compare(seed);
}

TEST_CASE("a longer gap that grows more slowly may become the tighter one", "[chunk]")
{
  chunk_gaps gaps;
  gaps.reset(frame_size{bytes{2'560}});
  gaps.take(gaps.open(1), 1'280);  // 1,280 left, and one more for each byte of the frame
  gaps.take(gaps.open(2), 4'096);  // 1,024 left, and two more
  CHECK(gaps.tightest(256)->chunk == 1);
  CHECK(gaps.changes_at() == 2'816);  // both have 1,536 then, and of equal ones it is the shorter chunk
}

}  // namespace chunk_gaps_test

namespace best_fit_layout_test {

using namespace chunkmem;

TEST_CASE("best fit keeps the laws of layouts and of search", "[chunk]")
{
  conformance::chunk_layout_laws<best_fit_layout>();
  conformance::searchable_layout_laws<best_fit_layout>();
}

TEST_CASE("best fit looks for the least that is left over, in the rest of windows too", "[chunk]")
{
  best_fit_layout layout;
  layout.reset(bytes{2'048});
  CHECK(layout.place(bytes{1'280}) == chunk_place{0, 0, 1});  // 768 left
  CHECK(layout.place(bytes{1'536}) == chunk_place{1, 0, 1});  // 512 left
  CHECK(layout.place(bytes{3'840}) == chunk_place{2, 0, 2});  // 256 left
  CHECK(layout.place(bytes{256}) == chunk_place{2, 3'840, 2});
  CHECK(layout.place(bytes{256}) == chunk_place{1, 1'536, 1});
  CHECK(layout.place(bytes{512}) == chunk_place{0, 1'280, 1});
  CHECK(layout.place(bytes{512}) == chunk_place{3, 0, 1});
}

}  // namespace best_fit_layout_test

namespace any_layout_test {

using namespace chunkmem;

namespace {

using any_of_ours = any_layout<append_layout, best_fit_layout, size_class_layout>;
static_assert(arranging_layout<any_of_ours> && searchable_layout<any_of_ours>);
static_assert(!searchable_layout<any_layout<append_layout, support::one_each_layout>>);

}  // namespace

TEST_CASE("a layout chosen by name keeps the laws", "[chunk]")
{
  for (const std::string_view name : any_of_ours::names) {
    INFO(std::string{name});
    conformance::chunk_layout_laws(any_of_ours{name});
    conformance::searchable_layout_laws(any_of_ours{name});
  }
}

TEST_CASE("a layout chosen by name places as that layout does", "[chunk]")
{
  const std::vector<bytes> sizes{bytes{512}, bytes{512}, bytes{1'024}, bytes{1'024}};
  std::vector<chunk_place> places(4);
  std::vector<chunk_place> expected(4);
  any_of_ours any{"size_class_layout"};
  any.reset(bytes{1'536});
  any.arrange(sizes, places);
  size_class_layout plain;
  plain.reset(bytes{1'536});
  plain.arrange(sizes, expected);
  CHECK(places == expected);
  any_of_ours appending;
  CHECK(appending.chosen() == "append_layout");
  appending.reset(bytes{1'536});
  appending.arrange(sizes, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {0, 512, 1}, {1, 0, 1}, {2, 0, 1}});
  CHECK_THROWS_AS(any_of_ours{"worst_fit_layout"}, config_error);
}

}  // namespace any_layout_test
