// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_size_search.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/own_policies.hpp>
#include <support/sanitized.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace frame_limits_test {

using namespace chunkmem;

namespace {

/// The 16-bit sizes of a GPT without its small tensors.
std::vector<bytes> gpt(std::uint64_t hidden, std::uint64_t layers, std::uint64_t vocabulary)
{
  std::vector<bytes> sizes{bytes{2 * vocabulary * hidden}};
  for (std::uint64_t layer = 0; layer < layers; ++layer)
    for (const std::uint64_t part : {3U, 1U, 4U, 4U}) sizes.emplace_back(2 * part * hidden * hidden);
  return sizes;
}

}  // namespace

TEST_CASE("the largest tensor of the body is no vocabulary, whether that is larger or smaller", "[chunk]")
{
  for (const std::uint64_t hidden : {768U, 2'048U, 8'192U, 12'288U, 20'480U})
    CHECK(frame_limits::largest_of_body(gpt(hidden, 6, 50'257)) == bytes{8 * hidden * hidden});
  std::vector<bytes> untied = gpt(1'024, 4, 32'000);
  untied.push_back(untied.front());
  CHECK(frame_limits::largest_of_body(untied) == bytes{8 * 1'024 * 1'024});
}

TEST_CASE("the largest tensor of all counts where nothing large is repeated", "[chunk]")
{
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{}) == 0_B);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{100_B}) == 100_B);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{100_B, 200_B, 200_B}) == 200_B);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{1_MiB, 2_MiB, 1_KiB, 1_KiB, 1_KiB}) == 2_MiB);
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{396_KiB, 1_KiB, 1_KiB, 1_KiB}) == 396_KiB);  // 3 of 399
  CHECK(frame_limits::largest_of_body(std::vector<bytes>{1_KiB, 2_KiB, 1_KiB, 1_KiB}) == 1_KiB);
}

TEST_CASE("limits are 1.25 times the largest tensor, at least 64 MiB, and 1/64 of it", "[chunk]")
{
  CHECK(frame_limits::around(128_MiB).most == 160_MiB);
  CHECK(frame_limits::around(128_MiB).least == 2_MiB);
  CHECK(frame_limits::around(8_MiB).most == 64_MiB);
  CHECK(frame_limits::around(8_MiB).least == 128_KiB);
  CHECK(frame_limits::around(0_B).least == 256_B);
  CHECK(frame_limits::around(bytes{300'000'001}).most <= bytes{375'000'320});
  CHECK(frame_limits::around(bytes{300'000'001}).most.count() % 256 == 0);
  CHECK(frame_limits::around(bytes{300'000'001}).least.count() % 256 == 0);
  CHECK_THROWS_AS(frame_limits::around(bytes{UINT64_MAX}), size_overflow);
  CHECK(frame_limits::of(gpt(4'096, 5, 50'257)).most == 160_MiB);
}

}  // namespace frame_limits_test

