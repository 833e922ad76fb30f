// SPDX-License-Identifier: Apache-2.0
#include "two_ended_layout.hpp"

#include "usual_training.hpp"

#include <conformance/chunk_layout.hpp>

using namespace chunkmem;
using namespace chunkmem::literals;

TEST_CASE("two_ended_layout keeps the laws of a layout")
{
  conformance::chunk_layout_laws<two_ended_layout>();
}

TEST_CASE("two_ended_layout puts small tensors at the end of the chunk of their neighbours")
{
  two_ended_layout layout;
  layout.reset(8_KiB);
  CHECK(layout.place(4_KiB) == chunk_place{0, 0, 1});
  CHECK(layout.place(100_B) == chunk_place{0, 7'936, 1});
  CHECK(layout.place(2_KiB) == chunk_place{0, 4'096, 1});
  CHECK(layout.place(512_B) == chunk_place{0, 7'424, 1});
  CHECK(layout.place(2_KiB) == chunk_place{1, 0, 1});
  CHECK(layout.place(9_KiB) == chunk_place{2, 0, 2});
  CHECK(layout.place(100_B) == chunk_place{3, 7'936, 1});
}

TEST_CASE("with two_ended_layout a model trains to the same bits")
{
  const trained mine = train_with<two_ended_layout>();
  CHECK(usual_training().left.difference(mine.left) == "");
  CHECK(mine.moved.evictions > 0);
}
