// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/layouts.hpp>

#include <conformance/chunk_layout.hpp>
#include <conformance/reusing_layout.hpp>
#include <support/catch.hpp>

#include <vector>

namespace append_layout_test {

using namespace chunkmem;

namespace {

void placed_at(chunk_place place, std::uint32_t chunk, std::uint64_t offset, std::uint32_t frames)
{
  CHECK(place.chunk == chunk);
  CHECK(place.offset == offset);
  CHECK(place.frames == frames);
}

}  // namespace

TEST_CASE("append layout keeps the laws of a layout", "[chunk]")
{
  conformance::chunk_layout_laws<append_layout>();
}

TEST_CASE("append layout fills a chunk and opens the next one where a tensor does not fit", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{1'024});
  placed_at(layout.place(bytes{300}), 0, 0, 1);
  placed_at(layout.place(bytes{256}), 0, 512, 1);
  placed_at(layout.place(bytes{256}), 0, 768, 1);  // to the last byte
  placed_at(layout.place(bytes{1}), 1, 0, 1);
  placed_at(layout.place(bytes{1'024}), 2, 0, 1);
  placed_at(layout.place(bytes{1}), 3, 0, 1);  // never looks back to chunk 1
}

TEST_CASE("append layout gives what is larger than a frame a window for itself", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{512});
  placed_at(layout.place(bytes{10}), 0, 0, 1);
  placed_at(layout.place(bytes{513}), 1, 0, 2);
  placed_at(layout.place(bytes{10}), 2, 0, 1);  // not back into chunk 0
  placed_at(layout.place(bytes{1'024}), 3, 0, 2);
  placed_at(layout.place(bytes{1'025}), 4, 0, 3);
}

TEST_CASE("append layout gives back only what lies last", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{1'024});
  const chunk_place first = layout.place(bytes{256});
  const chunk_place second = layout.place(bytes{300});
  layout.erase(first, bytes{256});  // not the last: lost
  placed_at(layout.place(bytes{1}), 0, 768, 1);
  layout.erase({0, 768, 1}, bytes{1});
  layout.erase(second, bytes{300});
  placed_at(layout.place(bytes{512}), 0, 256, 1);
}

TEST_CASE("append layout puts a group into one chunk", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{1'024});
  std::vector<chunk_place> places(2);
  placed_at(layout.place(bytes{300}), 0, 0, 1);
  CHECK(layout.place_together(std::vector{bytes{256}, bytes{512}}, places));  // 512 B are left over
  placed_at(places[0], 1, 0, 1);
  placed_at(places[1], 1, 256, 1);
  CHECK_FALSE(layout.place_together(std::vector{bytes{513}, bytes{512}}, places));
  CHECK(layout.place_together(std::vector{bytes{1'025}, bytes{256}}, places));  // beside a tensor that needs two frames
  placed_at(places[0], 2, 0, 2);
  placed_at(places[1], 2, 1'280, 2);
}

TEST_CASE("append layout keeps the laws of layouts that reuse and can be searched", "[chunk]")
{
  conformance::reusing_layout_laws<append_layout>(70'000);
  conformance::searchable_layout_laws<append_layout>();
}

TEST_CASE("append layout says with which frame its next decision would be another", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{1'024});
  CHECK(layout.changes_at() == bytes{UINT64_MAX});
  layout.place(bytes{700});
  layout.place(bytes{500});  // together they need 768 + 512
  CHECK(layout.changes_at() == bytes{1'280});
  layout.place(bytes{2'049});  // three frames, two of 1,280 would do as well
  CHECK(layout.changes_at() == bytes{1'280});
  layout.reset(bytes{1'024});
  layout.place(bytes{4'097});
  CHECK(layout.changes_at() == bytes{1'280});  // four of those hold 4,352
}

}  // namespace append_layout_test
