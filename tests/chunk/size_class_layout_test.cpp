// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/size_class_layout.hpp>

#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace first_fit_chunks_test {

using namespace chunkmem;

namespace {

struct plain_chunk {
  std::uint32_t frames;
  std::uint64_t used;
};

chunk_place place(std::vector<plain_chunk>& chunks, std::uint64_t frame, std::uint64_t padded, std::size_t near)
{
  std::size_t found = chunks.size();
  for (std::size_t step = 0; step < chunks.size() && found == chunks.size(); ++step) {
    const plain_chunk& each = chunks[(near + step) % chunks.size()];
    if (each.frames * frame - each.used >= padded) found = (near + step) % chunks.size();
  }
  if (found == chunks.size()) chunks.push_back({static_cast<std::uint32_t>((padded - 1) / frame + 1), 0});
  chunks[found].used += padded;
  return {static_cast<std::uint32_t>(found), chunks[found].used - padded, chunks[found].frames};
}

}  // namespace

TEST_CASE("first fit from a chunk on is what a walk around all chunks finds", "[chunk]")
{
  first_fit_chunks chunks;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    const std::uint64_t frame = 256 * std::uint64_t{dice.between(1, 12)};
    chunks.reset(frame_size{bytes{frame}});
    std::vector<plain_chunk> plain;
    for (int step = 0; step < 80; ++step) {
      const std::uint64_t padded = 256 * std::uint64_t{dice.between(1, dice.one_in(4) ? 40 : 9)};
      const std::uint32_t near = plain.empty() ? 0 : dice.below(static_cast<std::uint32_t>(plain.size()));
      if (chunks.place(padded, near) != place(plain, frame, padded, near)) FAIL("seed " << seed << ", step " << step);
    }
    std::uint64_t frames = 0;
    for (const plain_chunk& each : plain) frames += each.frames;
    if (chunks.frames() != frames || chunks.chunks() != plain.size()) FAIL("seed " << seed << ": counts");
  }
}

TEST_CASE("apart from windows is the chunk that is named, or what a walk around the chunks of one frame finds",
          "[chunk]")
{
  first_fit_chunks chunks;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    const std::uint64_t frame = 256 * std::uint64_t{dice.between(1, 12)};
    chunks.reset(frame_size{bytes{frame}});
    std::vector<plain_chunk> plain;
    for (int step = 0; step < 80; ++step) {
      const std::uint64_t padded = 256 * std::uint64_t{dice.between(1, dice.one_in(4) ? 40 : 9)};
      const std::uint32_t near = plain.empty() ? 0 : dice.below(static_cast<std::uint32_t>(plain.size()));
      std::vector<plain_chunk> open = plain;  // without the frame runs that must not be found
      for (std::size_t index = 0; index < open.size(); ++index)
        if (open[index].frames > 1 && index != near) open[index].used = open[index].frames * frame;
      const chunk_place wanted = place(open, frame, padded, near);
      if (wanted.chunk == plain.size())
        plain.push_back(open.back());
      else
        plain[wanted.chunk].used = open[wanted.chunk].used;
      if (chunks.place_apart_from_frame_runs(padded, near) != wanted) FAIL("seed " << seed << ", step " << step);
    }
  }
}

TEST_CASE("who was passed over says from which frame on it has room", "[chunk]")
{
  first_fit_chunks chunks;
  chunks.reset(frame_size{bytes{2'560}});
  CHECK(chunks.open(2'048) == chunk_place{0, 0, 1});
  CHECK(chunks.open(4'608) == chunk_place{1, 0, 2});
  CHECK(chunks.changes_at() == 4'608);  // one frame instead of two
  CHECK(chunks.place(1'024, 1) == chunk_place{2, 0, 1});
  CHECK(chunks.changes_at() == 2'816);  // 512 B are missing in both; two frames bring them with 256 B each
  chunks.reset(frame_size{bytes{2'560}});
  CHECK(chunks.open(7'168) == chunk_place{0, 0, 3});
  CHECK(chunks.changes_at() == 3'584);
  CHECK(chunks.place_apart_from_frame_runs(2'048, 1) == chunk_place{1, 0, 1});
  CHECK(chunks.changes_at() == 3'584);  // the frame run was not asked
  CHECK(chunks.place_apart_from_frame_runs(1'024, 1) == chunk_place{2, 0, 1});
  CHECK(chunks.changes_at() == 3'072);  // 512 B are missing in the chunk of one frame
  CHECK(chunks.place_apart_from_frame_runs(768, 0) == chunk_place{2, 1'024, 1});
  CHECK(chunks.changes_at() == 2'816);  // 256 B are missing in the frame run that was named
  CHECK(chunks.place_apart_from_frame_runs(512, 0) == chunk_place{0, 7'168, 3});
  chunks.reset(frame_size{bytes{2'560}});
  CHECK((chunks.chunks() == 0 && chunks.frames() == 0 && chunks.changes_at() == frame_size::never));
}

}  // namespace first_fit_chunks_test

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
