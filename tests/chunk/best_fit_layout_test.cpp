// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/layouts.hpp>

#include <conformance/chunk_layout.hpp>
#include <conformance/reusing_layout.hpp>
#include <support/catch.hpp>

#include <vector>

namespace best_fit_layout_test {

using namespace chunkmem;

TEST_CASE("best fit keeps the laws of layouts, of reuse and of search", "[chunk]")
{
  conformance::chunk_layout_laws<best_fit_layout>();
  conformance::reusing_layout_laws<best_fit_layout>(30'000);
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

TEST_CASE("best fit uses again what was given back", "[chunk]")
{
  best_fit_layout layout;
  layout.reset(bytes{1'024});
  std::vector<chunk_place> places;
  for (int tensor = 0; tensor < 8; ++tensor) places.push_back(layout.place(bytes{512}));
  for (const chunk_place& place : places) layout.erase(place, bytes{512});
  for (int tensor = 0; tensor < 4; ++tensor) CHECK(layout.place(bytes{1'000}).chunk < 4);
  CHECK(layout.place(bytes{256}).chunk == 4);
}

TEST_CASE("best fit never hands out a used gap twice", "[chunk]")
{
  best_fit_layout layout;
  layout.reset(bytes{25'600});
  const chunk_place first = layout.place(bytes{2'560});
  layout.place(bytes{2'560});
  layout.place(bytes{10'240});
  layout.place(bytes{2'560});
  layout.erase(first, bytes{2'560});
  CHECK(layout.place(bytes{1'280}) == chunk_place{0, 0, 1});
  CHECK(layout.place(bytes{1'280}) ==
        chunk_place{0, 1'280, 1});  // an ordered list that keeps the gap would say 0 again
  CHECK(layout.place(bytes{1'280}) == chunk_place{0, 17'920, 1});
}

}  // namespace best_fit_layout_test
