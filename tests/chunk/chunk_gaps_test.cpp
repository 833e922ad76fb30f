// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/layouts.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <optional>
#include <vector>

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
  void mark(std::uint32_t chunk, std::uint64_t begin, std::uint64_t count, bool free)
  {
    for (std::uint64_t index = begin / 256; index < (begin + count) / 256; ++index) is_free[chunk][index] = free;
  }
};

struct taken {
  std::uint32_t chunk;
  std::uint64_t begin;
  std::uint64_t count;
};

void compare(std::uint64_t seed)
{
  support::dice dice{seed};
  model plain{256 * std::uint64_t{dice.between(1, 9)}, {}};
  chunk_gaps gaps;
  gaps.reset(frame_size{bytes{plain.frame}});
  std::vector<taken> live;
  for (int step = 0; step < 120; ++step) {
    if (live.empty() || dice.one_in(2)) {
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
      plain.mark(target.chunk, target.begin, need, false);
      live.push_back({target.chunk, target.begin, need});
    } else {
      taken& gone = dice.pick(live);
      gaps.give(gone.chunk, gone.begin, gone.count);
      plain.mark(gone.chunk, gone.begin, gone.count, true);
      gone = live.back();
      live.pop_back();
    }
  }
}

}  // namespace

TEST_CASE("gaps are those of a model that marks each unit of each chunk", "[chunk]")
{
  for (std::uint64_t seed = 1; seed <= 150; ++seed) compare(seed);
}

TEST_CASE("what is free, or of no chunk, cannot be given back", "[chunk]")
{
  chunk_gaps gaps;
  gaps.reset(frame_size{bytes{1'024}});
  gaps.take(gaps.open(2), 1'024);
  CHECK(gaps.frames_of(0) == 2);
  CHECK_THROWS_AS(gaps.give(1, 0, 256), usage_error);
  CHECK_THROWS_AS(gaps.give(0, 1'024, 256), usage_error);
  CHECK_THROWS_AS(gaps.give(0, 768, 512), usage_error);
  CHECK_THROWS_AS(gaps.give(0, 2'048, 256), usage_error);
  gaps.give(0, 256, 256);
  CHECK_THROWS_AS(gaps.give(0, 256, 256), usage_error);
  CHECK_THROWS_AS(gaps.give(0, 0, 512), usage_error);
  gaps.give(0, 0, 256);
  gaps.give(0, 512, 512);
  CHECK(gaps.tightest(2'048)->length == 2'048);  // one gap again
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
