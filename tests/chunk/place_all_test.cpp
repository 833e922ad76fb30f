// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <support/catch.hpp>

#include <vector>

namespace place_all_test {

using namespace chunkmem;

namespace {

struct all_apart : append_layout {
  static constexpr std::string_view name = "all_apart";
  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    for (std::size_t index = 0; index < sizes.size(); ++index)
      places[index] = {static_cast<std::uint32_t>(index), 0, 1};
  }
};

}  // namespace

TEST_CASE("all tensors are arranged where a layout can, and placed one by one where it cannot", "[chunk]")
{
  const std::vector<bytes> sizes{bytes{256}, bytes{256}, bytes{512}};
  std::vector<chunk_place> places(3);
  append_layout plain;
  plain.reset(bytes{512});
  place_all(plain, sizes, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {0, 256, 1}, {1, 0, 1}});
  all_apart arranging;
  arranging.reset(bytes{512});
  place_all(arranging, sizes, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {1, 0, 1}, {2, 0, 1}});
}

TEST_CASE("sizes and places must be as many", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{512});
  std::vector<chunk_place> places(2);
  CHECK_THROWS_AS(place_all(layout, std::vector<bytes>(3, bytes{256}), places), usage_error);
  CHECK(layout.place(bytes{1}) == chunk_place{0, 0, 1});
}

}  // namespace place_all_test
