// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <vector>

namespace chunk_test {

using namespace chunkmem;

TEST_CASE("a fresh chunk is nowhere and holds nothing", "[chunk]")
{
  const chunk fresh;
  for (const tier where : all_tiers) {
    CHECK_FALSE((fresh.has_frames(where) || fresh.is_valid(where)));
    CHECK((fresh.first_frame[where] == chunk::nowhere && fresh.pins[where] == 0));
  }
  CHECK((fresh.live == 0 && fresh.frames == 1 && fresh.writers == 0));
  CHECK_FALSE((fresh.wanted_below() || fresh.never_leaves() || fresh.is_summed() || fresh.is_filled_by_ranks() ||
               fresh.touched));
  CHECK(fresh.next_use == UINT32_MAX);
}

TEST_CASE("a gathered chunk has no frames on the host, and is not nowhere", "[chunk]")
{
  const auto on_host = [](frame_id first) {
    chunk it;
    it.first_frame[tier::host] = first;
    return it;
  };
  const chunk fresh, derived = on_host(chunk::elsewhere);
  CHECK((derived.is_gathered() && !derived.has_frames(tier::host) && !derived.has_frames(tier::device)));
  CHECK((!fresh.is_gathered() && !fresh.has_frames(tier::host)));
  for (const chunk& it : {on_host(frame_id{UINT32_MAX - 2}), on_host(frame_id{0})})
    CHECK((!it.is_gathered() && it.has_frames(tier::host)));
  CHECK_FALSE(fresh.same_place(derived));
}

TEST_CASE("copies of a chunk are valid where they were put until another one is written", "[chunk]")
{
  chunk it;
  it.put(tier::host, frame_id{4}, true);
  it.put(tier::device, frame_id{3}, true);
  CHECK((it.is_valid(tier::device) && it.is_valid(tier::host) && it.copies() == 2));
  it.want_below(true);
  it.keep_on_device(true);
  it.sum_over_ranks();
  it.fill_by_ranks();
  it.written_in(tier::device);
  CHECK((it.is_valid(tier::device) && !it.is_valid(tier::host) && it.first_frame[tier::host] == frame_id{4}));
  it.set_valid(tier::host, true);
  it.take_away(tier::device);
  CHECK((!it.has_frames(tier::device) && !it.is_valid(tier::device) && it.is_valid(tier::host)));
  CHECK((it.copies() == 1 && it.wanted_below() && it.never_leaves() && it.is_summed() && it.is_filled_by_ranks()));
}

TEST_CASE("two chunks have the same place where all but the next use is equal", "[chunk]")
{
  chunk base{.frames = 2, .first_frame = {{frame_id{3}, frame_id{4}}}, .pins = {{7, 8}}, .next_use = 5, .live = 6};
  for (const tier where : all_tiers) base.set_valid(where, true);
  CHECK(base.same_place(base));
  chunk other = base;
  other.next_use = 99;
  other.want_below(true);
  other.keep_on_device(true);
  other.sum_over_ranks();
  other.fill_by_ranks();
  CHECK(base.same_place(other));
  const auto differs = [&](auto change) {
    chunk changed = base;
    change(changed);
    return !base.same_place(changed) && !changed.same_place(base);
  };
  for (const tier where : all_tiers) {
    CHECK(differs([&](chunk& it) { it.first_frame[where] = chunk::nowhere; }));
    CHECK(differs([&](chunk& it) { it.pins[where] = 0; }));
    CHECK(differs([&](chunk& it) { it.set_valid(where, false); }));
  }
  CHECK(differs([](chunk& it) { it.live = 5; }));
}

TEST_CASE("the state of a chunk follows from its tensors", "[chunk]")
{
  using enum tensor_state;
  constexpr tensor_state free_state = tensor_state::free;
  const std::vector<tensor_state> by_rank{compute, gradient, hold, free_state};
  for (std::uint32_t pattern = 0; pattern < 4 * 4 * 4; ++pattern) {  // three tensors, all combinations
    const std::vector<tensor_state> tensors{static_cast<tensor_state>(pattern % 4),
                                            static_cast<tensor_state>(pattern / 4 % 4),
                                            static_cast<tensor_state>(pattern / 16)};
    const auto most_urgent = std::find_if(by_rank.begin(), by_rank.end(), [&](tensor_state state) {
      return std::find(tensors.begin(), tensors.end(), state) != tensors.end();
    });
    if (state_of_chunk(tensors) != *most_urgent) FAIL("pattern " << pattern);
  }
  CHECK(state_of_chunk({}) == free_state);
}

}  // namespace chunk_test
