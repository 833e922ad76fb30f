// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/size_class_layout.hpp>

#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace size_class_layout_test {

using namespace chunkmem;

namespace {

std::vector<chunk_place> arranged(std::uint64_t frame, const std::vector<std::uint64_t>& counts)
{
  std::vector<bytes> sizes;
  for (const std::uint64_t count : counts) sizes.emplace_back(count);
  std::vector<chunk_place> places(sizes.size());
  size_class_layout layout;
  layout.reset(bytes{frame});
  layout.arrange(sizes, places);
  return places;
}

}  // namespace

TEST_CASE("size classes keep the laws of layouts and of search", "[chunk]")
{
  conformance::chunk_layout_laws<size_class_layout>();
  conformance::searchable_layout_laws<size_class_layout>();
}

TEST_CASE("size classes fill the rest of a window with what comes before and after it", "[chunk]")
{
  CHECK(arranged(1'024, {256, 1'536, 256}) == std::vector<chunk_place>{{0, 1'536, 2}, {0, 0, 2}, {0, 1'792, 2}});
}

TEST_CASE("size classes keep the order of declaration where falling sizes save nothing", "[chunk]")
{
  CHECK(arranged(1'024, {256, 768, 256, 768}) ==
        std::vector<chunk_place>{{0, 0, 1}, {0, 256, 1}, {1, 0, 1}, {1, 256, 1}});
}

TEST_CASE("size classes take falling sizes where that saves a frame", "[chunk]")
{
  CHECK(arranged(1'536, {512, 512, 1'024, 1'024}) ==
        std::vector<chunk_place>{{0, 1'024, 1}, {1, 1'024, 1}, {0, 0, 1}, {1, 0, 1}});
}

TEST_CASE("tiny tensors come last, into the chunks of their neighbours", "[chunk]")
{
  const std::uint64_t frame = 64 * 256;
  const std::uint64_t body = frame - 512;
  CHECK(arranged(frame, {10, body, 10, body, 20, 30, 40}) ==
        std::vector<chunk_place>{
            {0, body, 1}, {0, 0, 1}, {0, body + 256, 1}, {1, 0, 1}, {1, body, 1}, {1, body + 256, 1}, {2, 0, 1}});
}

TEST_CASE("a tiny tensor goes into a window of its neighbour, and into no other window", "[chunk]")
{
  const std::uint64_t frame = 64 * 256;
  const std::uint64_t vocabulary = frame + frame / 2;  // leaves half a frame
  CHECK(arranged(frame, {vocabulary, 10, frame, 20, frame, 30}) ==
        std::vector<chunk_place>{{0, 0, 2}, {0, vocabulary, 2}, {1, 0, 1}, {2, 0, 1}, {3, 0, 1}, {2, 256, 1}});
}

TEST_CASE("size classes arrange once after a reset, and nothing at all", "[chunk]")
{
  size_class_layout layout;
  layout.reset(bytes{512});
  CHECK_THROWS_AS(layout.arrange(std::vector<bytes>(2), {}), usage_error);
  layout.arrange({}, {});
  std::vector<chunk_place> place(1);
  layout.arrange(std::vector{bytes{1}}, place);
  CHECK_THROWS_AS(layout.arrange(std::vector{bytes{1}}, place), usage_error);
}

TEST_CASE("size classes place one by one from the last chunk on", "[chunk]")
{
  size_class_layout layout;
  layout.reset(bytes{1'024});
  CHECK(layout.place(bytes{512}) == chunk_place{0, 0, 1});
  CHECK(layout.place(bytes{768}) == chunk_place{1, 0, 1});
  CHECK(layout.place(bytes{256}) == chunk_place{1, 768, 1});
  CHECK(layout.place(bytes{256}) == chunk_place{0, 512, 1});
}

TEST_CASE("size classes refuse sizes beyond their numbers and arrange others after it", "[chunk]")
{
  size_class_layout layout;
  std::vector<chunk_place> places(2);
  layout.reset(bytes{256});
  CHECK_THROWS_AS(layout.arrange(std::vector{bytes{256}, bytes{UINT64_MAX}}, places), size_overflow);
  layout.reset(bytes{256});
  CHECK_THROWS_AS(layout.arrange(std::vector{bytes{256}, bytes{std::uint64_t{1} << 41}}, places), size_overflow);
  layout.reset(bytes{256});
  layout.arrange(std::vector{bytes{256}}, std::span{places}.first(1));
  CHECK(places[0] == chunk_place{0, 0, 1});
  layout.reset(bytes{256});
  layout.arrange(std::vector{bytes{256}, bytes{512}}, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {1, 0, 2}});
}

}  // namespace size_class_layout_test
