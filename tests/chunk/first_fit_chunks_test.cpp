// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/size_class_layout.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

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
      std::vector<plain_chunk> open = plain;  // without the windows that must not be found
      for (std::size_t index = 0; index < open.size(); ++index)
        if (open[index].frames > 1 && index != near) open[index].used = open[index].frames * frame;
      const chunk_place wanted = place(open, frame, padded, near);
      if (wanted.chunk == plain.size())
        plain.push_back(open.back());
      else
        plain[wanted.chunk].used = open[wanted.chunk].used;
      if (chunks.place_apart_from_windows(padded, near) != wanted) FAIL("seed " << seed << ", step " << step);
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
  CHECK(chunks.place_apart_from_windows(2'048, 1) == chunk_place{1, 0, 1});
  CHECK(chunks.changes_at() == 3'584);  // the window was not asked
  CHECK(chunks.place_apart_from_windows(1'024, 1) == chunk_place{2, 0, 1});
  CHECK(chunks.changes_at() == 3'072);  // 512 B are missing in the chunk of one frame
  CHECK(chunks.place_apart_from_windows(768, 0) == chunk_place{2, 1'024, 1});
  CHECK(chunks.changes_at() == 2'816);  // 256 B are missing in the window that was named
  CHECK(chunks.place_apart_from_windows(512, 0) == chunk_place{0, 7'168, 3});
  chunks.reset(frame_size{bytes{2'560}});
  CHECK((chunks.chunks() == 0 && chunks.frames() == 0 && chunks.changes_at() == frame_size::never));
}

}  // namespace first_fit_chunks_test