namespace chunk_size_search_test {

using namespace chunkmem;

namespace {

template <class Layout>
concept can_be_searched = requires { typename chunk_size_search<Layout>; };
static_assert(can_be_searched<append_layout> && !can_be_searched<support::one_each_layout>);

struct group {
  std::vector<bytes> sizes;
  std::uint32_t lists;
};

/// A few sizes that come again and again, as in a model, and some that do not.
std::vector<group> random_model(support::dice& dice)
{
  std::vector<group> groups(dice.between(1, 2));
  std::vector<std::uint64_t> layer(dice.between(1, 5));
  for (std::uint64_t& size : layer) size = 1 + dice.below(dice.one_in(3) ? 500 : 9'000);
  for (const std::uint32_t layers = dice.between(1, 6); group & each : groups) {
    for (std::uint32_t index = 0; index < layers; ++index)
      for (const std::uint64_t size : layer) each.sizes.emplace_back(size * (&each == groups.data() ? 1 : 2));
    if (dice.one_in(2)) each.sizes.emplace_back(1 + dice.below(40'000));
    each.lists = dice.between(1, 3);
  }
  return groups;
}

/// Every multiple of 256 B, each by a run of the layout.
template <class Layout>
std::uint64_t least_held(const std::vector<group>& groups, frame_limits limits, std::uint64_t& where)
{
  std::uint64_t least = UINT64_MAX;
  for (std::uint64_t frame = limits.least.count(); frame <= limits.most.count(); frame += 256) {
    std::uint64_t frames = 0;
    for (const group& each : groups) {
      Layout layout;
      layout.reset(bytes{frame});
      std::vector<chunk_place> places(each.sizes.size());
      place_all(layout, each.sizes, places);
      std::map<std::uint32_t, std::uint32_t> length;
      for (const chunk_place& place : places) length[place.chunk] = place.frames;
      for (const auto& [chunk, count] : length) frames += std::uint64_t{count} * each.lists;
    }
    if (frames * frame < least) where = frame;
    least = std::min(least, frames * frame);
  }
  return least;
}

template <class Layout>
void agrees_with_every_size(std::uint64_t models)
{
  std::uint64_t evaluations = 0;
  std::uint64_t sizes = 0;
  for (std::uint64_t seed = 1; seed <= models; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const std::vector<group> groups = random_model(dice);
    const std::uint64_t least = 256 * std::uint64_t{dice.between(1, 30)};
    const frame_limits limits{bytes{least}, bytes{least + 256 * std::uint64_t{dice.below(90)}}};
    chunk_size_search<Layout> search;
    for (const group& each : groups) search.add(each.sizes, each.lists);
    const auto found = search.find(limits, -1);
    std::uint64_t where = 0;
    const std::uint64_t expected = least_held<Layout>(groups, limits, where);
    if (found.frame.count() * found.frames != expected)
      FAIL("holds " << found.frame.count() * found.frames << ", least " << expected);
    if (found.frame != bytes{where}) FAIL("frame " << found.frame.count() << ", the smallest as good " << where);
    if (search.measure(found.frame).frames != found.frames) FAIL("another number of frames when asked again");
    evaluations += found.evaluations;
    sizes += (limits.most.count() - limits.least.count()) / 256 + 1;
  }
  CHECK(evaluations * 2 < sizes);  // it does pass over sizes
}

}  // namespace

TEST_CASE("the search finds what trying every size finds", "[chunk]")
{
  constexpr std::uint64_t models = support::sanitized ? 50 : 150;
  agrees_with_every_size<append_layout>(models);
  agrees_with_every_size<best_fit_layout>(models);
  agrees_with_every_size<size_class_layout>(models);
}

TEST_CASE("the search finds what trying every size finds, for many models", "[chunk][.slow]")
{
  agrees_with_every_size<append_layout>(20'000);
  agrees_with_every_size<best_fit_layout>(20'000);
  agrees_with_every_size<size_class_layout>(20'000);
}

TEST_CASE("a search stops at the half of the sizes in which enough is reached", "[chunk]")
{
  chunk_size_search<append_layout> search;
  search.add(std::vector<bytes>(6, bytes{1'024}));
  CHECK(search.find({256_B, 4_KiB}, -1).frame == 256_B);
  CHECK(search.find({256_B, 4_KiB}, 0.001).frame == 2_KiB);  // of 2 to 4 KiB the smallest that wastes nothing
  CHECK(search.find({256_B, bytes{1'792}}, 0.001).frame == 1_KiB);
  CHECK(search.find({bytes{1'280}, bytes{1'792}}, 0.001).frame == bytes{1'280});
}

TEST_CASE("waste is what no tensor fills, alignment included, in all lists", "[chunk]")
{
  chunk_size_search<append_layout> search;
  search.add(std::vector{bytes{300}, bytes{500}}, 2);
  search.add(std::vector{bytes{1'000}});
  const auto found = search.measure(1_KiB);
  CHECK(found.frames == 3);
  CHECK(found.payload == 2'600_B);
  CHECK(found.waste() == (3.0 * 1'024 - 2'600) / (3.0 * 1'024));
}

TEST_CASE("a search works with one tensor, with none, and refuses wrong limits", "[chunk]")
{
  chunk_size_search<size_class_layout> search;
  CHECK(search.find({256_B, 1_KiB}).frame == 0_B);
  CHECK(search.find({256_B, 1_KiB}).waste() == 0);
  search.add({});
  CHECK(search.find({256_B, 1_KiB}).frames == 0);
  search.add(std::vector{bytes{700}});
  const auto found = search.find({256_B, 64_MiB}, 0);
  CHECK((found.frame == 256_B && found.frames == 3));
  CHECK(search.find({512_B, 64_MiB}, 0).frame == 768_B);
  CHECK_THROWS_AS(search.find({1_KiB, 512_B}), usage_error);
  CHECK_THROWS_AS(search.find({100_B, 512_B}), usage_error);
}

TEST_CASE("a search with a layout chosen by name finds what that layout finds", "[chunk]")
{
  using any = any_layout<append_layout, size_class_layout>;
  const std::vector<bytes> sizes{bytes{5'000}, bytes{700}, bytes{3'000}, bytes{3'000}, bytes{5'000}};
  chunk_size_search<any> chosen{any{"size_class_layout"}};
  chunk_size_search<size_class_layout> plain;
  chosen.add(sizes);
  plain.add(sizes);
  CHECK(chosen.find({1_KiB, 8_KiB}, 0).frame == plain.find({1_KiB, 8_KiB}, 0).frame);
}

}  // namespace chunk_size_search_test
