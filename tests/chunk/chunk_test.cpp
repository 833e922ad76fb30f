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
  CHECK_FALSE(fresh.on_device());
  CHECK((fresh.host == chunk::nowhere && !fresh.host_valid && fresh.live == 0 && fresh.frames == 1));
  CHECK(fresh.next_use == chunk::nowhere);
}

TEST_CASE("a derived chunk has no window on the host, and is not nowhere", "[chunk]")
{
  const chunk fresh, derived{.host = chunk::elsewhere}, last{.host = chunk::elsewhere - 1}, first{.host = 0};
  CHECK((derived.is_derived() && !derived.has_window() && !derived.on_device()));
  CHECK((!fresh.is_derived() && !fresh.has_window()));
  for (const chunk& it : {last, first}) CHECK((!it.is_derived() && it.has_window()));
  CHECK_FALSE(have_same_place(fresh, derived));
}

TEST_CASE("two chunks have the same place where all but the next use is equal", "[chunk]")
{
  const chunk base{.frames = 2,
                   .device = 3,
                   .host = 4,
                   .next_use = 5,
                   .live = 6,
                   .device_pins = 7,
                   .host_pins = 8,
                   .host_valid = true};
  CHECK(have_same_place(base, base));
  chunk other = base;
  other.next_use = 99;
  CHECK(have_same_place(base, other));
  const auto differs = [&](auto change) {
    chunk changed = base;
    change(changed);
    return !have_same_place(base, changed) && !have_same_place(changed, base);
  };
  CHECK(differs([](chunk& it) { it.device = chunk::nowhere; }));
  CHECK(differs([](chunk& it) { it.host = 5; }));
  CHECK(differs([](chunk& it) { it.live = 5; }));
  CHECK(differs([](chunk& it) { it.device_pins = 0; }));
  CHECK(differs([](chunk& it) { it.host_pins = 0; }));
  CHECK(differs([](chunk& it) { it.host_valid = false; }));
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
